"""Corrections of facts: replace, retract, expire; each one frame (spec/lifecycle.md § 4).

Invariants: a fact changes only by a new version, its payload never; new and old row, tombstones, marks and audit line
are in the same frame, so no reader ever sees half of a correction; of two corrections of one version the second is a
conflict; a fact of another scope is not found, in the same words as one that never was. Refusals by policy are audited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from clawmem_core import clock, door
from clawmem_core.contract import audit, lifecycle
from clawmem_core.contract.event_keys import EPISODE, FACT, exact_source, value_key_of
from clawmem_core.contract.identities import create_fact_event
from clawmem_core.contract.saving import (
    actor_of,
    checked_event,
    find_event,
    hold,
    refused,
    rejected_value,
    stage_new,
    target_of,
)
from clawmem_core.contract.scope import scope_key
from clawmem_core.contract.validate import SECRET_MEMBERS, is_hash, refuse_secrets
from clawmem_core.errors import ConflictError, InvalidEventError, InvalidInputError, NotFoundError
from clawmem_core.storage import row_ops
from clawmem_core.storage.row_ops import NO_ID, EventRow, ValueRow
from clawmem_core.strict_json import parse_json
from clawmem_core.times import format_rfc3339
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clawmem_core.storage.log_format import Key
    from clawmem_core.view import View
    from clawmem_core.writer import Writer

#: members of a new fact that never come from the one it replaces
_NOT_INHERITED: Final = ("factId", "text", "validFrom", "validUntil", "supersedesFactId", "active")
_FOREVER: Final = float("inf")


class Change:
    """What one correction does to a scope: new versions and tombstones, collected, then staged as one frame.

    `rows`: the current version of every event of the scope by (label, id), read under the writer's lock; `values`: its
    tombstones by value key; `recorded`: record time of everything new.
    """

    def __init__(self, writer: Writer, scope: Mapping[str, Any], reason: str) -> None:
        self.writer, self.key = writer, bytes.fromhex(scope_key(scope))
        self.reason, self.actor = door.text("reason", reason), actor_of(writer)
        refuse_secrets({"reason": reason}, ("reason",))
        self.recorded = writer.record_time()
        with open_view(writer.paths.real) as view:
            rows = [row for row in view.events_of_scope(self.key) if not row.recorded_to]
            self.values = view.values_of_scope(self.key)
        self.rows = {(row.label, row.event_id): row for row in rows}
        self.versions: list[EventRow] = []
        self.tombstones: list[ValueRow] = []

    def fact(self, id: str) -> EventRow:
        """The current version of a fact. Raises InvalidInputError for no id at all, NotFoundError."""
        if not is_hash(id):
            raise InvalidInputError(field="fact", detail="must be 64 lower-case hexadecimal digits")
        row = self.rows.get((FACT, bytes.fromhex(id)))
        if row is None:
            raise NotFoundError(kind="fact", id=id)
        return row

    def find(self, event_id: bytes) -> EventRow | None:
        """The current version of a fact, or None."""
        return self.rows.get((FACT, event_id))

    def facts(self) -> Iterator[EventRow]:
        """The current version of every fact."""
        return (row for row in self.rows.values() if row.label == FACT)

    def value_of(self, row: EventRow) -> bytes:
        """The value key of a fact."""
        event = parse_json(row.payload)
        return lifecycle.value_key(self.key, event["subjectKey"], event["kind"], event["text"])

    def end(self, row: EventRow, status: int, at: float, superseded_by: bytes = NO_ID) -> None:
        """A fact stops holding at `at`. Raises ConflictError where its state does not allow it."""
        version = lifecycle.end_validity(
            row, status, at=at, recorded=self.recorded, reason=self.reason, actor=self.actor,
            superseded_by=superseded_by,
        )  # fmt: skip
        self._add(version)

    def settle(self, row: EventRow, status: int, supersedes: bytes) -> None:
        """A fact that waited for review becomes active or rejected."""
        version = lifecycle.next_version(
            row, status, recorded=self.recorded, reason=self.reason, actor=self.actor, supersedes=supersedes
        )  # fmt: skip
        self._add(version)

    def _add(self, row: EventRow) -> None:
        self.rows[row.label, row.event_id] = row
        self.versions.append(row)

    def supersede(self, row: EventRow, by: EventRow, new_value: bytes) -> None:
        """A fact gives way to another: its version, a tombstone on what it says, marks on where it came from."""
        self.end(row, lifecycle.SUPERSEDED, by.valid_from, by.event_id)
        value = self.value_of(row)
        if value != new_value:
            self.reject(value, by.event_id)
        source = exact_source(row)
        for one in list(self.rows.values()):
            if one.label == EPISODE and not one.marked and one.source_event and exact_source(one) == source:
                self._add(
                    one.changed(
                        version=one.version + 1, marked=True, recorded_from=self.recorded, recorded_to=0,
                        reason=self.reason, actor=self.actor,
                    )
                )  # fmt: skip

    def reject(self, value: bytes, replacement: bytes = NO_ID, expires: float = _FOREVER) -> None:
        """Put a tombstone on a value; where one is, its replacement stays known."""
        before = self.values.get(value)
        if replacement == NO_ID and before is not None:
            replacement = before.replacement
        self._put(ValueRow(value, self.key, self.reason, self.actor, self.recorded, replacement, expires))

    def lift(self, value: bytes, reason: str = "") -> None:
        """Take the tombstone of a value away, if there is one."""
        before = self.values.get(value)
        if before is not None and not before.lifted:
            self._put(
                ValueRow(
                    value, self.key, reason or self.reason, self.actor, self.recorded, before.replacement,
                    before.expires, lifted=True,
                )
            )  # fmt: skip

    def _put(self, row: ValueRow) -> None:
        self.values[row.value_key] = row
        self.tombstones.append(row)

    def operations(self) -> bytes:
        """Everything collected."""
        return b"".join([*map(row_ops.event, self.versions), *map(row_ops.value, self.tombstones)])

    def keys(self) -> tuple[Key, ...]:
        """The keys of the tombstones."""
        return tuple(value_key_of(row) for row in self.tombstones)

    def commit(self, operation: str, target: EventRow) -> None:
        """Store what was collected, durably, as one frame."""
        self.writer.stage(
            self.operations(), len(self.versions) + len(self.tombstones), operation=operation,
            target=target_of(target.event_id), keys=self.keys(), event_rows=len(self.versions),
            record_us=self.recorded, audit_flags=audit.FLAG_EVENT,
        )  # fmt: skip
        self.writer.commit()

    def refuse(self, problem: ConflictError, row: EventRow) -> ConflictError:
        """A conflict, put on record."""
        refused(self.writer, problem, row.event_id)
        return problem


# ---------------------------------------------------------------- replace


def replace(
    writer: Writer, scope: Mapping[str, Any], old_id: str, fields: Mapping[str, Any], *, reason: str = "",
    also: Sequence[str] = (), override: str = "", expires: float = _FOREVER,
) -> dict[str, Any]:  # fmt: skip
    """Replace a fact by another one, and commit.

    `fields`: the new fact; absent members are those of the old one, except `text`, which must be there, and
    `validFrom`, now by default; a vector may stand beside them. `also`: ids of more facts that give way. `override`:
    why a value that was rejected before is believed now; without it such a fact is stored pending and the old one
    stays. `expires`: when the old values may be said again, in seconds. Returns {"status": "replaced" or "pending",
    "index", "id", "superseded", "siblings"}: siblings are active facts on the same subject and kind that were left as
    they are. Raises NotFoundError, ConflictError, InvalidEventError and as `save_event`.
    """
    change = Change(writer, scope, reason)
    old = change.fact(old_id)
    others = [change.fact(id) for id in dict.fromkeys(also) if id != old_id]
    new = checked_event(writer, _new_fact(old, fields), scope)
    new.row.recorded_from = change.recorded
    try:
        for row in (old, *others):
            lifecycle.check_replaceable(
                row, fact_id=row.event_id.hex(), scope_key=change.key, old_value=change.value_of(row),
                new_value=new.value if row is old else b"", new_id=new.row.event_id, find=change.find,
            )  # fmt: skip
        if find_event(writer, new.row) is not None:
            raise ConflictError(detail=f"fact {new.row.event_id.hex()} is stored already")
    except ConflictError as problem:
        raise change.refuse(problem, old) from None
    siblings = _siblings(change, new.event, {row.event_id for row in (old, *others)})
    answer = {"id": new.row.event_id.hex(), "siblings": siblings}
    if rejected_value(writer, new.value) and not override:
        hold(writer, new, change.reason or "its value was rejected before")
        return {"status": "pending", "index": new.record.id, **answer, "superseded": []}
    change.lift(new.value, door.text("override", override))
    for row in (old, *others):
        change.supersede(row, new.row, new.value)
    for tombstone in change.tombstones:
        if not tombstone.lifted:
            tombstone.expires = expires
    new.row.reason = change.reason
    stage_new(
        writer, new, "replace", change.operations(), change.keys(), len(change.versions),
        len(change.versions) + len(change.tombstones),
    )  # fmt: skip
    writer.commit()
    superseded = [row.event_id.hex() for row in (old, *others)]
    return {"status": "replaced", "index": new.record.id, **answer, "superseded": superseded}


def _new_fact(old: EventRow, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fact that takes the place of `old`, with its id, and the vector that came along."""
    if not isinstance(fields.get("text"), str):
        raise InvalidEventError(detail="text is missing: what holds instead", member="text")
    if fields.get("active", True) is not True:
        raise InvalidEventError(detail="active must be true for a replacement", member="active")
    old_id = old.event_id.hex()
    if fields.get("supersedesFactId", old_id) != old_id:
        raise InvalidEventError(detail="supersedesFactId names another fact", member="supersedesFactId")
    inherited = {name: value for name, value in parse_json(old.payload).items() if name not in _NOT_INHERITED}
    members = {
        "validFrom": format_rfc3339(clock.now()), **inherited, **fields, "active": True, "supersedesFactId": old_id,
    }  # fmt: skip
    vector = {name: members.pop(name) for name in door.VECTOR_KEYS if name in members}
    refuse_secrets(members, SECRET_MEMBERS["fact"])
    event = create_fact_event(members)
    if "factId" in fields:  # checked like any other, so that a wrong one is named
        event["factId"] = fields["factId"]
    return {**event, **vector}


