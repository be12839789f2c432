"""One writer: an exclusive flock on `<store>.lock`.

Invariants: the lock file is never removed, so two writers can never hold locks on two files of that name; the kernel
frees the lock when its owner dies, however it dies. A forked child closes the inherited descriptor without unlocking
(LOCK_UN there would free the parent's lock, and keeping it open would hold the lock after the parent's death) and may
not use the handle. The file's one line names the owner for messages only; it never holds what the owner writes.
"""

from __future__ import annotations

import itertools
import os
import sys

from clawmem_core import clock
from clawmem_core.errors import ClosedError, ForkedError, LockedError, one_line
from clawmem_core.storage import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from clawmem_core.storage.paths import StorePaths

_LINE = 256  # bytes of the owner line: fixed, so that one write replaces it whole
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05  # seconds

_held: dict[int, StoreLock] = {}  # by descriptor


class StoreLock:
    """The writer's lock of one store, held from `acquire` to `release`."""

    __slots__ = ("_pid", "fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path, self.fd = path, fd
        self._pid = os.getpid()
        _held[fd] = self

    @classmethod
    def acquire(cls, paths: StorePaths, timeout: float = 0.0, command: str | None = None) -> StoreLock:
        """Take the lock, waiting up to `timeout` seconds. `command`: shown to those who wait (default: from argv).

        Raises LockedError naming the owner, StorageError where the lock file can be neither opened nor made (a
        read-only folder); nothing is left behind then.
        """
        deadline = clock.monotonic() + timeout
        wait = _FIRST_WAIT
        while True:
            fd = _open(paths.lock, paths.real)
            taken = None
            try:
                if fs.flock(fd):
                    if not fs.same_file(fd, paths.lock):
                        continue  # somebody removed the file meanwhile: that lock would protect nothing
                    fs.pwrite(fd, _owner_line(command), 0)
                    taken = cls(paths.lock, fd)
                    return taken
                left = deadline - clock.monotonic()
                if left <= 0:
                    raise LockedError(path=paths.given, owner=_owner(fd), seconds=timeout)
            finally:
                if taken is None:
                    fs.close(fd)
            clock.sleep(min(wait, left))
            wait = min(wait * 2, _LONGEST_WAIT)

    def check(self) -> None:
        """Raise ForkedError in a forked child, ClosedError after `release`."""
        if os.getpid() != self._pid:
            raise ForkedError(path=self.path)
        if self.fd < 0:
            raise ClosedError(path=self.path)

    def release(self) -> None:
        """Free the lock. Does nothing a second time, or in a forked child."""
        if self.fd >= 0 and os.getpid() == self._pid:
            fd, self.fd = self.fd, -1
            del _held[fd]
            fs.close(fd)

    def __enter__(self) -> StoreLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def owner(paths: StorePaths) -> str | None:
    """Who holds the store's lock now, or None if nobody does. Creates and changes nothing.

    Tests a shared lock for an instant, so a writer that tries at that very moment waits for one more round.
    """
    fd = fs.open_existing(paths.lock, fs.RDONLY | fs.NOFOLLOW)
    if fd is None:
        return None
    try:
        return None if fs.flock(fd, exclusive=False) else _owner(fd)
    finally:
        fs.close(fd)


def _open(path: str, real: str) -> int:
    """The lock file, made with the mode of the store if it is not there."""
    while True:
        fd = fs.open_existing(path, fs.RDWR | fs.NOFOLLOW)
        if fd is None:
            fd = fs.open_new(path, fs.stat(real))
        if fd is not None:
            return fd


def _owner_line(command: str | None) -> bytes:
    """`pid N since RFC 3339 time: command`, padded to a fixed length.

    Of the arguments only the verb is kept: others may hold a memory's text, which must not outlive a purge here.
    """
    from time import gmtime, strftime

    if command is None:
        program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
        command = f"{program} {_verb(sys.argv)}".rstrip()
    line = f"pid {os.getpid()} since {strftime('%Y-%m-%dT%H:%M:%SZ', gmtime(clock.now()))}: {one_line(command)}"
    return line.encode("ascii", "backslashreplace")[: _LINE - 1].ljust(_LINE - 1) + b"\n"


def _verb(arguments: list[str]) -> str:
    """The first word of a command line that is neither an option nor can be an option's value."""
    for before, word in itertools.pairwise(arguments):
        if word[:1] != "-" and (before[:1] != "-" or "=" in before or before is arguments[0]):
            return word[:20] if word.isascii() and word.replace("-", "").isalpha() else ""
    return ""


def _owner(fd: int) -> str:
    """The owner line of a lock file somebody else holds, safe to print."""
    text = fs.pread(fd, _LINE, 0).decode("ascii", "backslashreplace").strip("\0 \n")
    return one_line(text) or "another process"


def _after_fork_in_child() -> None:
    for fd in list(_held):
        fs.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
