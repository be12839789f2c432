"""Columns with an overlay applied: the rows a checkpoint writes.

Invariants: a pure function of both; rows stay in ascending id order; every reference to a record that is gone becomes
-1, and a session that lost its first or last record ends at the nearest one left inside its range.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError
from clawmem_core.model import Record, StoreConfig
from clawmem_core.overlay import Overlay
from clawmem_core.storage.columns import Columns, Rows, TextColumn, norms_of

_TEXTS: dict[str, Callable[[Record], str]] = {
    "chunks": lambda record: record.chunk,
    "source_channel": lambda record: record.source_channel,
    "session_ids": lambda record: record.session_id,
    "tags": lambda record: record.tags,
    "keys": lambda record: record.key,
    "source_ids": lambda record: record.source_id,
}


_NORMED = 1 << 18  # numbers whose lengths are taken at once


def apply_overlay(columns: Columns, overlay: Overlay) -> Columns:
    """Lay the overlay's changes over loaded columns (in place) and return them.

    Raises DamagedError where a record of the log fits neither the rows nor the dimension.
    """
    _apply_records(columns, overlay)
    _apply_tables(columns, overlay)
    _apply_events(columns, overlay)
    if overlay.config:
        settings = columns.config.as_dict()
        settings.update((name, json.loads(text)) for name, text in overlay.config.items() if name in settings)
        columns.config = StoreConfig(**settings)
    columns.audit += b"".join(overlay.audit)
    settle_references(columns)
    return columns


def _apply_records(columns: Columns, overlay: Overlay) -> None:
    ids, records = columns.ids, overlay.records
    keep: Rows | None = None
    if overlay.dropped:
        dropped = np.fromiter(overlay.dropped - records.keys(), np.int64)
        kept = np.flatnonzero(~np.isin(ids, dropped))
        keep = None if len(kept) == len(ids) else kept
    if keep is not None:
        ids = ids[keep]
    by_id = sorted(records)
    rows = np.searchsorted(ids, by_id)
    replaced = {int(row): records[id] for row, id in zip(rows, by_id, strict=True) if row < len(ids) and ids[row] == id}
    added = [records[id] for id in by_id if not len(ids) or id > ids[-1]]
    if len(replaced) + len(added) != len(records):
        raise DamagedError(path=columns.path, detail="the log puts a record under an id that is neither stored nor new")
    for name, text in _TEXTS.items():
        column: TextColumn = getattr(columns, name)
        changed = {row: text(record).encode() for row, record in replaced.items()}
        column.change(keep, changed, [text(record).encode() for record in added])
    vectors = columns.embeddings
    vectors.change(
        keep,
        {row: record.vector or b"" for row, record in replaced.items()},
        [record.vector or b"" for record in added],
    )
    numbers = _numbers(columns, [*replaced.values(), *added])
    at = list(replaced)
    for name, values in numbers.items():
        old = getattr(columns, name) if keep is None else getattr(columns, name)[keep]
        new = np.concatenate([old, values[len(at) :]])
        new[at] = values[: len(at)]
        setattr(columns, name, new)
    columns.ids = np.concatenate([ids, np.array([record.id for record in added], np.int64)])
    for changes, flag in ((overlay.deleted, 1), (overlay.undeleted, 0)):
        columns.tombstones[_rows(columns, changes)] = flag
    for id, weight in overlay.activation.items():
        columns.activation[_rows(columns, {id})] = weight


def _rows(columns: Columns, ids: set[int]) -> list[int]:
    """Rows of the ids that are stored."""
    rows = (columns.row_of(id) for id in ids)
    return [row for row in rows if row >= 0]


def _numbers(columns: Columns, records: list[Record]) -> dict[str, npt.NDArray[Any]]:
    """The number columns of some records."""
    dim, dtype = columns.config.dim, columns.embeddings.dtype
    norms = np.zeros(len(records), np.float32)
    vectors = [(at, record.vector) for at, record in enumerate(records) if record.vector is not None]
    for at, vector in vectors:
        if len(vector) != dim * dtype.itemsize:
            raise DamagedError(
                path=columns.path, detail=f"the log's record {records[at].id} has a vector of another size"
            )
    step = max(1, _NORMED // dim)
    for start in range(0, len(vectors), step):
        rows, some = zip(*vectors[start : start + step], strict=True)
        norms[list(rows)] = norms_of(np.frombuffer(b"".join(some), dtype).reshape(-1, dim))
    return {
        "timestamps": np.array([record.timestamp for record in records], np.float64),
        "tombstones": np.array([record.deleted for record in records], np.uint8),
        "norms": norms,
        "activation": np.array([record.activation for record in records], np.float32),
    }


def _apply_tables(columns: Columns, overlay: Overlay) -> None:
    for name, table in (
        ("session_rows", overlay.sessions), ("entity_rows", overlay.entities),
        ("relation_rows", overlay.relations), ("alias_rows", overlay.aliases),
    ):  # fmt: skip
        if table is not None:
            setattr(columns, name, list(table.values()))


def _apply_events(columns: Columns, overlay: Overlay) -> None:
    if overlay.purged:
        columns.events = [event for event in columns.events if event.record_id not in overlay.purged]
    if overlay.closed:
        for event in columns.events:
            if event.recorded_to == 0:
                event.recorded_to = overlay.closed.get((event.label, event.event_id, event.scope_key), 0)
    if overlay.events:
        columns.events.extend(overlay.events)
    if overlay.values:
        values = {(row.scope_key, row.value_key): row for row in columns.values}
        values.update(overlay.values)
        columns.values = list(values.values())


def settle_references(columns: Columns) -> None:
    """Make every reference to a record the id of a row, or -1."""
    for session in columns.session_rows:
        first, last = session.start, session.end
        if first >= 0 and last >= 0:
            low = int(np.searchsorted(columns.ids, first))
            high = int(np.searchsorted(columns.ids, last, side="right")) - 1
            inside = low <= high
            session.start, session.end = (int(columns.ids[at]) if inside else -1 for at in (low, high))
        else:  # no first record: the last one stands alone, if it is there
            session.start, session.end = -1, last if first < 0 and columns.row_of(last) >= 0 else -1
    for entity in columns.entity_rows:
        if columns.row_of(entity.record_id) < 0:
            entity.record_id = -1
