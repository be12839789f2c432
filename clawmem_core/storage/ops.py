"""Operations: what a log frame's payload says happened (docs/format.md § 4).

A payload is one or more operations, each `u8 op | u8 flags | u16 0 | u32 body length | body`, little-endian. All
operations of a frame are applied together or not at all. Records are named by their stable id, never by position.

Invariants: encoding is canonical (one value, one byte string); decoding checks every length against the bytes that are
there before it slices, and refuses an operation it does not know, so a bad payload never half-applies.
"""

from __future__ import annotations

import struct

from clawmem_core.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from clawmem_core.plain import Row

RECORD, DELETE, UNDELETE, COMPACT, SESSION, ENTITY, RELATION, ALIAS = range(1, 9)
ACTIVATION, CONFIG, EVENT, VALUE, AUDIT, PURGE, RESERVE, REMOVE = range(9, 17)
NAMES = (
    "", "record", "delete", "undelete", "compact", "session", "entity", "relation", "alias",
    "activation", "config", "event", "value", "audit", "purge", "reserve", "remove",
)  # fmt: skip

FLAG_DELETED = 1  # of RECORD: the record is stored deleted

_HEAD = struct.Struct("<BBHI")
_RECORD = struct.Struct("<Qdf8I")
_WHOLE_RECORD = struct.Struct("<BBHIQdf8I")  # _HEAD and _RECORD
_WEIGHT = struct.Struct("<Qf")
_U64 = struct.Struct("<Q")


class BadPayload(ValueError):
    """A payload whose checksum holds but whose content does not decode; never shown to a user as it is."""


class UnknownOperation(BadPayload):
    """An operation of a newer version."""


# ---------------------------------------------------------------- encoding


def operation(op: int, body: bytes, flags: int = 0) -> bytes:
    """One operation with its head."""
    return _HEAD.pack(op, flags, 0, len(body)) + body


def record(entry: Record) -> bytes:
    """RECORD: put `entry` whole under its id. The vector is stored as its bytes (float16 or float32 by the store)."""
    parts = (
        entry.vector or b"",
        entry.chunk.encode(),
        entry.source_channel.encode(),
        entry.session_id.encode(),
        entry.tags.encode(),
        entry.key.encode(),
        entry.source_id.encode(),
        entry.scope,
    )
    body = b"".join((_RECORD.pack(entry.id, entry.timestamp, entry.activation, *map(len, parts)), *parts))
    return operation(RECORD, body, FLAG_DELETED if entry.deleted else 0)


def plain_records(first: int, rows: Sequence[Row], vectors: Sequence[bytes]) -> bytes:
    """RECORD of each row (plain.py), the ids counting from `first`: what `record` gives, many at a time."""
    pack, parts = _WHOLE_RECORD.pack, list[bytes]()
    for id, vector, (seconds, lengths, texts) in zip(range(first, first + len(rows)), vectors, rows, strict=True):
        size = len(vector)
        body = _RECORD.size + size + len(texts)
        parts += pack(RECORD, 0, 0, body, id, seconds, 1.0, size, *lengths, 0, 0, 0), vector, texts
    return b"".join(parts)


def ids(op: int, numbers: Iterable[int]) -> bytes:
    """DELETE, UNDELETE: the record ids it concerns. RESERVE: the one next id."""
    return operation(op, b"".join(map(_U64.pack, numbers)))


def compact() -> bytes:
    """COMPACT: rows that are deleted at this point are dropped."""
    return operation(COMPACT, b"")


def activation(weights: Iterable[tuple[int, float]]) -> bytes:
    """ACTIVATION: absolute float32 weights by record id."""
    return operation(ACTIVATION, b"".join(_WEIGHT.pack(*pair) for pair in weights))


def config(name: str, value: str) -> bytes:
    """CONFIG: a setting and its value as JSON text."""
    return operation(CONFIG, f"{name}\0{value}".encode())


def audit(line: bytes) -> bytes:
    """AUDIT: one 72-byte audit line."""
    return operation(AUDIT, line)


