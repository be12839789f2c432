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
_SESSION = struct.Struct("<qqdIII")
_ENTITY = struct.Struct("<QqII")
_RELATION = struct.Struct("<QQfdI")
_ALIAS = struct.Struct("<QI")
_EVENT = struct.Struct("<BBBBIQdddQQ32s32s32s32s5I")
_VALUE = struct.Struct("<BQd32s32s32sII")
_WEIGHT = struct.Struct("<Qf")
_U64 = struct.Struct("<Q")

LABELS = ("", "EPISODE", "MEMORY_FACT")
STATUSES = ("", "pending", "active", "superseded", "retracted", "expired", "rejected")
TRUSTS = ("", "trusted", "mixed", "untrusted")
NO_ID = bytes(32)  # no event


class BadPayload(ValueError):
    """A payload whose checksum holds but whose content does not decode; never shown to a user as it is."""


class UnknownOperation(BadPayload):
    """An operation of a newer version."""


class Session:
    """A session row: id, first and last record id (-1 none), channel, summary, seconds since the epoch."""

    __slots__ = ("channel", "end", "id", "start", "summary", "timestamp")

    def __init__(self, id: str, start: int, end: int, channel: str, summary: str, timestamp: float) -> None:
        self.id, self.start, self.end = id, start, end
        self.channel, self.summary, self.timestamp = channel, summary, timestamp


class Entity:
    """A graph node: id (never reused), name, type, record id of its embedding (-1 none)."""

    __slots__ = ("id", "name", "record_id", "type")

    def __init__(self, id: int, name: str, type: str, record_id: int = -1) -> None:
        self.id, self.name, self.type, self.record_id = id, name, type, record_id


class Relation:
    """A graph edge between two entity ids; weight is float32, timestamp seconds since the epoch."""

    __slots__ = ("source", "target", "timestamp", "type", "weight")

    def __init__(self, source: int, target: int, type: str, weight: float, timestamp: float) -> None:
        self.source, self.target, self.type = source, target, type
        self.weight, self.timestamp = weight, timestamp


class Alias:
    """Another name (lower-cased) of an entity."""

    __slots__ = ("entity_id", "name")

    def __init__(self, name: str, entity_id: int) -> None:
        self.name, self.entity_id = name, entity_id


