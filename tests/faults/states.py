"""What a store holds, as plain values that compare; and what may lie around it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from clawmem_core import doctor
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import EventRow
from clawmem_core.view import open_view

#: findings of doctor that cost nobody anything: readers and writers do without these files
DERIVED = frozenset(
    ("index-missing", "index-stale", "index-damaged", "keys-missing", "keys-stale", "keys-damaged", "keys-differ")
)


class State(NamedTuple):
    """Everything a reader can be told, in an order of its own."""

    records: dict[int, tuple[Any, ...]]
    events: list[tuple[Any, ...]]
    sessions: list[tuple[Any, ...]]
    entities: list[tuple[Any, ...]]
    relations: list[tuple[Any, ...]]
    aliases: list[tuple[Any, ...]]


def state_of(path: Path) -> State | None:
    """The state of a store as a fresh reader sees it; None where there is none."""
    if not path.exists():
        return None
    with open_view(path) as view:
        records = {record.id: fields_of(record) for record in view.records(include_deleted=True)}
        stats = view.stats()
        assert (stats["count"], stats["active"]) == (len(records), sum(not row[-1] for row in records.values()))
        overlay = view.overlay
        events = [event_fields(row) for row in view.events()]
        return State(
            records, sorted(events), _plain(overlay.all_sessions()), _plain(overlay.all_entities()),
            _plain(overlay.all_relations()), _plain(overlay.all_aliases()),
        )  # fmt: skip


def _plain(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, name) for name in row.__slots__) for row in rows]


def fields_of(record: Any) -> tuple[Any, ...]:
    """A record without its id."""
    return (
        record.chunk, record.source_channel, record.timestamp, record.session_id, record.tags, record.key,
        record.vector, record.activation, record.deleted,
    )  # fmt: skip


def event_fields(row: EventRow) -> tuple[Any, ...]:
    """A version of an event."""
    return row.label, row.event_id, row.version, row.status, row.recorded_from, row.recorded_to, row.record_id


def left_over(folder: Path) -> list[str]:
    """Names of temporary files."""
    return sorted(name for name in os.listdir(folder) if ".tmp-" in name)


def findings(path: Path) -> set[str]:
    """Codes of what doctor finds, leaving out derived files."""
    return doctor.examine(StorePaths(path)).codes - DERIVED