def _siblings(change: Change, event: Mapping[str, Any], replaced: set[bytes]) -> list[str]:
    """Ids of the other active facts on the same subject and kind."""
    found = []
    for row in change.facts():
        if row.status == lifecycle.ACTIVE and row.event_id not in replaced:
            other = parse_json(row.payload)
            if (other["subjectKey"], other["kind"]) == (event["subjectKey"], event["kind"]):
                found.append(row.event_id.hex())
    return found


# ---------------------------------------------------------------- retract, expire


def retract(
    writer: Writer, scope: Mapping[str, Any], id: str, *, reason: str = "", expires: float = _FOREVER
) -> dict[str, Any]:
    """Take a fact back: it never held, and its value is rejected until `expires`. Commits. Raises as `replace`."""
    change = Change(writer, scope, reason)
    row = change.fact(id)
    try:
        change.end(row, lifecycle.RETRACTED, clock.now())
    except ConflictError as problem:
        raise change.refuse(problem, row) from None
    change.reject(change.value_of(row), expires=expires)
    change.commit("retract", row)
    return {"status": "retracted", "id": id, "index": row.record_id}


def expire(
    writer: Writer, scope: Mapping[str, Any], id: str, *, at: float | None = None, reason: str = ""
) -> dict[str, Any]:
    """End a fact at a time (seconds, past or future; now by default); what it said stays sayable. Commits."""
    change = Change(writer, scope, reason)
    row = change.fact(id)
    try:
        change.end(row, lifecycle.EXPIRED, clock.now() if at is None else at)
    except ConflictError as problem:
        raise change.refuse(problem, row) from None
    change.commit("expire", row)
    until = change.versions[0].valid_until
    return {"status": "expired", "id": id, "index": row.record_id, "valid_until": shown_time(until)}


