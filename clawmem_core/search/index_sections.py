"""Checked access to the sections of an index in memory or mapped from a file. Loaded by one-shot commands.

Invariant: no byte of a section is handed out before the checksum of its page was compared, once for each page; the int8
vectors (`raw_rows`) are the exception, their users compare fingerprints. Every failure is UnusableIndex.
"""

from __future__ import annotations

import zlib

from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import UnusableIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_core.search.index_format import Buffer, Header, Section

_UNSIGNED: dict[int, Any] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FORMATS: dict[str, Any] = {
    "prev": "i", "next": "i", "sesrow": "i", "fp": "i", "time": "d", "act": "f", "norm": "f", "id": "q", "himp": "b",
}  # fmt: skip


class Sections:
    """The sections of one index. Raises UnusableIndex when header, table or checksums do not fit together."""

    __slots__ = ("_columns", "_opened", "_seen", "_sums", "data", "header", "table")

    def __init__(self, data: Any) -> None:
        self.data = memoryview(data)
        self.header: Header = form.Header.unpack(self.data)
        header = self.header
        if header.pages_offset + 4 * header.pages != len(self.data):
            raise UnusableIndex("cut short")
        sums = self.data[header.pages_offset :]
        if header.pages != -(-header.pages_offset // form.PAGE) or zlib.crc32(sums) != header.pages_crc:
            raise UnusableIndex("damaged checksums")
        self._sums = sums.cast("I")
        self._seen = bytearray(header.pages)
        self._columns: dict[tuple[str, int], memoryview] = {}
        self._opened: dict[tuple[str, int], tuple[int, int, memoryview]] = {}  # offset, width, values
        end = header.table_offset + form.table_size(header.sections)
        if end > header.pages_offset:
            raise UnusableIndex("damaged section table")
        self.check(header.table_offset, end)
        self.table = form.unpack_table(self.data[header.table_offset : end], header.sections, header.table_offset)

    def close(self) -> None:
        """Let go of the memory."""
        for view in (*self._columns.values(), *(view for _, _, view in self._opened.values())):
            view.release()
        self._columns.clear()
        self._opened.clear()
        self._sums.release()
        self.data.release()

    def check(self, start: int, stop: int) -> None:
        """Compare the checksums of the pages of bytes start..stop that were not looked at yet."""
        first, last = start // form.PAGE, (stop - 1) // form.PAGE + 1
        seen = self._seen
        page = seen.find(0, first, last)
        while page >= 0:
            end = seen.find(1, page, last)
            self._compare(page, last if end < 0 else end)
            page = seen.find(0, page + 1, last)

    def _compare(self, first: int, last: int) -> None:
        """Compare the checksums of pages first..last."""
        crc, data, page = zlib.crc32, self.data, form.PAGE
        starts = [first * page or form.HEADER_SIZE, *range((first + 1) * page, last * page, page)]
        ends = [*starts[1:], min(last * page, self.header.pages_offset)]
        sums = [crc(data[low:high]) for low, high in zip(starts, ends, strict=True)]
        expected = self.checksums(first, last - first)
        if sums != expected:
            wrong = next(at for at in range(len(sums)) if sums[at] != expected[at])
            raise UnusableIndex(f"damaged page {first + wrong}")
        self._seen[first:last] = b"\1" * (last - first)

    def checksums(self, first: int, count: int) -> list[int]:
        """The recorded checksums of some pages."""
        found: list[int] = self._sums[first : first + count].tolist()
        return found

    def section(self, name: str, segment: int = 0) -> Section | None:
        """Where a section lies, or None."""
        return self.table.get((name, segment))

    def length(self, name: str, segment: int = 0) -> int:
        """Values in a section; 0 if there is none."""
        section = self.table.get((name, segment))
        return 0 if section is None else section.length // section.width

    def column(self, name: str, segment: int = 0) -> memoryview | None:
        """All values of a section, checked whole; None if there is none."""
        key = (name, segment)
        found = self._columns.get(key)
        if found is None:
            section = self.table.get(key)
            if section is None:
                return None
            if section.length:
                self.check(section.offset, section.offset + section.length)
            found = self._columns[key] = self._view(name, section)
        return found

    def _view(self, name: str, section: Section) -> memoryview:
        data = self.data[section.offset : section.offset + section.length]
        found: memoryview = data.cast(_FORMATS.get(name) or _UNSIGNED[section.width])
        return found

    def _open(self, name: str, segment: int) -> tuple[int, int, memoryview]:
        section = self.table.get((name, segment))
        if section is None:
            raise UnusableIndex(f"section {name} is missing")
        found = self._opened[name, segment] = section.offset, section.width, self._view(name, section)
        return found

    def raw(self, name: str, segment: int = 0) -> memoryview:
        """All values of a section that is there, unchecked."""
        return (self._opened.get((name, segment)) or self._open(name, segment))[2]

    def values(self, name: str, start: int, stop: int, segment: int = 0) -> memoryview:
        """Values start..stop of a section that is there."""
        offset, width, view = self._opened.get((name, segment)) or self._open(name, segment)
        first, last = offset + start * width, offset + stop * width
        if first < last and self._seen.find(0, first // form.PAGE, (last - 1) // form.PAGE + 1) >= 0:
            self.check(first, last)
        return view[start:stop]

    def value(self, name: str, at: int, default: Any, segment: int = 0) -> Any:
        """One value, or the default where the section was left out."""
        opened = self._opened.get((name, segment))
        if opened is None:
            if (name, segment) not in self.table:
                return default
            opened = self._open(name, segment)
        offset, width, view = opened
        start = offset + at * width
        if not self._seen[start // form.PAGE]:
            self.check(start, start + width)
        return view[at]

    def string(self, name: str, at: int, segment: int = 0) -> bytes:
        """String `at` of a table or blob `name` with its offsets `<name>.o`."""
        start, stop = self.values(f"{name}.o", at, at + 2, segment)
        return bytes(self.values(name, start, stop, segment))

    def blob(self, name: str) -> Buffer:
        """All bytes of a section; b"" if there is none."""
        found = self.column(name)
        return b"" if found is None else found
