"""Run the command in a forked process of its own, on whatever storage layer a test wants.

A fork instead of a fresh interpreter: some milliseconds instead of some hundred, and as real as one where it counts:
its own descriptors, its own locks, its own death.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import os
import pkgutil
import selectors
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import clawmem_cli
import clawmem_core.contract
import clawmem_core.integrity
import clawmem_core.search
import clawmem_core.storage
from clawmem_cli import entry, options, output, parsing
from clawmem_core import clock
from clawmem_core.storage import fs

NOW = 1_800_000_000  # 2027-01-15T08:00:00Z
CRASHED = 99  # exit status of a process that a layer ended
#: every exit code that docs/cli.md names, but 1: a fault of the program is never an acceptable answer
DOCUMENTED = frozenset((0, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 74, 130, 141))

_PACKAGES = (
    clawmem_cli, clawmem_core, clawmem_core.contract, clawmem_core.integrity, clawmem_core.search, clawmem_core.storage,
)  # fmt: skip
_LEFT_OUT = ("app", "entry")  # typer, which the fast path does without


def _fast(verb: parsing.Verb) -> parsing.Verb:
    """A verb that the command recognises without typer, to save its start-up; both ways parse alike."""
    quick = copy.copy(verb)
    quick.fast = True
    return quick


def _warm_up() -> None:
    """Import what commands import, so that a child need not."""
    for package in _PACKAGES:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.ispkg and not module.name.endswith(_LEFT_OUT):
                importlib.import_module(module.name)
    importlib.import_module("orjson")
    gc.collect()
    gc.freeze()


_warm_up()
VERBS = {words: _fast(verb) for words, verb in options.VERBS.items()}


class Answer:
    """What a command left behind: exit code (negative: the signal that ended it), stdout, stderr."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[Any]:
        """The whole JSON lines of stdout."""
        return [json.loads(line) for line in self.out.splitlines(keepends=True) if line.endswith(b"\n")]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The JSON lines of stderr."""
        return [json.loads(line) for line in self.err.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The one error on stderr."""
        (found,) = [message["error"] for message in self.messages if "error" in message]
        return dict(found)

    def check(self) -> None:
        """Assert that it ended as documented: known code, an error line exactly for a failure, no traceback."""
        assert self.code in DOCUMENTED, self
        assert b"Traceback" not in self.err + self.out, self
        assert (self.code == 0) == (not any("error" in message for message in self.messages)), self

    def __repr__(self) -> str:
        return f"exit {self.code}, stdout {self.out[:300]!r}, stderr {self.err[:600]!r}"


def forked(action: Callable[[], int], stdin: bytes = b"") -> Answer:
    """Run `action` in a forked child with `stdin`; its result is the exit code."""
    given = os.memfd_create("stdin")
    os.pwrite(given, stdin, 0)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12 and later: numpy keeps threads
        child = os.fork()
    if not child:
        _child(action, (given, out_end, err_end))
    for fd in (given, out_end, err_end):
        os.close(fd)
    parts = _read(out, err)
    return Answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), parts[out], parts[err])


def _read(*pipes: int) -> dict[int, bytes]:
    """Everything that comes out of some pipes; closes them."""
    parts = dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as waiting:
        for fd in pipes:
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select():
                data = os.read(key.fd, 1 << 16)
                parts[key.fd] += data
                if not data:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
    return parts


def _child(action: Callable[[], int], files: Sequence[int]) -> None:
    status = 1
    gc.disable()
    try:
        for target, fd in enumerate(files):
            os.dup2(fd, target)
        status = action()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def command(
    *words: str | Path, stdin: bytes = b"", layer: Any = None, before: Callable[[], object] = lambda: None
) -> Answer:
    """Run `clawmem WORDS…`, at a time that stands still.

    `layer`: its storage layer; `before`: called in the process first (limits, user, …).
    """

    def action() -> int:
        before()
        clock.now, clock.now_us = lambda: float(NOW), lambda: NOW * 1_000_000
        if layer is not None:
            fs.layer = layer
        output.quiet = False
        options.VERBS = VERBS
        return entry.run([os.fsdecode(word) for word in words])

    return forked(action, stdin)
