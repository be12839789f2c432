"""The lock-free reader's end: one HDF5 file and the log frames that go on top of it, read while a writer may work.

Invariants: nothing is locked, created, cut or renamed; file and log of the answer belong together (same checkpoint id,
or the file's mark names the log), so an entry is never seen twice or missed; a disagreement is only believed when two
looks at least 10 ms apart show the same one, since a checkpoint in between shows a passing one.

Order (docs/format.md § 3): open the log, open the HDF5 file, learn its identity, then read the log to its end. A log
opened first can only be older than the file, and the mark says which part of an older log the file holds.
"""

from __future__ import annotations

from clawmem_core import clock
from clawmem_core.errors import NoStoreError
from clawmem_core.storage import fs
from clawmem_core.storage.log_format import HEADER_SIZE, NO_ID, LogHeader
from clawmem_core.storage.log_scan import (
    APPLIED,
    BASE,
    EMPTY,
    FOREIGN,
    LEGACY,
    cut_short,
    examine_tail,
    kind_of_log,
    kind_without_header,
    replay,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from clawmem_core.storage.log_format import Frame, Identity, LogState
    from clawmem_core.storage.log_reports import Report
    from clawmem_core.storage.log_scan import Replay
    from clawmem_core.storage.paths import StorePaths

_SETTLE = 0.010  # seconds between two looks that must agree
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.010


class Pair:
    """One consistent state of a store.

    `h5_fd`: the HDF5 file, open; the caller closes it. `identity`: of that file. `frames`: to apply on top, in order.
    `state`: counters after them. `header`, `log_bytes`: of the log, None and 0 where it is not applied. `reports`: what
    was noticed.
    """

    __slots__ = ("frames", "h5_fd", "header", "identity", "log_bytes", "reports", "state")

    def __init__(self, h5_fd: int, identity: Identity) -> None:
        self.h5_fd, self.identity = h5_fd, identity
        self.frames: list[Frame] = []
        self.state: LogState = identity.state
        self.header: LogHeader | None = None
        self.log_bytes = 0
        self.reports: list[Report] = []

    def tell(self, code: str, **details: Any) -> None:
        """Add to the reports."""
        from clawmem_core.storage.log_reports import Report

        self.reports.append(Report(code, **details))

    @property
    def pending(self) -> int:
        """Entries on top of the file."""
        return 0 if self.header is None else self.state.seq - self._first_seq

    @property
    def _first_seq(self) -> int:
        assert self.header is not None
        based = self.header.base_checkpoint_id == self.identity.checkpoint_id
        return self.header.state.seq if based else self.identity.state.seq


def open_pair(paths: StorePaths, find_identity: Callable[[int], Identity]) -> Pair:
    """A consistent pair. `find_identity` says what the HDF5 file open at a descriptor is; it may be asked repeatedly.

    Raises NoStoreError, NewerFormatError, StorageError, and what `find_identity` raises.
    """
    wait = _FIRST_WAIT
    seen, since = None, 0.0
    while True:
        pair, doubt = _look(paths, find_identity)
        if not doubt:
            return pair
        now = clock.monotonic()
        sight = (doubt, pair.identity.checkpoint_id, None if pair.header is None else pair.header.log_id)
        if sight != seen:
            seen, since = sight, now
        elif now - since >= _SETTLE:
            pair.header = None
            pair.tell(doubt)
            return pair
        fs.close(pair.h5_fd)
        clock.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT)


def _look(paths: StorePaths, find_identity: Callable[[int], Identity]) -> tuple[Pair, str]:
    """One look at both files: the pair, and "" or the code word of what does not fit."""
    log_fd = fs.open_existing(paths.log, fs.RDONLY | fs.NOFOLLOW)
    h5_fd = None
    whole = False
    try:
        h5_fd = fs.open_existing(paths.real)
        if h5_fd is None:
            raise NoStoreError(path=paths.given)
        pair = Pair(h5_fd, find_identity(h5_fd))
        doubt = _read_log(pair, log_fd, paths)
        whole = True
    finally:
        if log_fd is not None:
            fs.close(log_fd)
        if h5_fd is not None and not whole:
            fs.close(h5_fd)
    return pair, doubt


def _read_log(pair: Pair, fd: int | None, paths: StorePaths) -> str:
    identity = pair.identity
    if fd is None:
        return "" if identity.checkpoint_id == NO_ID else "log-missing"
    head = fs.pread(fd, HEADER_SIZE, 0)
    header = pair.header = LogHeader.unpack(head, paths.log)
    if header is None:
        kind = kind_without_header(fd, head, fs.fstat(fd).st_size)
        if kind == LEGACY:
            pair.tell("log-legacy")
            return ""
        return "log-empty" if kind == EMPTY else "log-header-bad"
    kind = kind_of_log(header, identity)
    if kind not in (BASE, APPLIED):
        return "log-foreign" if kind == FOREIGN else "log-other-checkpoint"
    marked = identity if kind == APPLIED else None
    size = fs.fstat(fd).st_size
    found = replay(fd, header, marked, size)
    if found.offset < size and not cut_short(fd, header.salt, found.offset, size):
        size = fs.fstat(fd).st_size  # a write that was going on is finished now, or there is damage
        found = replay(fd, header, marked, size)
    if not found.found:
        return "log-mark-broken"
    pair.frames, pair.state, pair.log_bytes = found.frames, found.state, size
    _report_tail(pair, fd, header, found, size)
    return ""


def _report_tail(pair: Pair, fd: int, header: LogHeader, found: Replay, size: int) -> None:
    """A frame that a writer may be finishing right now is no news; anything else behind the last good frame is."""
    if found.offset < size and not cut_short(fd, header.salt, found.offset, size):
        tail = examine_tail(fd, header.salt, found.offset, size, found.state)
        pair.tell(tail.code, offset=found.offset, lost_bytes=tail.lost)
