"""A file system in memory behind the storage shim, whose power can fail.

What was written and not synced, and names that were changed in a directory not synced, survive a power loss in a random
combination: each pending write whole, not at all, as a prefix, or as any subset of its 512-byte sectors; each pending
change of a name or not. Nothing is kept longer or torn finer than a disk with a write cache may do it. One directory.
"""

from __future__ import annotations

import copy
import errno
import fcntl
import itertools
import mmap
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clawmem_core import clock
from clawmem_core.storage import fs

SECTOR = 512
DIRECTORY = "/simulated"


class PowerLoss(BaseException):
    """Raised by a test's hook in the middle of an operation; nothing of the product may catch it."""


class Inode:
    """A file: what programs see (`data`), what the medium has (`durable`), and the operations in between."""

    def __init__(self, number: int, mode: int) -> None:
        self.number, self.mode = number, mode
        self.data = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, bytes written) or (new length, None)

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Become what the medium may hold."""
        data = bytearray(self.durable)
        for offset, written in self.pending:
            if written is None:
                if rng.random() < 0.5:
                    data = data[:offset].ljust(offset, b"\0")
                continue
            for start, end in _surviving(rng, offset, len(written)):
                data.extend(bytes(max(0, end - len(data))))
                data[start:end] = written[start - offset : end - offset]
            if rng.random() < 0.3:
                data.extend(bytes(max(0, offset + len(written) - len(data))))  # the length was kept, the data was not
        self.data = data
        self.sync()


def _surviving(rng: random.Random, offset: int, length: int) -> list[tuple[int, int]]:
    """Byte ranges of one write that reach the medium."""
    end = offset + length
    edges = [offset, *range((offset // SECTOR + 1) * SECTOR, end, SECTOR), end]
    sectors = list(itertools.pairwise(edges))
    how = rng.randrange(4)
    if how == 0:
        return sectors
    if how == 1:
        return []
    if how == 2:
        return sectors[: rng.randrange(len(sectors) + 1)]
    return [sector for sector in sectors if rng.random() < 0.5]


Names = dict[str, Inode]
Image = tuple[Names, Names, list[list[tuple[str, Inode | None]]]]  # names, durable names, pending changes of names


class SimulatedLayer:
    """Takes the place of `fs.RealLayer`. `before(operation, path)` is called first by every one and may raise.

    `space`: bytes that may still be written before ENOSPC (the write that hits it is cut short), None for no limit.
    `counts`: calls by operation; `read_bytes`: bytes read.
    """

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.pending_names: list[list[tuple[str, Inode | None]]] = []
        self.open_files: dict[int, tuple[Inode | None, str]] = {}
        self.locks: dict[int, dict[int, bool]] = {}  # inode number -> {descriptor: exclusive}
        self.before: Callable[[str, str], None] = lambda operation, path: None
        self.space: int | None = None
        self.counts: dict[str, int] = {}
        self.read_bytes = 0
        self._next_fd, self._next_inode = 10_000, 1

    # ---------------------------------------------------------------- power

    def kill(self) -> None:
        """Every process dies; the system lives on, so nothing is lost."""
        self.open_files.clear()
        self.locks.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Every process dies, and the medium keeps what it likes of what was not synced."""
        self.kill()
        names = dict(self.durable_names)
        for change in self.pending_names:
            if rng.random() < 0.5:
                _apply(names, change)
        for inode in {inode.number: inode for inode in names.values()}.values():
            inode.lose_power(rng)
        self.names, self.durable_names, self.pending_names = names, dict(names), []

    def image(self) -> Image:
        """The disk and its cache as they are now, for `restore`."""
        return copy.deepcopy((self.names, self.durable_names, self.pending_names))

    def restore(self, image: Image) -> None:
        """Every process dies, and the disk and its cache are those of an image again."""
        self.kill()
        self.names, self.durable_names, self.pending_names = copy.deepcopy(image)

    def _call(self, operation: str, path: str) -> None:
        self.counts[operation] = self.counts.get(operation, 0) + 1
        self.before(operation, path)

    def _change(self, *change: tuple[str, Inode | None]) -> None:
        _apply(self.names, list(change))
        self.pending_names.append(list(change))

    def _file(self, fd: int) -> Inode:
        inode = self.open_files[fd][0]
        assert inode is not None, "a file operation on a directory"
        return inode

    def _named(self, path: str) -> Inode:
        if path not in self.names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.names[path]

    # ---------------------------------------------------------------- the layer

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._call("open", path)
        inode: Inode | None = None
        if path != DIRECTORY:
            if path in self.names:
                if flags & os.O_EXCL:
                    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            elif flags & os.O_CREAT:
                self._change((path, Inode(self._next_inode, stat.S_IFREG | mode)))
                self._next_inode += 1
            inode = self._named(path)
        self._next_fd += 1
        self.open_files[self._next_fd] = (inode, path)
        return self._next_fd

    def close(self, fd: int) -> None:
        inode, path = self.open_files.pop(fd)
        self._call("close", path)
        if inode is not None:
            self.locks.get(inode.number, {}).pop(fd, None)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._call("pread", self.open_files[fd][1])
        data = bytes(self._file(fd).data[offset : offset + size])
        self.read_bytes += len(data)
        return data

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._call("pwrite", self.open_files[fd][1])
        inode, written = self._file(fd), bytes(data)
        if self.space is not None:
            if written and not self.space:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = written[: self.space]
            self.space -= len(written)
        inode.data.extend(bytes(max(0, offset + len(written) - len(inode.data))))
        inode.data[offset : offset + len(written)] = written
        inode.pending.append((offset, written))
        return len(written)

    def ftruncate(self, fd: int, size: int) -> None:
        self._call("ftruncate", self.open_files[fd][1])
        inode = self._file(fd)
        inode.data = inode.data[:size].ljust(size, b"\0")
        inode.pending.append((size, None))

    def fsync(self, fd: int) -> None:
        inode, path = self.open_files[fd]
        self._call("fsync", path)
        if inode is None:
            self.durable_names, self.pending_names = dict(self.names), []
        else:
            inode.sync()

    def fdatasync(self, fd: int) -> None:
        self._call("fdatasync", self.open_files[fd][1])
        self._file(fd).sync()

    def replace(self, source: str, target: str) -> None:
        self._call("replace", target)
        self._change((source, None), (target, self._named(source)))

    def link(self, source: str, target: str) -> None:
        self._call("link", target)
        if target in self.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._change((target, self._named(source)))

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        self._named(path)
        self._change((path, None))

    def mkdir(self, path: str, mode: int) -> None:
        raise OSError(errno.ENOSYS, "one directory only")

    def listdir(self, path: str) -> list[str]:
        self._call("listdir", path)
        return [os.path.basename(name) for name in self.names]

    def stat(self, path: str) -> os.stat_result:
        self._call("stat", path)
        return _described(None if path == DIRECTORY else self._named(path))

    lstat = stat

    def fstat(self, fd: int) -> os.stat_result:
        return _described(self.open_files[fd][0])

    def realpath(self, path: str) -> str:
        return path

    def fchmod(self, fd: int, mode: int) -> None:
        self._file(fd).mode = stat.S_IFREG | mode

    def fchown(self, fd: int, user: int, group: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def flock(self, fd: int, how: int) -> None:
        held = self.locks.setdefault(self._file(fd).number, {})
        exclusive = bool(how & fcntl.LOCK_EX)
        if how & fcntl.LOCK_UN:
            held.pop(fd, None)
        elif any(other != fd and (exclusive or shut) for other, shut in held.items()):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        else:
            held[fd] = exclusive

    def mmap(self, fd: int, size: int) -> mmap.mmap:
        mapped = mmap.mmap(-1, size)
        mapped[:] = bytes(self._file(fd).data[:size])
        return mapped

    def copy_range(self, source: int, target: int, count: int, source_offset: int, target_offset: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def _apply(names: dict[str, Inode], change: list[tuple[str, Inode | None]]) -> None:
    for name, inode in change:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _described(inode: Inode | None) -> os.stat_result:
    """A stat_result. All times are 0: who tells files apart by their times would see none differ."""
    if inode is None:
        fields = (stat.S_IFDIR | 0o700, 0, 1, 2, os.getuid(), os.getgid(), 0, 0, 0, 0)
    else:
        fields = (inode.mode, inode.number, 1, 1, os.getuid(), os.getgid(), len(inode.data), 0, 0, 0)
    return os.stat_result(fields, {"st_atime_ns": 0, "st_mtime_ns": 0, "st_ctime_ns": 0})


@contextmanager
def simulated(seed: int = 0) -> Iterator[SimulatedLayer]:
    """Run the storage shim on a fresh simulated file system, with random names and ids that follow from the seed.

    The only directory is DIRECTORY.
    """
    layer = SimulatedLayer()
    real, fs.layer = fs.layer, layer
    random_bytes, clock.random_bytes = clock.random_bytes, random.Random(seed).randbytes
    try:
        yield layer
    finally:
        fs.layer, clock.random_bytes = real, random_bytes
