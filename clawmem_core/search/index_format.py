"""The derived index file `<store>.idx`: header, sections, checksums (docs/format.md § 6). Loaded by one-shot commands.

    header (512 B) | sections, 64- or 4096-aligned | section table | u32 CRC-32 of every 4 KiB page before it

Invariants: the file is a pure function of the checkpointed columns; it belongs to one checkpoint of one store and to an
HDF5 file of one size and modification time; every byte is covered by a checksum, which a reader checks before it uses
the byte (int8 vectors: by a fingerprint per row). Nothing in it is the only copy of anything.

A section is named by eight ASCII characters and a segment number: 0 for columns over all rows, 1, 2, … for the posting
segments. A column that would hold nothing but its default is left out.
"""

from __future__ import annotations

import struct
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clawmem_core.model import StoreConfig

    Buffer = bytes | bytearray | memoryview

MAGIC = b"CLAWMIDX"
MAJOR = 1
HEADER_SIZE = 512
PAGE = 4096
ALIGN = 64
PAGED = frozenset(("vec", "text", "words", "rows", "tf", "htf", "himp"))  # sections that start at a page
CHUNK_ROWS = 1024  # rows of a chunk of /memory/embeddings

FLOAT16 = 1  # flags: the stored vectors are half precision

HAS_NO_VECTOR, IS_DELETED = 1, 2  # bits of the `flags` column

HEAD_TERMS = 64  # head terms of a segment; columns of its impact matrix
HEAD_FROM = 4096  # rows from which a segment has head tables
IMPACT_MAX = 2.2  # k1 + 1, the limit of a token's impact; stands for 127 in the impact matrix

_HEADER = struct.Struct("<8sHHI16s16s16sQIIQQqQ104sIIQQQQI")
_SECTION = struct.Struct("<8sIIQQ")
TOTALS = struct.Struct("<QQQQddddQQ")
SEGMENT = struct.Struct("<QQQQQd")
_SETTING = struct.Struct("<BHI")


class UnusableIndex(Exception):
    """The index cannot be used: missing, of another checkpoint, or damaged. The caller reads the HDF5 file instead.

    Never shown to a user as an error; its text says why, for `stats`.
    """


class Header:
    """What an index belongs to and where its parts are.

    `mark`: (log id, length, crc) of the applied log. `state`: 104 bytes (storage/log.py). `h5_id_offset`, `h5_size`,
    `h5_mtime_ns`: the HDF5 file and where in it the checkpoint id stands. `pages`: number of page checksums.
    """

    __slots__ = (
        "checkpoint_id", "dim", "flags", "generation", "h5_id_offset", "h5_mtime_ns", "h5_size", "mark", "pages",
        "pages_crc", "pages_offset", "rows", "sections", "state", "store_id", "table_offset",
    )  # fmt: skip

    def __init__(self) -> None:
        self.store_id = self.checkpoint_id = bytes(16)
        self.mark: tuple[bytes, int, int] = (bytes(16), 0, 0)
        self.flags = self.h5_id_offset = self.h5_size = self.h5_mtime_ns = self.generation = 0
        self.state = bytes(104)
        self.dim = self.rows = 0
        self.sections = self.table_offset = self.pages_offset = self.pages = self.pages_crc = 0

    def pack(self) -> bytes:
        """The 512 bytes of the header."""
        head = _HEADER.pack(
            MAGIC, MAJOR, 0, HEADER_SIZE, self.store_id, self.checkpoint_id, self.mark[0], self.mark[1], self.mark[2],
            self.flags, self.h5_id_offset, self.h5_size, self.h5_mtime_ns, self.generation, self.state, self.dim,
            self.sections, self.rows, self.table_offset, self.pages_offset, self.pages, self.pages_crc,
        )  # fmt: skip
        head = head.ljust(HEADER_SIZE - 4, b"\0")
        return head + struct.pack("<I", zlib.crc32(head))

    @classmethod
    def unpack(cls, data: Buffer) -> Header:
        """The header in `data`. Raises UnusableIndex."""
        if len(data) < HEADER_SIZE:
            raise UnusableIndex("cut short")
        head = bytes(data[:HEADER_SIZE])
        if head[:8] != MAGIC:
            raise UnusableIndex("not an index file")
        if zlib.crc32(head[:-4]) != struct.unpack_from("<I", head, HEADER_SIZE - 4)[0]:
            raise UnusableIndex("damaged header")
        found = cls()
        (_, major, _, _, found.store_id, found.checkpoint_id, log_id, length, crc, found.flags, found.h5_id_offset,
         found.h5_size, found.h5_mtime_ns, found.generation, found.state, found.dim, found.sections, found.rows,
         found.table_offset, found.pages_offset, found.pages, found.pages_crc) = _HEADER.unpack_from(head)  # fmt: skip
        if major != MAJOR:
            raise UnusableIndex("other version")
        if max(found.h5_id_offset, found.h5_size) >= 1 << 63:  # no file is so long
            raise UnusableIndex("damaged header")
        found.mark = (log_id, length, crc)
        return found