# ---------------------------------------------------------------- history


def history(path: str, scope: Mapping[str, Any], id: str) -> list[dict[str, Any]]:
    """Every version of a fact, oldest first. Takes no lock. Raises InvalidInputError, NotFoundError."""
    with open_view(path) as view:
        return versions_of(view, scope, id)


def versions_of(view: View, scope: Mapping[str, Any], id: str) -> list[dict[str, Any]]:
    """`history` as seen by a view."""
    if not is_hash(id):
        raise InvalidInputError(field="fact", detail="must be 64 lower-case hexadecimal digits")
    rows = [
        row for row in view.events_of_scope(bytes.fromhex(scope_key(scope)))
        if row.label == FACT and row.event_id.hex() == id
    ]  # fmt: skip
    if not rows:
        raise NotFoundError(kind="fact", id=id)
    return [version_fields(row) for row in sorted(rows, key=lambda row: row.version)]


def version_fields(row: EventRow) -> dict[str, Any]:
    """One version as a JSON object; times are RFC 3339, null for open ends, links are ids or null.

    `active` is that of the version; the member of `event` is what was said when the fact came in.
    """
    return {
        "version": row.version,
        "status": row_ops.STATUSES[row.status],
        "active": row.status == lifecycle.ACTIVE,
        "valid_from": shown_time(row.valid_from),
        "valid_until": shown_time(row.valid_until),
        "recorded_from": shown_time(row.recorded_from / 1e6),
        "recorded_to": shown_time(row.recorded_to / 1e6) if row.recorded_to else None,
        "supersedes": _shown_id(row.supersedes),
        "superseded_by": _shown_id(row.superseded_by),
        "actor": row.actor,
        "reason": row.reason,
        "index": row.record_id,
        "event": parse_json(row.payload),
    }


def shown_time(seconds: float) -> str | None:
    """A time as RFC 3339, null where it is open."""
    return None if seconds == _FOREVER else format_rfc3339(seconds)


def _shown_id(id: bytes) -> str | None:
    return None if id == NO_ID else id.hex()
