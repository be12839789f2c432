"""A private folder for work in progress.

Invariants: it is readable by its owner only and gone, with all it holds, when the work ends, however it ends; a folder
whose maker was killed is told from one in use by its lock and can be removed by the next run.
"""

from __future__ import annotations

import os
from types import TracebackType

from clawmem_core import clock
from clawmem_core.errors import StorageError
from clawmem_core.storage import fs

_MARK = ".migrate-"


class Workspace:
    """A folder that exists for the length of a `with` block."""

    def __init__(self, prefix: str) -> None:
        while True:
            self.folder = f"{prefix}{_MARK}{os.getpid()}-{clock.random_bytes(6).hex()}"
            if fs.mkdir(self.folder):
                break
        self._fd = fs.open_file(self.folder, fs.RDONLY | os.O_DIRECTORY)
        fs.flock(self._fd)

    @classmethod
    def beside(cls, path: str) -> Workspace:
        """A folder on the file system of `path`; removes folders there whose maker is gone."""
        directory, name = os.path.split(path)
        prefix = os.path.join(directory, f".{name}")
        for found in fs.listdir(directory):
            if found.startswith(f".{name}{_MARK}"):
                _remove_stale(os.path.join(directory, found))
        return cls(prefix)

    @classmethod
    def temporary(cls) -> Workspace:
        """A folder for copies of a source, where TMPDIR says."""
        return cls(os.path.join(os.environ.get("TMPDIR") or "/tmp", "clawmem"))

    def path(self, name: str) -> str:
        """A file of this folder."""
        return os.path.join(self.folder, name)

    def copy_from(self, source: int, target: str) -> None:
        """Copy an open file to a new file of this folder."""
        fd = fs.open_new(target)
        if fd is None:
            raise StorageError(path=target, detail="exists")
        try:
            fs.copy_range(source, fd, fs.fstat(source).st_size)
        finally:
            fs.close(fd)

    def close(self) -> None:
        """Remove the folder."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _empty(self.folder)
            fs.close(fd)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:
                raise


def _empty(folder: str) -> None:
    for name in fs.listdir(folder):
        fs.unlink(os.path.join(folder, name))
    fs.rmdir(folder)


def _remove_stale(folder: str) -> None:
    """Remove a folder whose maker is gone; one in use is left alone."""
    try:
        fd = fs.open_file(folder, fs.RDONLY | os.O_DIRECTORY | fs.NOFOLLOW)
    except StorageError:
        return  # no folder, or gone meanwhile
    try:
        if fs.flock(fd):
            _empty(folder)
    finally:
        fs.close(fd)