class Section:
    """Where a section lies, and the bytes of one of its values."""

    __slots__ = ("length", "offset", "width")

    def __init__(self, offset: int, length: int, width: int) -> None:
        self.offset, self.length, self.width = offset, length, width


Table = dict[tuple[str, int], Section]


def pack_table(table: Table) -> bytes:
    """The section table."""
    return b"".join(
        _SECTION.pack(name.encode("ascii"), segment, section.width, section.offset, section.length)
        for (name, segment), section in table.items()
    )


def unpack_table(data: Buffer, count: int, end: int) -> Table:
    """The section table; every section lies before `end`. Raises UnusableIndex."""
    if len(data) != count * _SECTION.size:
        raise UnusableIndex("damaged section table")
    table: Table = {}
    for name, segment, width, offset, length in _SECTION.iter_unpack(data):
        if offset + length > end or width not in (1, 2, 4, 8) or length % width:
            raise UnusableIndex("damaged section table")
        table[name.rstrip(b"\0").decode("ascii", "replace"), segment] = Section(offset, length, width)
    return table


def table_size(count: int) -> int:
    """Bytes of a table of `count` sections."""
    return count * _SECTION.size


def pack_settings(config: StoreConfig) -> bytes:
    """A store's settings, readable without a JSON parser.

    For each: u8 kind (0 text, 1 whole, 2 float, 3 flag), u16 and u32 lengths, name, value as text.
    """
    parts = []
    for name, value in config.as_dict().items():
        kind = 3 if isinstance(value, bool) else 1 if isinstance(value, int) else 2 if isinstance(value, float) else 0
        text = (str(int(value)) if kind == 3 else repr(value) if kind else str(value)).encode()
        parts.append(_SETTING.pack(kind, len(name), len(text)) + name.encode() + text)
    return b"".join(parts)


def unpack_settings(data: bytes) -> Mapping[str, Any]:
    """Settings by name. Raises UnusableIndex."""
    found: dict[str, Any] = {}
    at = 0
    try:
        while at < len(data):
            kind, name_size, size = _SETTING.unpack_from(data, at)
            at += _SETTING.size
            name = data[at : at + name_size].decode()
            text = data[at + name_size : at + name_size + size].decode()
            at += name_size + size
            found[name] = (str, int, float, lambda flag: flag == "1")[kind](text)
    except (struct.error, ValueError, IndexError):
        raise UnusableIndex("damaged settings") from None
    return found


def fingerprint_row(dim: int) -> bytes:
    """The fixed row of odd int8 values whose products with the vectors are their fingerprints.

    Odd, so that one changed bit (a change by a power of two below 256) always changes the product modulo 2^32.
    """
    return bytes(((7 + 74 * at) % 254 - 127 | 1) & 0xFF for at in range(dim))
