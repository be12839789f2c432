"""Events into a store: checked, told from what is there, and appended with their searchable text in one frame.

Order (log-v4.md § 8): schema, id and scope; then under the lock P (this very event: `exists` or a conflict), secrets, S
(the turn of an episode: conflict), V (a rejected value: held for review). P comes before V, so replaying a superseded
fact changes nothing. Invariants: an id is recomputed, never trusted; a scope file is the only authority on scope; a
refusal by policy leaves an audit line and nothing else; HDF5 stays closed. HOT.
"""

from __future__ import annotations

from clawmem_core import clock, door
from clawmem_core.contract import audit, event_keys
from clawmem_core.contract.event_row import first_version, searchable_text, storable
from clawmem_core.contract.lifecycle import PENDING, value_key
from clawmem_core.contract.scope import require_same_scope
from clawmem_core.contract.validate import SECRET_MEMBERS, check_event, refuse_secrets
from clawmem_core.errors import (
    ConflictError,
    ForgedIdError,
    InvalidEventError,
    ScopeMismatchError,
    UsageError,
)
from clawmem_core.model import Record
from clawmem_core.storage import ops, row_ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clawmem_core.errors import ClawmemError
    from clawmem_core.storage.log_format import Key
    from clawmem_core.storage.row_ops import EventRow
    from clawmem_core.writer import Writer

MAX_ACTOR = 256  # bytes of an actor's name in a row


class SavedEvent:
    """Answer to a save: "saved", "exists" or "pending" (held for review), the record's id, the event's id in hex."""

    __slots__ = ("id", "index", "status")

    def __init__(self, status: str, index: int, id: str) -> None:
        self.status, self.index, self.id = status, index, id


class NewEvent:
    """An event that may enter a store, and the record that makes it searchable; neither is numbered or stored yet.

    `event`: as checked; `row`: its first version; `value`: the value key of a fact, b"" for an episode.
    """

    __slots__ = ("event", "record", "row", "value")

    def __init__(self, event: Mapping[str, Any], row: EventRow, record: Record) -> None:
        self.event, self.row, self.record = event, row, record
        fact = row.label == event_keys.FACT
        self.value = value_key(row.scope_key, event["subjectKey"], event["kind"], event["text"]) if fact else b""

    def number(self, record_id: int) -> None:
        """Give both the id of the record."""
        self.row.record_id = self.record.id = record_id

    def frame(self) -> bytes:
        """The operations that store it."""
        return ops.record(self.record) + row_ops.event(self.row)


def save_event(
    writer: Writer, fields: Mapping[str, Any], scope: Mapping[str, Any] | None = None, *, judged: bool = False
) -> SavedEvent:  # fmt: skip
    """Stage one event; the caller commits. What is refused or held is committed here, with an audit line of its own.

    `fields`: the event and, beside it, `embedding`, `embedding_f16` or `embedding_f32`. `scope`: the scope in force;
    without one the event stands in the scope it claims. `judged`: `capture` has looked for secrets, by its own rules.
    Raises InvalidEventError, ScopeError, UsageError (it supersedes a fact), InvalidInputError (a secret),
    DimensionError and InvalidVectorError before anything is written; ForgedIdError, ScopeMismatchError and
    ConflictError after the refusal is on record.
    """
    new = checked_event(writer, fields, scope)
    row = new.row
    found = find_event(writer, row)
    if found is not None:
        if found.digest == event_keys.payload_digest(row.payload):
            return SavedEvent("exists", found.record_id, row.event_id.hex())
        raise refused(writer, _conflict(f"event {row.event_id.hex()} is stored with other content"), row.event_id)
    if "supersedesFactId" in fields:
        raise UsageError(
            detail="a fact that supersedes another is no plain save", hint="use `clawmem replace --fact ID`"
        )
    if not judged:
        refuse_secrets(new.event, SECRET_MEMBERS[new.event["eventType"]])
    if row.label == event_keys.EPISODE and row.source_event:
        source = new.event["sourceEventId"]
        key = event_keys.source_key(row.scope_key, new.event["externalSessionId"], source)
        if event_keys.stored(writer.find("S", key)) is not None:
            raise refused(writer, _conflict("another episode of this session has the same sourceEventId"), row.event_id)
    held = bool(new.value) and rejected_value(writer, new.value)
    if held:
        hold(writer, new, "its value was rejected before")
        return SavedEvent("pending", row.record_id, row.event_id.hex())
    stage_new(writer, new, "event")
    return SavedEvent("saved", row.record_id, row.event_id.hex())


