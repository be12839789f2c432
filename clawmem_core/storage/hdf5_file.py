"""HDF5 through our own file object, over the storage shim (spec/log-v4.md § 5).

h5py reports success in some cases where its file object raised while writing, and a full disk can crash the interpreter
when HDF5 writes to a path by itself. So a write that fails is recorded, HDF5 is left to finish on whatever it has, and
the error is raised after the file is closed. A read that fails in a file open for reading raises at once, which h5py
passes on: bytes that could not be read are never taken for zeros. HDF5 1.14 walks for ever in a damaged global heap, so
such a heap is shown to it as no heap at all.

Invariants: no read or write fails without StorageError, and it names the file as the caller knows it; whatever h5py
raises on a damaged file leaves here as DamagedError or NotAStoreError, naming the file and the object.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py

from clawmem_core.errors import ClawmemError, DamagedError, NotAStoreError, StorageError
from clawmem_core.storage import fs

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HEAP = b"GCOL"  # signature of a global heap collection, where strings of varying length lie
LEAST_HEAP = 4096
#: what every HDF5 since 1.10 reads; headers of this version carry checksums
VERSIONS = ("v110", "v110")
#: what h5py raises for a file that is not what it says; MemoryError: a length nobody can mean
FAULTS = (OSError, KeyError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError, AttributeError)


def _endless(data: bytes) -> bool:
    """Whether this is a global heap collection in which HDF5 would walk for ever: an object that takes no room.

    HDF5 file format § III.E: 16 bytes of head, then objects: u16 index, u16 references, 4 bytes, u64 size, and the data
    padded to 8 bytes. Index 0 is the free space at the end, whose size covers its head.
    """
    version, size = data[4:8], int.from_bytes(data[8:16], "little")
    if version != b"\1\0\0\0" or size < LEAST_HEAP:
        return False
    at, end = 16, min(size, len(data))
    while at + 16 <= end:
        length = int.from_bytes(data[at + 8 : at + 16], "little")
        if data[at : at + 2] == b"\0\0":
            return length == 0
        at += 16 + (length + 7) // 8 * 8
    return False


class _FileObject:
    """What HDF5 reads from and writes to: positions over one descriptor. `error` is the first failure, or None."""

    def __init__(self, fd: int, path: str, *, writing: bool) -> None:
        self.fd, self.path, self.writing = fd, path, writing
        self.error: StorageError | None = None
        self._at = self._size = 0
        try:
            self._size = fs.fstat(fd).st_size
        except StorageError as error:
            raise self._failed(error) from None

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def readinto(self, buffer: Any) -> int:
        wanted = len(buffer)
        data = b""
        try:
            data = fs.pread(self.fd, wanted, self._at)
        except StorageError as error:
            known = self._failed(error)
            if not self.writing:
                raise known from None
        buffer[: len(data)] = data
        if data[:4] == HEAP and _endless(data):
            buffer[:4] = bytes(4)  # so that HDF5 refuses it
        if len(data) < wanted and self.error:
            buffer[len(data) :] = bytes(wanted - len(data))
            return wanted
        return len(data)

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                fs.pwrite(self.fd, data, self._at)
            except StorageError as error:
                self._failed(error)
        self._at += len(data)
        self._size = max(self._size, self._at)
        return len(data)

    def truncate(self, size: int) -> int:
        if self.error is None:
            try:
                fs.truncate(self.fd, size)
            except StorageError as error:
                self._failed(error)
        self._size = size
        return size

    def flush(self) -> None:
        """Nothing is buffered here."""

    def _failed(self, error: StorageError) -> StorageError:
        """Keep the first failure, under the name the caller knows the file by (not that of a temporary file)."""
        if self.error is None:
            self.error = StorageError(path=self.path, detail=error.fields["detail"], errno=error.fields["errno"])
        return self.error


@contextmanager
def writing(fd: int, path: str) -> Iterator[h5py.File]:
    """A new HDF5 file in the empty file `fd`; `path` is the name that errors carry.

    Raises StorageError, after HDF5 has closed, when any read or write failed; an error of the body otherwise.
    """
    raw = _FileObject(fd, path, writing=True)
    try:
        with h5py.File(raw, "w", libver=VERSIONS) as file:
            yield file
    except (ClawmemError, *FAULTS):
        if raw.error:
            raise raw.error from None
        raise
    if raw.error:
        raise raw.error


def open_for_reading(fd: int, path: str) -> h5py.File:
    """The HDF5 file in descriptor `fd`, which must stay open as long as it is used.

    Raises NotAStoreError where there is no HDF5 file, DamagedError where there was one, StorageError.
    """
    raw = _FileObject(fd, path, writing=False)
    if raw.read(len(SIGNATURE)) != SIGNATURE:
        raise NotAStoreError(path=path, detail="it is no HDF5 file")
    try:
        return h5py.File(raw, "r")
    except FAULTS as error:
        raise DamagedError(path=path, detail=_reason(error)) from None


@contextmanager
def reading(path: str, name: str) -> Iterator[None]:
    """Around every access to an object of a file: what h5py raises becomes DamagedError naming file and object."""
    try:
        yield
    except FAULTS as error:
        raise DamagedError(path=path, detail=f"{name}: {_reason(error)}") from None


def find(group: h5py.Group, name: str, path: str) -> Any:
    """The object of this name in a group, None if there is none. Raises DamagedError where it cannot be opened."""
    with reading(path, f"{group.name.rstrip('/')}/{name}"):
        return group[name] if name in group else None


def _reason(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
