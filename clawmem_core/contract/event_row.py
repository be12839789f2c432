"""From an event to what a store keeps of it: its first version and its searchable text.

Invariants: the payload is the event, whole and exact, as canonical ASCII JSON; columns beside it are copies for finding
it, in which U+0000 and lone surrogates read as U+FFFD; ids and the scope key in a row are those of the payload. HOT.
"""

from __future__ import annotations

from clawmem_core.contract.canonical import canonical_ascii
from clawmem_core.contract.lifecycle import initial_status
from clawmem_core.contract.scope import scope_key
from clawmem_core.contract.validate import MEMORY_FACT, event_identity, event_label
from clawmem_core.storage.row_ops import LABELS, NO_ID, TRUSTS, EventRow
from clawmem_core.strict_json import parse_json
from clawmem_core.times import parse_rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def first_version(
    event: Mapping[str, Any], *, record_id: int, recorded: int, actor: str, reason: str = "", status: int | None = None
) -> EventRow:
    """The first version of an event that passed `check_event`; `record_id` is the record with its searchable text.

    `recorded`: record time in microseconds. `status`: what `initial_status` says unless given (held for review).
    """
    fact = event_label(event) == MEMORY_FACT
    _, identity = event_identity(event)
    supersedes = event.get("supersedesFactId", "")
    return EventRow(
        label=LABELS.index(event_label(event)),
        status=initial_status(event) if status is None else status,
        trust=TRUSTS.index(event["trustClass"]),
        record_id=record_id,
        confidence=float(event["confidence"]) if fact else 1.0,
        valid_from=parse_rfc3339(event["validFrom" if fact else "observedAt"]),
        valid_until=parse_rfc3339(event["validUntil"]) if "validUntil" in event else float("inf"),
        recorded_from=recorded,
        event_id=bytes.fromhex(identity),
        scope_key=bytes.fromhex(scope_key(event)),
        supersedes=bytes.fromhex(supersedes) if supersedes else NO_ID,
        source_event=storable(event.get("sourceEventId", "")),
        session=storable(event.get("externalSessionId", "")),
        reason=reason,
        actor=actor,
        payload=canonical_ascii(event),
    )


def searchable_text(event: Mapping[str, Any]) -> str:
    """What a search covers: a fact's text, an episode's summary, as a text that can be stored."""
    return storable(event["text"] if event_label(event) == MEMORY_FACT else event["summary"])


def storable(text: str) -> str:
    """The text with U+0000 and every lone surrogate as U+FFFD, the way JavaScript writes them to UTF-8."""
    text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def recalled_memory(row: EventRow, score: float) -> dict[str, Any]:
    """A row as the memory that `format_recalled_memories` and `format_fenced_memories` print; texts are exact."""
    event = parse_json(row.payload)
    fact = LABELS[row.label] == MEMORY_FACT
    memory: dict[str, Any] = {
        "id": row.event_id.hex(),
        "label": LABELS[row.label],
        "text": event["text" if fact else "summary"],
        "score": score,
        "trustClass": TRUSTS[row.trust],
        "observedAt": event["validFrom" if fact else "observedAt"],
        "provenance": event["provenance"],
    }
    if fact:
        memory["confidence"] = row.confidence
    if row.marked:
        memory["marks"] = ["superseded"]
    return memory
