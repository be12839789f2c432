"""The ancestor's log, EHWL versions 1 and 2: read once, when a checkpoint takes its entries in.

Invariants: nothing is written; lengths are checked against the bytes that are there before anything is sliced; what is
handed out was whole and, in version 2, continues the SHA-256 chain. Reading stops at the first entry that is not; the
rest is reported, not guessed. Version 1 has no checksums at all.
"""

from __future__ import annotations

import struct
from zlib import crc32

from clawmem_core.contract.digest import sha256_digest
from clawmem_core.errors import NewerFormatError
from clawmem_core.storage import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_core.storage.log_format import Identity

MAGIC = b"EHWL"
HEADER_SIZE = 9  # magic, u8 version, u32 entry count (stale by design, not used)
_CHAIN_SIZE = 32
_SAVE, _TOMBSTONE, _ACTIVATION = 1, 2, 3
_PREFIX = struct.Struct("<Bd")
_U32 = struct.Struct("<I")


class LegacySave:
    """A record to append. `vector`: float32 values as bytes, may be empty; `timestamp`: seconds, as given."""

    __slots__ = ("chunk", "session_id", "source_channel", "tags", "timestamp", "vector")

    def __init__(
        self, timestamp: float, chunk: str, vector: bytes, source_channel: str, session_id: str, tags: str
    ) -> None:
        self.timestamp, self.chunk, self.vector = timestamp, chunk, vector
        self.source_channel, self.session_id, self.tags = source_channel, session_id, tags


class LegacyTombstone:
    """A record to delete, by its position at this point of the replay."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


class LegacyLog:
    """A parsed log. `entries`: in order; `end`: bytes that were understood; `size`: bytes of the file.

    `damage`: "" (all understood), "torn" (cut short: the ancestor drops that too) or what is wrong at `end`.
    """

    __slots__ = ("damage", "end", "entries", "size", "version")

    def __init__(self, version: int, size: int) -> None:
        self.version, self.size = version, size
        self.entries: list[LegacySave | LegacyTombstone] = []
        self.end = HEADER_SIZE
        self.damage = ""


class _Torn(Exception):
    """The bytes end inside an entry."""


class _Cursor:
    """Reads fields off the bytes, never beyond their end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise _Torn
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        value: int = _U32.unpack(self.take(4))[0]
        return value

    def text(self) -> str:
        return self.take(self.number()).decode()


def read(path: str, identity: Identity | None = None) -> LegacyLog | None:
    """Parse the log at `path`; None if there is none, or one of another kind.

    `identity`: of the HDF5 file; a legacy mark in it (all-zero log id) that matches makes the marked prefix count as
    held already, so its entries are left out. Raises NewerFormatError for EHWL 3 and later, StorageError.
    """
    fd = fs.open_existing(path, fs.RDONLY | fs.NOFOLLOW)
    if fd is None:
        return None
    try:
        data = fs.pread(fd, fs.fstat(fd).st_size, 0)
    finally:
        fs.close(fd)
    if len(data) < HEADER_SIZE or data[:4] != MAGIC or not data[4]:
        return None
    if data[4] > 2:
        raise NewerFormatError(path=path, found=f"EHWL {data[4]}", supported="EHWL 2")
    return parse(data, _held(data, identity))


def _held(data: bytes, identity: Identity | None) -> int:
    """Length of the prefix the HDF5 file already holds, by its legacy mark."""
    if identity is None or any(identity.mark_log_id) or not HEADER_SIZE <= identity.mark_length <= len(data):
        return 0
    length = identity.mark_length
    return length if crc32(memoryview(data)[:length]) == identity.mark_crc else 0


def parse(data: bytes, held: int = 0) -> LegacyLog:
    """Parse a whole log of version 1 or 2, header included; entries within the first `held` bytes are left out."""
    log = LegacyLog(data[4], len(data))
    cursor = _Cursor(data, HEADER_SIZE)
    chain = sha256_digest(MAGIC + b"\x02")
    while cursor.at < len(data):
        start = cursor.at
        try:
            entry = _entry(cursor)
            if log.version == 2:
                chain = sha256_digest(chain + data[start : cursor.at])
                if cursor.take(_CHAIN_SIZE) != chain:
                    raise ValueError("the chain does not hold")
        except _Torn:
            log.damage = "torn"
            break
        except ValueError as error:  # UnicodeDecodeError is one too
            log.damage = str(error)
            break
        log.end = cursor.at
        if entry is not None and cursor.at > held:
            log.entries.append(entry)
    return log


def _entry(cursor: _Cursor) -> LegacySave | LegacyTombstone | None:
    """One entry without its chain value; None for one that says nothing. Raises ValueError for an unknown type."""
    kind, timestamp = _PREFIX.unpack(cursor.take(_PREFIX.size))
    if kind == _SAVE:
        chunk = cursor.text()
        vector = cursor.take(4 * cursor.number())
        return LegacySave(timestamp, chunk, vector, cursor.text(), cursor.text(), cursor.text())
    if kind == _TOMBSTONE:
        return LegacyTombstone(cursor.number())
    if kind == _ACTIVATION:
        return None
    raise ValueError(f"unknown entry type {kind}")
