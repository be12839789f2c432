"""How far a run is, on stderr: a bar on a terminal, a line every few seconds with --verbose, nothing otherwise."""

from __future__ import annotations

import os
import sys

import orjson

from clawmem_core import clock

_WIDTH = 30
_BAR_EVERY, _LINE_EVERY = 0.1, 5.0  # seconds


class Progress:
    """Shows the stages of one run."""

    def __init__(self, verbose: bool, quiet: bool) -> None:
        self._terminal = os.isatty(2) and not quiet
        self._lines = verbose and not self._terminal and not quiet
        self._name, self._total, self._done, self._next = "", 0, 0, 0.0

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of so many rows, 0 where nobody knows."""
        self.finish()
        self._name, self._total, self._done, self._next = name, total, 0, 0.0
        self._show()

    def advance(self, rows: int) -> None:
        """So many rows more are done."""
        self._done += rows
        if self._terminal or self._lines:
            self._show()

    def finish(self) -> None:
        """Take the bar off the terminal."""
        if self._terminal and self._name:
            self._say("\r\x1b[K")
        self._name = ""

    def _show(self) -> None:
        now = clock.monotonic()
        if now < self._next:
            return
        if self._terminal:
            self._next = now + _BAR_EVERY
            self._say(f"\r{self._name:<10} {self._bar()}\x1b[K")
        elif self._lines:
            self._next = now + _LINE_EVERY
            line = {"progress": {"stage": self._name, "rows": self._done, "total": self._total or None}}
            self._say(orjson.dumps(line).decode() + "\n")

    def _bar(self) -> str:
        """The rows done, and their share where the total is known."""
        if not self._total:
            return f"{self._done} rows"
        return f"[{'#' * (self._done * _WIDTH // self._total):<{_WIDTH}}] {self._done}/{self._total}"

    @staticmethod
    def _say(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            return  # nobody looks
