"""Keeping damaged logs: they leave the store's way, but not the disk.

Invariant: before a log is replaced or cut because its bytes are not understood, those bytes lie durably under a name of
their own, `<store>.wal.corrupt-<UTC microseconds>-<random>`. A crash in between never piles up copies.
"""

from __future__ import annotations

from clawmem_core.storage import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_core.storage.paths import StorePaths


def keep(paths: StorePaths, fd: int) -> str:
    """Give the log open at `fd` a second, durable name; returns it. The caller then replaces the log by rename.

    The name is a hard link, so nothing is copied and the bytes are exactly those that were found; a second call for the
    same file finds the name of the first. Raises StorageError.
    """
    fs.fsync(fd)
    for name in paths.quarantined():
        if fs.same_file(fd, name):
            return name
    while True:
        name = paths.quarantine_name()
        if fs.link(paths.log, name):
            fs.sync_directory(paths.directory)
            return name
