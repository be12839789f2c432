"""The names of a store's files.

Invariants: symlinks are resolved once, here; every other file is named after the full real name (`m.h5.wal`,
`m.hdf5.wal`: two stores never share one) and lies beside the real file, so a rename never crosses a file system.
"""

from __future__ import annotations

import os

from clawmem_core import clock
from clawmem_core.errors import NoStoreError, NotAStoreError, UsageError
from clawmem_core.storage import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIDECARS = (".wal", ".lock", ".idx", ".keys", ".ann")


class StorePaths:
    """All names of one store.

    `given`: as the caller wrote it, for messages. `real`: the HDF5 file, symlinks resolved. `log`, `lock`, `index`,
    `keys`, `ann`: the files beside it. Raises UsageError for a path no file can have.
    """

    __slots__ = ("ann", "directory", "given", "index", "keys", "lock", "log", "name", "real")

    def __init__(self, path: str | bytes | os.PathLike[Any]) -> None:
        self.given = os.fsdecode(path)
        if not self.given or "\0" in self.given:
            raise UsageError(detail="a store path is empty or holds a NUL character")
        self.real = fs.realpath(self.given)
        self.directory, self.name = os.path.split(self.real)
        self.log, self.lock, self.index, self.keys, self.ann = (self.real + suffix for suffix in SIDECARS)

    def require_file(self) -> None:
        """Raises NoStoreError where there is nothing, NotAStoreError where no regular file is."""
        if fs.is_regular(self.real):
            return
        if not fs.exists(self.real):
            raise NoStoreError(path=self.given)
        detail = "it is a directory" if fs.is_directory(self.real) else "it is no regular file"
        raise NotAStoreError(path=self.given, detail=detail)

    def quarantine_name(self) -> str:
        """A new name for a damaged log: `<store>.wal.corrupt-<UTC microseconds>-<random>`."""
        return f"{self.log}.corrupt-{clock.now_us()}-{clock.random_bytes(4).hex()}"

    def quarantined(self) -> list[str]:
        """Paths of the quarantined logs of this store, oldest first."""
        prefix = os.path.basename(self.log) + ".corrupt-"
        return [os.path.join(self.directory, name) for name in fs.listdir(self.directory) if name.startswith(prefix)]


def temp_name(path: str) -> str:
    """A new name beside `path` for its next version: `<path>.tmp-<pid>-<random>`."""
    return f"{path}.tmp-{os.getpid()}-{clock.random_bytes(6).hex()}"