def checked_event(writer: Writer, fields: Mapping[str, Any], scope: Mapping[str, Any] | None) -> NewEvent:
    """The event in `fields`, checked in every way that needs no look at the store. Raises as `save_event`."""
    event = {name: value for name, value in fields.items() if name not in door.VECTOR_KEYS}
    try:
        check_event(event)
        if scope is not None:
            require_same_scope(event, scope)
    except (ForgedIdError, ScopeMismatchError) as problem:
        raise refused(writer, problem) from None
    row = first_version(event, record_id=0, recorded=writer.record_time(), actor=actor_of(writer))
    if len(row.payload) > door.MAX_CHUNK:
        raise InvalidEventError(detail=f"it has {len(row.payload)} bytes, the limit is {door.MAX_CHUNK}", member="")
    for member, column in (("externalSessionId", row.session), ("sourceEventId", row.source_event)):
        if len(column.encode()) > door.MAX_TEXT:
            raise InvalidEventError(detail=f"{member} is longer than {door.MAX_TEXT} bytes", member=member)
    record = Record(0, searchable_text(event), row.valid_from, event["runtime"], storable(row.session))
    record.scope = row.scope_key
    record.vector = door.object_vector(dict(fields), writer.header.dim, writer.float16)
    return NewEvent(event, row, record)


def actor_of(writer: Writer) -> str:
    """Who acts, as a row keeps it. Raises InvalidInputError for a name that is none."""
    audit.encode_actor(writer.actor)
    return door.text("actor", writer.actor, MAX_ACTOR)


def find_event(writer: Writer, row: EventRow) -> Key | None:
    """What is stored under the identity of a row."""
    key = event_keys.identity_key(row.label, row.event_id, row.scope_key)
    return event_keys.stored(writer.find("P", key))


def rejected_value(writer: Writer, value: bytes) -> bool:
    """Whether a tombstone on this value key is in force."""
    return event_keys.in_force(writer.find("V", event_keys.value_key_bytes(value)), clock.now())


def hold(writer: Writer, new: NewEvent, reason: str) -> None:
    """Store a fact that waits for review, as a group of its own so that its audit line says so."""
    writer.commit()
    new.row.status, new.row.reason = PENDING, reason
    stage_new(writer, new, "held")
    writer.commit()


def stage_new(
    writer: Writer, new: NewEvent, operation: str, more: bytes = b"", keys: tuple[Key, ...] = (), more_rows: int = 0,
    more_entries: int = 0,
) -> None:  # fmt: skip
    """Stage an event as one frame, giving it its number. `more`: operations that go with it: `more_entries` of them, of
    which `more_rows` are versions of events; `keys`: their keys.
    """
    new.number(writer.state.next_record_id)
    writer.stage(
        new.frame() + more, 2 + more_entries, operation=operation, target=target_of(new.row.event_id),
        keys=[*event_keys.event_keys(new.row), *keys], rows=1, active=1, next_record_id=new.record.id + 1,
        event_rows=1 + more_rows, record_us=new.row.recorded_from, audit_flags=audit.FLAG_EVENT,
    )  # fmt: skip


def target_of(event_id: bytes) -> int:
    """An event as the target of an audit line."""
    return int.from_bytes(event_id[:8], "big")


def refused(writer: Writer, problem: ClawmemError, event_id: bytes = b"", operation: str = "") -> ClawmemError:
    """Put a refusal on record, durably, and return the error for the caller to raise.

    What is staged is committed first: a group has one audit line, and this one is the refusal's.
    """
    writer.commit()
    writer.stage(
        b"", 0, operation=operation or _REFUSALS[type(problem)], target=target_of(event_id),
        audit_flags=audit.FLAG_EVENT if event_id else 0,
    )  # fmt: skip
    writer.commit()
    return problem


_REFUSALS: dict[type[ClawmemError], str] = {
    ScopeMismatchError: "refused-scope", ForgedIdError: "refused-forged-id", ConflictError: "refused-conflict",
}  # fmt: skip


def _conflict(detail: str) -> ConflictError:
    return ConflictError(detail=detail)
