"""Replace a file whole: write a temporary file beside it, sync it, rename it, sync the directory.

Invariants: the target's name always leads to a complete file, the old one or the new one; a failure leaves the old one
and no temporary file. A temporary file is flocked by its maker, so a stale one (its maker died) is told from one in use
and can be removed by anybody.
"""

from __future__ import annotations

import os

from clawmem_core.errors import StorageError
from clawmem_core.storage import fs
from clawmem_core.storage.paths import SIDECARS, temp_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from clawmem_core.storage.paths import StorePaths


class AtomicFile:
    """The next version of `target`. Write to `fd` (or by `write`), then `commit` or `commit_new`.

    Leaving the `with` block without a commit removes the temporary file. `like`: file whose mode and owner the new one
    takes (0600 without). Raises StorageError.

    >>> with AtomicFile(path) as file:
    ...     file.write(data)
    ...     file.commit()
    """

    __slots__ = ("fd", "size", "target", "temp")

    def __init__(self, target: str, like: os.stat_result | None = None) -> None:
        self.target = target
        self.size = 0
        while True:
            self.temp = temp_name(target)
            fd = fs.open_new(self.temp, like)
            if fd is None:
                continue
            self.fd = -1
            try:
                if fs.flock(fd) and fs.same_file(fd, self.temp):  # not taken for stale before it was flocked
                    self.fd = fd
                    return
            finally:
                if self.fd < 0:
                    fs.unlink(self.temp)
                    fs.close(fd)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append to what `write` has written so far."""
        fs.pwrite(self.fd, data, self.size)
        self.size += len(data)

    def commit(self) -> None:
        """Make it durable under the target's name, in place of whatever is there."""
        fs.fsync(self.fd)
        fs.replace(self.temp, self.target)
        self._done()

    def commit_new(self) -> bool:
        """Make it durable under the target's name if that is free; otherwise change nothing and return False."""
        fs.fsync(self.fd)
        if not fs.link(self.temp, self.target):
            return False
        fs.unlink(self.temp)
        self._done()
        return True

    def _done(self) -> None:
        fs.sync_directory(os.path.dirname(self.target) or ".")
        self._close()

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        fs.close(fd)

    def discard(self) -> None:
        """Remove the temporary file. Does nothing after a commit."""
        if self.fd >= 0:
            try:
                fs.unlink(self.temp)
            finally:
                self._close()

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.discard()
        except StorageError:
            if error is None:
                raise


def stale_temps(paths: StorePaths) -> list[str]:
    """Paths of the store's temporary files whose maker is gone. Changes nothing."""
    prefixes = tuple(f"{paths.name}{suffix}.tmp-" for suffix in ("", *SIDECARS))
    found = []
    for name in fs.listdir(paths.directory):
        if name.startswith(prefixes):
            path = os.path.join(paths.directory, name)
            fd = fs.open_existing(path, fs.RDONLY | fs.NOFOLLOW)
            if fd is not None:
                try:
                    if fs.flock(fd):
                        found.append(path)
                finally:
                    fs.close(fd)
    return found


def remove_stale_temps(paths: StorePaths) -> list[str]:
    """Remove the store's temporary files whose maker is gone; returns their paths."""
    return [path for path in stale_temps(paths) if fs.unlink(path)]
