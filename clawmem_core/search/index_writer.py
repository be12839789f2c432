"""Writes the sections of an index file one after the other, with page checksums on the way.

Invariants: sections are 64-aligned and written once, front to back; the header goes first into the file and last onto
the disk, so a file cut short has no valid header or not its full length.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import Header, Section, Table
from clawmem_core.search.index_sections import Sections
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile

GATHERED = 1 << 20  # bytes collected before they are written


class Source(Protocol):
    """An index that sections are copied from: checked access and its open file."""

    sections: Sections

    @property
    def fd(self) -> int: ...


class Sink(Protocol):
    """Where the bytes go."""

    def append(self, data: memoryview) -> None: ...
    def append_from(self, fd: int, offset: int, size: int) -> None: ...
    def set_start(self, data: bytes) -> None: ...


class MemorySink:
    """Bytes in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def append(self, data: memoryview) -> None:
        """Add to the end."""
        self.data += data

    def append_from(self, fd: int, offset: int, size: int) -> None:
        """Add bytes of a file to the end."""
        self.data += fs.pread(fd, size, offset)

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

    def append_from(self, fd: int, offset: int, size: int) -> None:
        """Add bytes of a file to the end."""
        self._flush()
        if fs.copy_range(fd, self.file.fd, size, offset, self.file.size) != size:
            raise form.UnusableIndex("cut short")
        self.file.size += size

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
        start, self._width = self._align(form.PAGE if name in form.PAGED else form.ALIGN), 1
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
        header.sections, header.table_offset = len(self.table), self._align(form.ALIGN)
        self._append(memoryview(table))
        header.pages_offset = self._at
        if self._at % form.PAGE:
            self._sums.append(self._crc)
        sums = np.array(self._sums, "<u4").tobytes()
        header.pages, header.pages_crc = len(self._sums), zlib.crc32(sums)
        self.sink.append(memoryview(sums))
        self.sink.set_start(header.pack())

    def copy(self, source: Source, name: str, segment: int = 0, patches: Mapping[int, bytes] | None = None) -> None:
        """Bytes of a section of another index, some of them replaced (offset within the section -> bytes).

        Whole pages that do not change keep their checksums. Raises UnusableIndex where one of them does not hold.
        """
        section = source.sections.section(name, segment)
        if section is None:
            return
        self._width = section.width
        dirty: dict[int, list[tuple[int, bytes]]] = {}
        for offset, data in sorted(patches.items()) if patches else ():
            for page in range(offset // form.PAGE, (offset + len(data) - 1) // form.PAGE + 1):
                dirty.setdefault(page, []).append((offset - page * form.PAGE, data))
        whole = section.length // form.PAGE
        if section.offset % form.PAGE or self._at % form.PAGE:
            raise form.UnusableIndex("of another layout")
        page = 0
        for changed in sorted(page for page in dirty if page < whole):
            self._copy_pages(source, section.offset + page * form.PAGE, changed - page)
            self._copy_patched(source, section, changed, dirty[changed])
            page = changed + 1
        self._copy_pages(source, section.offset + page * form.PAGE, whole - page)
        if section.length % form.PAGE:
            self._copy_patched(source, section, whole, dirty.get(whole, []))

    def _copy_pages(self, source: Source, offset: int, count: int) -> None:
        """Whole pages with their checksums."""
        if count:
            source.sections.check(offset, offset + count * form.PAGE)
            self.sink.append_from(source.fd, offset, count * form.PAGE)
            self._sums += source.sections.checksums(offset // form.PAGE, count)
            self._at += count * form.PAGE
            self._crc = 0

    def _copy_patched(self, source: Source, section: Section, page: int, patches: Sequence[tuple[int, bytes]]) -> None:
        """One page, perhaps the last and short, with some bytes replaced (offset within the page)."""
        start = section.offset + page * form.PAGE
        stop = min(start + form.PAGE, section.offset + section.length)
        source.sections.check(start, stop)
        data = bytearray(source.sections.data[start:stop])
        for offset, new in patches:
            low, high = max(0, offset), min(len(data), offset + len(new))
            data[low:high] = new[low - offset : high - offset]
        self._append(memoryview(data))

    def _align(self, size: int) -> int:
        self._append(memoryview(bytes(-self._at % size)))
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
