"""Writes the sections of an index file one after the other, with page checksums on the way.

Invariants: sections are 64-aligned and written once, front to back; the header goes first into the file and last onto
the disk, so a file cut short has no valid header or not its full length.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import Header, Section, Table
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile

GATHERED = 1 << 20  # bytes collected before they are written


class Sink(Protocol):
    """Where the bytes go."""

    def append(self, data: memoryview) -> None: ...
    def set_start(self, data: bytes) -> None: ...


class MemorySink:
    """Bytes in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def append(self, data: memoryview) -> None:
        """Add to the end."""
        self.data += data

    def set_start(self, data: bytes) -> None:
        """Replace the first bytes."""
        self.data[: len(data)] = data


class FileSink:
    """A temporary file that becomes the index."""

    def __init__(self, file: AtomicFile) -> None:
        self.file = file
        self._waiting = bytearray()

    def append(self, data: memoryview) -> None:
        """Add to the end."""
        if len(self._waiting) + len(data) > GATHERED:
            self._flush()
        if len(data) > GATHERED:
            self.file.write(data)
        else:
            self._waiting += data

    def _flush(self) -> None:
        if self._waiting:
            self.file.write(self._waiting)
            self._waiting = bytearray()

    def set_start(self, data: bytes) -> None:
        """Replace the first bytes; nothing is appended after it."""
        self._flush()
        fs.pwrite(self.file.fd, data, 0)


class IndexFile:
    """An index file in the making: `section`/`write` or `put` for each section, then `finish`.

    `segments`: posting segments so far; `head_ranges`: first row and row after the last of those with head tables.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.table: Table = {}
        self.segments = 0
        self.head_ranges: dict[int, tuple[int, int]] = {}
        self._at = 0
        self._width = 1
        self._crc = 0  # of the page that is not full yet
        self._sums: list[int] = []
        self._append(memoryview(bytes(form.HEADER_SIZE)), counted=False)

    @contextmanager
    def section(self, name: str, segment: int = 0) -> Iterator[None]:
        """What is written inside is this section. Names have at most eight characters."""
        if len(name) > 8:
            raise ValueError(name)
        start, self._width = self._align(), 1
        yield
        self.table[name, segment] = Section(start, self._at - start, self._width)

    def write(self, data: bytes | bytearray | memoryview | npt.NDArray[Any]) -> None:
        """Bytes of the open section; an array is written little-endian, row by row."""
        if isinstance(data, np.ndarray):
            self._width = data.itemsize
            if not data.size:
                return
            data = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
        self._append(memoryview(data).cast("B"))

    def put(self, name: str, data: bytes | bytearray | memoryview | npt.NDArray[Any], segment: int = 0) -> None:
        """A whole section."""
        with self.section(name, segment):
            self.write(data)

    def finish(self, header: Header) -> None:
        """Write section table, page checksums and header."""
        table = form.pack_table(self.table)
        header.sections, header.table_offset = len(self.table), self._align()
        self._append(memoryview(table))
        header.pages_offset = self._at
        if self._at % form.PAGE:
            self._sums.append(self._crc)
        sums = np.array(self._sums, "<u4").tobytes()
        header.pages, header.pages_crc = len(self._sums), zlib.crc32(sums)
        self.sink.append(memoryview(sums))
        self.sink.set_start(header.pack())

    def _align(self) -> int:
        self._append(memoryview(bytes(-self._at % form.ALIGN)))
        return self._at

    def _append(self, data: memoryview, counted: bool = True) -> None:
        self.sink.append(data)
        at, size = 0, len(data)
        room = -self._at % form.PAGE
        self._at += size
        if not counted:
            return
        if room:
            at = min(room, size)
            self._crc = zlib.crc32(data[:at], self._crc)
            if at < room:
                return
            self._sums.append(self._crc)
        crc, page = zlib.crc32, form.PAGE
        whole = at + (size - at) // page * page
        self._sums.extend([crc(data[start : start + page]) for start in range(at, whole, page)])
        self._crc = crc(data[whole:])


def commit(file: AtomicFile) -> None:
    """Put a finished index in place, without waiting for the disk: what a power loss tears, the checksums tell."""
    fs.replace(file.temp, file.target)
