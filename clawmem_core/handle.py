"""An open store: its view, its writer and its lock, from opening to closing; the base of `MemoryStore`.

Invariants: a handle that can write holds the store's lock until `close`; what the writer committed is visible before
the call that changed it returns; handles are safe to share between threads and refuse use in a forked child.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from clawmem_core.errors import ClawmemError, ClosedError, ForkedError, ReadOnlyError
from clawmem_core.view import View, open_view
from clawmem_core.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

Answer = TypeVar("Answer")


class Handle:
    """A store's view and, unless it is only read, its writer. `signing`: what signs checkpoints, or None.

    `warnings`: what went wrong without costing anything acknowledged, in order: damage that opening found, checkpoints
    nobody asked for that failed, derived files that could not be written.
    """

    def __init__(self, view: View, writer: Writer | None, signing: Any = None) -> None:
        self._view, self._writer, self._signing = view, writer, signing
        self.warnings: list[str] = [report.message for report in (writer.reports if writer else view.reports)]
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._closed = False

    def close(self) -> None:
        """Let lock and files go. What was acknowledged is in the log or the file."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._view.close()
            if self._writer is not None and os.getpid() == self._pid:
                self._writer.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()  # as a file does: a handle that nobody holds must not keep the lock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> View:
        if os.getpid() != self._pid:
            raise ForkedError(path=self._view.paths.given)
        if self._closed:
            raise ClosedError(path=self._view.paths.given)
        return self._view

    def _writing(self) -> Writer:
        self._check()
        if self._writer is None:
            raise ReadOnlyError(path=self._view.paths.given)
        return self._writer

    # ------------------------------------------------------------ changing and seeing

    def change(self, work: Callable[[Writer], Answer]) -> Answer:
        """Let `work` change the store through its writer and commit, then see what it did, also where it raised."""
        with self._mutex:
            writer = self._writing()
            before = self._view.pending
            try:
                answer = work(writer)
            finally:
                self._look_again()
            happened, warnings = writer.checkpoint_if_due(before, self._signing)
            self.warnings.extend(warnings)
            if happened:
                self._look_again()
            return answer

    @contextmanager
    def viewed(self) -> Iterator[View]:
        """The state of the store that this handle sees, held still while the block runs."""
        with self._mutex:
            yield self._check()

    def _commit(self, operations: Sequence[tuple[int, int, Any]]) -> None:
        """Commit what the writer has staged, let the view see it, checkpoint where one is due."""
        writer = self._writing()
        before = self._view.pending
        writer.commit()
        self._view.overlay.apply(operations)
        self._view.state, self._view.log_bytes = writer.state, writer.log.size
        happened, warnings = writer.checkpoint_if_due(before, self._signing)
        self.warnings.extend(warnings)
        if happened:
            try:
                self._look_again()
            except ClawmemError as error:  # what this handle has seen so far says the same
                self.warnings.append(f"the new checkpoint could not be opened: {error.message}")

    def _look_again(self) -> None:
        """See the file that a checkpoint just put in place."""
        self._view = open_view(self._view.paths.given)  # the old one ends with the last iterator over it