class EventRow:
    """One version of an event (log-v4.md § 8, lifecycle.md § 4).

    `label` index into LABELS, `status` into STATUSES, `trust` into TRUSTS; `version` counts from 1 per (label,
    event_id, scope_key); `record_id` is the record with the searchable text; `confidence` is 1.0 for episodes;
    `valid_from`, `valid_until` seconds since the epoch (+inf: open); `recorded_from`, `recorded_to` microseconds set by
    the engine (`recorded_to` 0: current); 32-byte ids, NO_ID where absent; `marked`: an episode whose fact was
    superseded; `payload`: canonical ASCII JSON of the event exactly as first stored.
    """

    __slots__ = (
        "actor", "confidence", "event_id", "label", "marked", "payload", "reason", "record_id", "recorded_from",
        "recorded_to", "scope_key", "session", "source_event", "status", "superseded_by", "supersedes", "trust",
        "valid_from", "valid_until", "version",
    )  # fmt: skip

    def __init__(self, **values: Any) -> None:
        self.label: int = values["label"]
        self.status: int = values["status"]
        self.trust: int = values["trust"]
        self.marked: bool = values.get("marked", False)
        self.version: int = values.get("version", 1)
        self.record_id: int = values["record_id"]
        self.confidence: float = values.get("confidence", 1.0)
        self.valid_from: float = values["valid_from"]
        self.valid_until: float = values.get("valid_until", float("inf"))
        self.recorded_from: int = values["recorded_from"]
        self.recorded_to: int = values.get("recorded_to", 0)
        self.event_id: bytes = values["event_id"]
        self.scope_key: bytes = values["scope_key"]
        self.supersedes: bytes = values.get("supersedes", NO_ID)
        self.superseded_by: bytes = values.get("superseded_by", NO_ID)
        self.source_event: str = values.get("source_event", "")
        self.session: str = values.get("session", "")
        self.reason: str = values.get("reason", "")
        self.actor: str = values.get("actor", "")
        self.payload: bytes = values["payload"]

    def changed(self, **values: Any) -> EventRow:
        """A copy with some fields replaced."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields.update(values)
        return EventRow(**fields)


class ValueRow:
    """A tombstone on a rejected value: keyed on `value_key` in `scope_key`; holds no text.

    `replacement`: event id that took its place; `expires`: seconds (+inf: never); `lifted`: no longer in force.
    """

    __slots__ = ("actor", "expires", "lifted", "reason", "recorded", "replacement", "scope_key", "value_key")

    def __init__(
        self, value_key: bytes, scope_key: bytes, reason: str, actor: str, recorded: int,
        replacement: bytes = NO_ID, expires: float = float("inf"), lifted: bool = False,
    ) -> None:  # fmt: skip
        self.value_key, self.scope_key, self.reason, self.actor = value_key, scope_key, reason, actor
        self.recorded, self.replacement, self.expires, self.lifted = recorded, replacement, expires, lifted


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


def session(row: Session) -> bytes:
    """SESSION: put a session under its id."""
    parts = (row.id.encode(), row.channel.encode(), row.summary.encode())
    return operation(SESSION, _SESSION.pack(row.start, row.end, row.timestamp, *map(len, parts)) + b"".join(parts))


def entity(row: Entity) -> bytes:
    """ENTITY: put an entity under its id."""
    parts = (row.name.encode(), row.type.encode())
    return operation(ENTITY, _ENTITY.pack(row.id, row.record_id, *map(len, parts)) + b"".join(parts))


def relation(row: Relation) -> bytes:
    """RELATION: put an edge under (source, target, type)."""
    name = row.type.encode()
    return operation(RELATION, _RELATION.pack(row.source, row.target, row.weight, row.timestamp, len(name)) + name)


def alias(row: Alias) -> bytes:
    """ALIAS: put another name of an entity."""
    name = row.name.encode()
    return operation(ALIAS, _ALIAS.pack(row.entity_id, len(name)) + name)


def activation(weights: Iterable[tuple[int, float]]) -> bytes:
    """ACTIVATION: absolute float32 weights by record id."""
    return operation(ACTIVATION, b"".join(_WEIGHT.pack(*pair) for pair in weights))


def config(name: str, value: str) -> bytes:
    """CONFIG: a setting and its value as JSON text."""
    return operation(CONFIG, f"{name}\0{value}".encode())


def event(row: EventRow) -> bytes:
    """EVENT: a new version of an event; it closes the version before it at its own record time."""
    parts = (row.source_event.encode(), row.session.encode(), row.reason.encode(), row.actor.encode(), row.payload)
    head = _EVENT.pack(
        row.label, row.status, row.trust, int(row.marked), row.version, row.record_id, row.confidence, row.valid_from,
        row.valid_until, row.recorded_from, row.recorded_to, row.event_id, row.scope_key, row.supersedes,
        row.superseded_by, *map(len, parts),
    )  # fmt: skip
    return operation(EVENT, head + b"".join(parts))


def value(row: ValueRow) -> bytes:
    """VALUE: a value tombstone, put under (scope, value key)."""
    parts = (row.reason.encode(), row.actor.encode())
    head = _VALUE.pack(
        int(row.lifted), row.recorded, row.expires, row.value_key, row.scope_key, row.replacement, *map(len, parts)
    )
    return operation(VALUE, head + b"".join(parts))


def audit(line: bytes) -> bytes:
    """AUDIT: one 72-byte audit line."""
    return operation(AUDIT, line)


def purge(record_ids: Iterable[int]) -> bytes:
    """PURGE: these records, and every version of the events that belong to them, are physically gone."""
    return ids(PURGE, record_ids)


SESSION_KIND, ENTITY_KIND, RELATION_KIND, ALIAS_KIND = range(4)


def remove(kind: int, source: int = 0, target: int = 0, name: str = "") -> bytes:
    """REMOVE: a session (name), entity (source), relation (source, target, name=type) or alias (name)."""
    return operation(REMOVE, struct.pack("<QQ", source, target) + name.encode(), kind)


# ---------------------------------------------------------------- decoding


def decode(payload: bytes | memoryview) -> Iterator[tuple[int, int, Any]]:
    """The operations of a payload as (op, flags, value), value being a Record, Session, …, or a tuple of ids or pairs.

    Raises UnknownOperation for an operation of a newer version, BadPayload where lengths or text do not fit.
    """
    data = bytes(payload)
    unpack, decoders = _HEAD.unpack_from, _DECODERS
    at, end = 0, len(data)
    while at < end:
        if at + 8 > end:
            raise BadPayload("operation head cut short")
        op, flags, _, size = unpack(data, at)
        at += 8
        if size > end - at:
            raise BadPayload("operation body cut short")
        if not 1 <= op < len(decoders):
            raise UnknownOperation(f"operation {op}")
        try:
            yield op, flags, decoders[op](data, at, size, flags)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise BadPayload(f"{NAMES[op]}: {error}") from None
        at += size


def _texts(data: bytes, at: int, end: int, lengths: Iterable[int]) -> list[bytes]:
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
    found.scope, found.deleted = data[source_id:scope], bool(flags & FLAG_DELETED)
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


def _session(data: bytes, at: int, size: int, _: int) -> Session:
    start, stop, timestamp, *lengths = _SESSION.unpack_from(data, at)
    id, channel, summary = (text.decode() for text in _texts(data, at + _SESSION.size, at + size, lengths))
    return Session(id, start, stop, channel, summary, timestamp)


def _entity(data: bytes, at: int, size: int, _: int) -> Entity:
    id, record_id, *lengths = _ENTITY.unpack_from(data, at)
    name, kind = (text.decode() for text in _texts(data, at + _ENTITY.size, at + size, lengths))
    return Entity(id, name, kind, record_id)


def _relation(data: bytes, at: int, size: int, _: int) -> Relation:
    source, target, weight, timestamp, *lengths = _RELATION.unpack_from(data, at)
    (name,) = _texts(data, at + _RELATION.size, at + size, lengths)
    return Relation(source, target, name.decode(), weight, timestamp)


def _alias(data: bytes, at: int, size: int, _: int) -> Alias:
    entity_id, *lengths = _ALIAS.unpack_from(data, at)
    (name,) = _texts(data, at + _ALIAS.size, at + size, lengths)
    return Alias(name.decode(), entity_id)


def _activation(data: bytes, at: int, size: int, _: int) -> tuple[tuple[int, float], ...]:
    _whole(size, _WEIGHT.size)
    return tuple(_WEIGHT.iter_unpack(data[at : at + size]))


def _config(data: bytes, at: int, size: int, _: int) -> tuple[str, str]:
    name, mark, text = data[at : at + size].decode().partition("\0")
    if not mark:
        raise BadPayload("config without a value")
    return name, text


def _event(data: bytes, at: int, size: int, _: int) -> EventRow:
    row = EventRow.__new__(EventRow)  # one of as many as a scope holds: attributes set one by one cost half
    (row.label, row.status, row.trust, marked, row.version, row.record_id, row.confidence, row.valid_from,
     row.valid_until, row.recorded_from, row.recorded_to, row.event_id, row.scope_key, row.supersedes,
     row.superseded_by, *lengths) = _EVENT.unpack_from(data, at)  # fmt: skip
    if not (1 <= row.label < len(LABELS) and 1 <= row.status < len(STATUSES) and 1 <= row.trust < len(TRUSTS)):
        raise BadPayload("event with an unknown label, status or trust")
    source_event, session_id, reason, actor, row.payload = _texts(data, at + _EVENT.size, at + size, lengths)
    row.marked, row.source_event, row.session = bool(marked), source_event.decode(), session_id.decode()
    row.reason, row.actor = reason.decode(), actor.decode()
    return row


def _value(data: bytes, at: int, size: int, _: int) -> ValueRow:
    lifted, recorded, expires, value_key, scope_key, replacement, *lengths = _VALUE.unpack_from(data, at)
    reason, actor = (text.decode() for text in _texts(data, at + _VALUE.size, at + size, lengths))
    return ValueRow(value_key, scope_key, reason, actor, recorded, replacement, expires, bool(lifted))


def _audit(data: bytes, at: int, size: int, _: int) -> bytes:
    if size != 72:
        raise BadPayload("an audit line has 72 bytes")
    return data[at : at + 72]


def _remove(data: bytes, at: int, size: int, flags: int) -> tuple[int, int, int, str]:
    source, target = struct.unpack_from("<QQ", data, at)
    return flags, source, target, data[at + 16 : at + size].decode()


_DECODERS: tuple[Any, ...] = (
    None, _record, _ids, _ids, _compact, _session, _entity, _relation, _alias, _activation, _config, _event, _value,
    _audit, _ids, _ids, _remove,
)  # fmt: skip
