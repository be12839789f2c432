"""Is every stored event what its columns say, under the id that its content gives?

Invariants: nothing an event row says is trusted, its columns are computed again from the canonical payload; a
row that does not hold is one finding, naming its id.
"""

from __future__ import annotations

from clawmem_core.contract.canonical import canonical_ascii
from clawmem_core.contract.event_row import first_version
from clawmem_core.contract.validate import check_event
from clawmem_core.errors import ClawmemError
from clawmem_core.storage.row_ops import LABELS
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from clawmem_core.integrity.content import Findings
    from clawmem_core.storage.row_ops import EventRow

_COPIED: Final = ("label", "event_id", "scope_key", "trust", "confidence", "valid_from", "source_event", "session")


def check_events(rows: Iterable[EventRow], findings: Findings, path: str) -> None:
    """Add an `event-wrong` finding for every version that is not what its payload gives."""
    judged: dict[bytes, EventRow | str] = {}
    for row in rows:
        known = judged.get(row.payload)
        if known is None:
            known = judged[row.payload] = _judged(row)
        fault = known if isinstance(known, str) else _difference(row, known)
        if fault:
            message = f"{LABELS[row.label]} {row.event_id.hex()}, version {row.version}: {fault}"
            findings.add("event-wrong", message, file=path, record=row.record_id)


def _judged(row: EventRow) -> EventRow | str:
    """The row that the payload gives, or why it is no event."""
    try:
        event = parse_json(row.payload, refuse_duplicates=True)
        check_event(event)
        if canonical_ascii(event) != row.payload:
            return "its payload is not canonical"
        return first_version(event, record_id=row.record_id, recorded=row.recorded_from, actor=row.actor)
    except ClawmemError as error:
        return error.message


def _difference(row: EventRow, own: EventRow) -> str:
    wrong = [name for name in _COPIED if getattr(row, name) != getattr(own, name)]
    return f"{', '.join(wrong)} not as in its payload" if wrong else ""