def purge(record_ids: Iterable[int]) -> bytes:
    """PURGE: these records, and every version of the events that belong to them, are physically gone."""
    return ids(PURGE, record_ids)


# ---------------------------------------------------------------- decoding


def decode(payload: bytes | memoryview, at: int = 0, end: int | None = None) -> Iterator[tuple[int, int, Any]]:
    """The operations of payload[at:end] as (op, flags, value), value being a Record, Session, …, or a tuple of ids or
    pairs.

    Raises UnknownOperation for an operation of a newer version, BadPayload where lengths or text do not fit.
    """
    data = bytes(payload)
    unpack, decoders = _HEAD.unpack_from, _DECODERS
    end = len(data) if end is None else end
    while at < end:
        if at + 8 > end:
            raise BadPayload("operation head cut short")
        op, flags, _, size = unpack(data, at)
        at += 8
        if size > end - at:
            raise BadPayload("operation body cut short")
        read = decoders.get(op)
        if read is None:
            from clawmem_core.storage import row_ops

            decoders = {**decoders, **row_ops.DECODERS}
            if op not in decoders:
                raise UnknownOperation(f"operation {op}")
            read = decoders[op]
        try:
            yield op, flags, read(data, at, size, flags)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise BadPayload(f"{NAMES[op]}: {error}") from None
        at += size


def texts(data: bytes, at: int, end: int, lengths: Iterable[int]) -> list[bytes]:
    """Consecutive byte strings of the given lengths that fill data[at:end] exactly."""
    found = []
    for length in lengths:
        found.append(data[at : at + length])
        at += length
    if at != end:
        raise BadPayload("lengths do not add up")
    return found


def _record(data: bytes, at: int, size: int, flags: int) -> Record:
    found = Record.__new__(Record)  # hundreds before a search: calls and slices of nothing would cost as much again
    (found.id, found.timestamp, found.activation, vector, chunk, channel, session_id, tags, key, source_id,
     scope) = _RECORD.unpack_from(data, at)  # fmt: skip
    start = at + _RECORD.size
    vector += start  # the lengths become the ends
    chunk += vector
    channel += chunk
    session_id += channel
    tags += session_id
    key += tags
    source_id += key
    scope += source_id
    if scope != at + size:
        raise BadPayload("lengths do not add up")
    found.vector = data[start:vector] or None
    found.chunk, found.source_channel = data[vector:chunk].decode(), data[chunk:channel].decode()
    found.session_id = data[channel:session_id].decode()
    if session_id == source_id:
        found.tags = found.key = found.source_id = ""
    else:
        found.tags, found.key = data[session_id:tags].decode(), data[tags:key].decode()
        found.source_id = data[key:source_id].decode()
    found.scope, found.deleted = data[source_id:scope], flags & FLAG_DELETED != 0
    return found


def _ids(data: bytes, at: int, size: int, _: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{_whole(size, 8)}Q", data, at)


def _whole(size: int, unit: int) -> int:
    if size % unit:
        raise BadPayload("length is no multiple of its unit")
    return size // unit


def _compact(data: bytes, at: int, size: int, _: int) -> None:
    if size:
        raise BadPayload("compact has no body")


def _activation(data: bytes, at: int, size: int, _: int) -> tuple[tuple[int, float], ...]:
    _whole(size, _WEIGHT.size)
    return tuple(_WEIGHT.iter_unpack(data[at : at + size]))


def _config(data: bytes, at: int, size: int, _: int) -> tuple[str, str]:
    name, mark, text = data[at : at + size].decode().partition("\0")
    if not mark:
        raise BadPayload("config without a value")
    return name, text


def _audit(data: bytes, at: int, size: int, _: int) -> bytes:
    if size != 72:
        raise BadPayload("an audit line has 72 bytes")
    return data[at : at + 72]


#: by number; those of rows are row_ops.DECODERS
_DECODERS: dict[int, Any] = {
    RECORD: _record, DELETE: _ids, UNDELETE: _ids, COMPACT: _compact, ACTIVATION: _activation, CONFIG: _config,
    AUDIT: _audit, PURGE: _ids, RESERVE: _ids,
}  # fmt: skip
