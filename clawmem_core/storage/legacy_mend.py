"""Mending HDF5 files of the Rust clawhdf5 2.1.0 tools, which HDF5 from 1.14.4 on refuses (spec/store.md § 2).

Two faults are mended in a copy in memory: float datatypes name a sign bit beyond the value, and empty contiguous
datasets have an address. The headers' checksums are made anew.

Invariants: pure functions of bytes; a header is touched only if its checksum was right before; every offset and length
is checked against the bytes that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_DATATYPE, _LAYOUT, _CONTINUATION = 0x03, 0x08, 0x10
_FLOAT_CLASS, _CONTIGUOUS = 1, 1
_UNDEFINED = b"\xff" * 8


def mended(data: bytes) -> bytes:
    """A copy of an HDF5 file's bytes with the two faults mended."""
    copy = bytearray(data)
    at = data.find(b"OHDR")
    while at >= 0:
        _mend_header(copy, at)
        at = data.find(b"OHDR", at + 4)
    return bytes(copy)


def _mend_header(data: bytearray, at: int) -> None:
    """Mend the object header at data[at] and its continuation blocks, if it is one (version 2, right checksum)."""
    if at + 16 > len(data) or data[at + 4] != 2:
        return
    flags = data[at + 5]
    first = at + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[first : first + width], "little")
    blocks = [(at, first + width, first + width + length)]
    while blocks:
        start, first, end = blocks.pop()
        if not start < first <= end <= len(data) - 4 or _checksum(data, start, end) != data[end : end + 4]:
            continue
        for kind, body, size in _messages(data, first, end, 6 if flags & 4 else 4):
            if kind == _DATATYPE:
                _mend_datatype(data, body, size)
            elif kind == _LAYOUT:
                _mend_layout(data, body, size)
            elif kind == _CONTINUATION and size >= 16:
                offset, length = struct.unpack_from("<QQ", data, body)
                if data[offset : offset + 4] == b"OCHK" and length >= 8:
                    blocks.append((offset, offset + 4, offset + length - 4))
        data[end : end + 4] = _checksum(data, start, end)


def _messages(data: bytearray, at: int, end: int, head: int) -> Iterator[tuple[int, int, int]]:
    """(type, offset, size) of the messages in data[at:end]."""
    while at + head <= end:
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
        at += head
        if at + size > end:
            return
        yield kind, at, size
        at += size


def _mend_datatype(data: bytearray, at: int, size: int) -> None:
    """A float's sign bit is its highest one, whatever the message says."""
    if size >= 8 and data[at] & 0x0F == _FLOAT_CLASS:
        bits = 8 * int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at + 2] >= bits > 0:
            data[at + 2] = bits - 1


def _mend_layout(data: bytearray, at: int, size: int) -> None:
    """A contiguous dataset without bytes has no address."""
    if size >= 18 and data[at] in (3, 4) and data[at + 1] == _CONTIGUOUS and not any(data[at + 10 : at + 18]):
        data[at + 2 : at + 10] = _UNDEFINED


def _checksum(data: bytearray, start: int, end: int) -> bytes:
    return struct.pack("<I", lookup3(bytes(data[start:end])))


def lookup3(data: bytes) -> int:
    """Bob Jenkins's lookup3 `hashlittle` with initial value 0, the checksum of HDF5 metadata (HDF5 format § VIII)."""
    a = b = c = (0xDEADBEEF + len(data)) & 0xFFFFFFFF
    if not data:
        return c
    whole: int = (len(data) - 1) // 12 * 12
    words = struct.unpack(f"<{whole // 4}I", data[:whole])
    for at in range(0, len(words), 3):
        a, b, c = (a + words[at]) & _MASK, (b + words[at + 1]) & _MASK, (c + words[at + 2]) & _MASK
        a = ((a - c) & _MASK) ^ _rotate(c, 4)
        c = (c + b) & _MASK
        b = ((b - a) & _MASK) ^ _rotate(a, 6)
        a = (a + c) & _MASK
        c = ((c - b) & _MASK) ^ _rotate(b, 8)
        b = (b + a) & _MASK
        a = ((a - c) & _MASK) ^ _rotate(c, 16)
        c = (c + b) & _MASK
        b = ((b - a) & _MASK) ^ _rotate(a, 19)
        a = (a + c) & _MASK
        c = ((c - b) & _MASK) ^ _rotate(b, 4)
        b = (b + a) & _MASK
    x, y, z = struct.unpack("<3I", data[whole:].ljust(12, b"\0"))
    a, b, c = (a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK
    c = ((c ^ b) - _rotate(b, 14)) & _MASK
    a = ((a ^ c) - _rotate(c, 11)) & _MASK
    b = ((b ^ a) - _rotate(a, 25)) & _MASK
    c = ((c ^ b) - _rotate(b, 16)) & _MASK
    a = ((a ^ c) - _rotate(c, 4)) & _MASK
    b = ((b ^ a) - _rotate(a, 14)) & _MASK
    checksum: int = ((c ^ b) - _rotate(b, 24)) & _MASK
    return checksum


_MASK = 0xFFFFFFFF


def _rotate(value: int, count: int) -> int:
    return ((value << count) | (value >> (32 - count))) & _MASK
