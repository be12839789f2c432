"""Operations on rows that are no records: sessions, the graph, events, value tombstones (docs/format.md § 4).

Invariants: those of ops.py, which hands these operations over when it meets one; a log of records alone never loads
this module.
"""

from __future__ import annotations

import struct

from clawmem_core.storage.ops import (
    ALIAS,
    ENTITY,
    EVENT,
    RELATION,
    REMOVE,
    SESSION,
    VALUE,
    BadPayload,
    operation,
    texts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SESSION = struct.Struct("<qqdIII")
_ENTITY = struct.Struct("<QqII")
_RELATION = struct.Struct("<QQfdI")
_ALIAS = struct.Struct("<QI")
_EVENT = struct.Struct("<BBBBIQdddQQ32s32s32s32s5I")
_VALUE = struct.Struct("<BQd32s32s32sII")

LABELS = ("", "EPISODE", "MEMORY_FACT")
STATUSES = ("", "pending", "active", "superseded", "retracted", "expired", "rejected")
TRUSTS = ("", "trusted", "mixed", "untrusted")
NO_ID = bytes(32)  # no event


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


SESSION_KIND, ENTITY_KIND, RELATION_KIND, ALIAS_KIND = range(4)


def remove(kind: int, source: int = 0, target: int = 0, name: str = "") -> bytes:
    """REMOVE: a session (name), entity (source), relation (source, target, name=type) or alias (name)."""
    return operation(REMOVE, struct.pack("<QQ", source, target) + name.encode(), kind)


# ---------------------------------------------------------------- decoding


def _session(data: bytes, at: int, size: int, _: int) -> Session:
    start, stop, timestamp, *lengths = _SESSION.unpack_from(data, at)
    id, channel, summary = (text.decode() for text in texts(data, at + _SESSION.size, at + size, lengths))
    return Session(id, start, stop, channel, summary, timestamp)


def _entity(data: bytes, at: int, size: int, _: int) -> Entity:
    id, record_id, *lengths = _ENTITY.unpack_from(data, at)
    name, kind = (text.decode() for text in texts(data, at + _ENTITY.size, at + size, lengths))
    return Entity(id, name, kind, record_id)


def _relation(data: bytes, at: int, size: int, _: int) -> Relation:
    source, target, weight, timestamp, *lengths = _RELATION.unpack_from(data, at)
    (name,) = texts(data, at + _RELATION.size, at + size, lengths)
    return Relation(source, target, name.decode(), weight, timestamp)


def _alias(data: bytes, at: int, size: int, _: int) -> Alias:
    entity_id, *lengths = _ALIAS.unpack_from(data, at)
    (name,) = texts(data, at + _ALIAS.size, at + size, lengths)
    return Alias(name.decode(), entity_id)


def _event(data: bytes, at: int, size: int, _: int) -> EventRow:
    row = EventRow.__new__(EventRow)  # one of as many as a scope holds: attributes set one by one cost half
    (row.label, row.status, row.trust, marked, row.version, row.record_id, row.confidence, row.valid_from,
     row.valid_until, row.recorded_from, row.recorded_to, row.event_id, row.scope_key, row.supersedes,
     row.superseded_by, *lengths) = _EVENT.unpack_from(data, at)  # fmt: skip
    if not (1 <= row.label < len(LABELS) and 1 <= row.status < len(STATUSES) and 1 <= row.trust < len(TRUSTS)):
        raise BadPayload("event with an unknown label, status or trust")
    source_event, session_id, reason, actor, row.payload = texts(data, at + _EVENT.size, at + size, lengths)
    row.marked, row.source_event, row.session = bool(marked), source_event.decode(), session_id.decode()
    row.reason, row.actor = reason.decode(), actor.decode()
    return row


def _value(data: bytes, at: int, size: int, _: int) -> ValueRow:
    lifted, recorded, expires, value_key, scope_key, replacement, *lengths = _VALUE.unpack_from(data, at)
    reason, actor = (text.decode() for text in texts(data, at + _VALUE.size, at + size, lengths))
    return ValueRow(value_key, scope_key, reason, actor, recorded, replacement, expires, bool(lifted))


def _remove(data: bytes, at: int, size: int, flags: int) -> tuple[int, int, int, str]:
    source, target = struct.unpack_from("<QQ", data, at)
    return flags, source, target, data[at + 16 : at + size].decode()


#: by number of the operation
DECODERS: dict[int, Any] = {
    SESSION: _session, ENTITY: _entity, RELATION: _relation, ALIAS: _alias, EVENT: _event, VALUE: _value,
    REMOVE: _remove,
}  # fmt: skip
