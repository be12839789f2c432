"""Review of facts that are held because their value was rejected before (spec/lifecycle.md § 4).

Invariants: whoever proposed a fact cannot decide on it, which is a record, not a security boundary; a pending fact is
never recalled; approval does all that the assertion would have done (supersede, lift the tombstone) in one frame, and
leaves one active fact where the rejected value had given way to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_core.contract import lifecycle
from clawmem_core.contract.correcting import Change, shown_time
from clawmem_core.contract.event_keys import FACT
from clawmem_core.contract.saving import refused
from clawmem_core.contract.scope import scope_key
from clawmem_core.errors import ConflictError, SelfReviewError
from clawmem_core.storage.row_ops import NO_ID, EventRow
from clawmem_core.strict_json import parse_json
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clawmem_core.view import View
    from clawmem_core.writer import Writer


def pending(path: str, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The facts of a scope that wait for a decision, oldest first. Takes no lock."""
    with open_view(path) as view:
        return pending_of(view, scope)


def pending_of(view: View, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`pending` as seen by a view."""
    rows = [
        row for row in view.events_of_scope(bytes.fromhex(scope_key(scope)))
        if row.label == FACT and row.status == lifecycle.PENDING and not row.recorded_to
    ]  # fmt: skip
    return [_item(row) for row in sorted(rows, key=lambda row: row.recorded_from)]


def _item(row: EventRow) -> dict[str, Any]:
    event = parse_json(row.payload)
    return {
        "id": row.event_id.hex(),
        "index": row.record_id,
        "text": event["text"],
        "subjectKey": event["subjectKey"],
        "kind": event["kind"],
        "supersedes": None if row.supersedes == NO_ID else row.supersedes.hex(),
        "proposed_by": row.actor,
        "reason": row.reason,
        "recorded": shown_time(row.recorded_from / 1e6),
    }


def approve(writer: Writer, scope: Mapping[str, Any], id: str, *, reason: str = "") -> dict[str, Any]:
    """Believe a held fact, and commit. Returns {"status", "id", "index", "superseded"}.

    Raises NotFoundError, SelfReviewError, ConflictError (it waits no more, or what it supersedes is no more active).
    """
    change, row = _to_decide(writer, scope, id, reason)
    value = change.value_of(row)
    try:
        lifecycle.check_transition(row, lifecycle.ACTIVE)
        old = _gives_way(change, row, value)
        if old is not None:
            lifecycle.check_transition(old, lifecycle.SUPERSEDED)
    except ConflictError as problem:
        raise change.refuse(problem, row) from None
    change.settle(row, lifecycle.ACTIVE, row.supersedes if old is None else old.event_id)
    if old is not None:
        change.supersede(old, row, value)
    change.lift(value)
    change.commit("review-approve", row)
    superseded = [] if old is None else [old.event_id.hex()]
    return {"status": "approved", "id": id, "index": row.record_id, "superseded": superseded}


def reject(
    writer: Writer, scope: Mapping[str, Any], id: str, *, reason: str = "", expires: float = float("inf")
) -> dict[str, Any]:
    """Never believe a held fact, keep its value rejected until `expires`, and commit. Raises as `approve`."""
    change, row = _to_decide(writer, scope, id, reason)
    try:
        change.settle(row, lifecycle.REJECTED, row.supersedes)
    except ConflictError as problem:
        raise change.refuse(problem, row) from None
    change.reject(change.value_of(row), expires=expires)
    change.commit("review-reject", row)
    return {"status": "rejected", "id": id, "index": row.record_id}


def _to_decide(writer: Writer, scope: Mapping[str, Any], id: str, reason: str) -> tuple[Change, EventRow]:
    """The fact to decide on. Raises NotFoundError, and SelfReviewError for its own proposer, on record."""
    change = Change(writer, scope, reason)
    row = change.fact(id)
    if row.status == lifecycle.PENDING and row.actor == change.actor:
        raise refused(writer, SelfReviewError(id=id, actor=row.actor), row.event_id, "refused-review")
    return change, row


def _gives_way(change: Change, row: EventRow, value: bytes) -> EventRow | None:
    """The fact that an approval supersedes: the one the held fact names, else what its value had given way to."""
    if row.supersedes != NO_ID:
        return change.find(row.supersedes)
    tombstone = change.values.get(value)
    found = None if tombstone is None or tombstone.lifted else change.find(tombstone.replacement)
    for _ in range(len(change.rows)):
        if found is None or found.status == lifecycle.ACTIVE:
            return found
        found = change.find(found.superseded_by)
    return None
