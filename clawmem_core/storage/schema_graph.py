"""/sessions and /knowledge_graph: on disk they refer to records by position, in memory by stable id.

Invariants: a reference read from a file of ours is the id of an existing row or -1; one written is the position of the
row that has the id, or -1 where there is none; times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError
from clawmem_core.storage import hdf5_file, schema_text
from clawmem_core.storage.columns import Columns, Rows, TextColumn, finite
from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session

_Column = list[Any]


def write(file: h5py.File, columns: Columns) -> None:
    """Write both groups, empty datasets included."""
    group = file.create_group("sessions")
    sessions = columns.session_rows
    _texts(group, "ids", [row.id for row in sessions])
    _texts(group, "channels", [row.channel for row in sessions])
    _texts(group, "summaries", [row.summary for row in sessions])
    group.create_dataset("start_idxs", data=positions(columns.ids, [row.start for row in sessions]))
    group.create_dataset("end_idxs", data=positions(columns.ids, [row.end for row in sessions]))
    group.create_dataset("timestamps", data=np.array([row.timestamp for row in sessions], "<f8"))
    group = file.create_group("knowledge_graph")
    entities, relations, aliases = columns.entity_rows, columns.relation_rows, columns.alias_rows
    group.create_dataset("entity_ids", data=np.array([row.id for row in entities], "<i8"))
    _texts(group, "entity_names", [row.name for row in entities])
    _texts(group, "entity_types", [row.type for row in entities])
    group.create_dataset("entity_emb_idxs", data=positions(columns.ids, [row.record_id for row in entities]))
    group.create_dataset("relation_srcs", data=np.array([row.source for row in relations], "<i8"))
    group.create_dataset("relation_tgts", data=np.array([row.target for row in relations], "<i8"))
    _texts(group, "relation_types", [row.type for row in relations])
    group.create_dataset("relation_weights", data=np.array([row.weight for row in relations], "<f4"))
    group.create_dataset("relation_ts", data=np.array([row.timestamp for row in relations], "<f8"))
    if aliases:
        _texts(group, "alias_strings", [row.name for row in aliases])
        group.create_dataset("alias_entity_ids", data=np.array([row.entity_id for row in aliases], "<i8"))


def _texts(group: h5py.Group, name: str, texts: list[str]) -> None:
    schema_text.write(group, name, TextColumn.of(texts))


def positions(ids: Rows, wanted: list[int]) -> Rows:
    """The row of each record id, -1 where there is none."""
    numbers = np.array(wanted, np.int64)
    if not len(ids):
        return np.full(len(numbers), -1, np.int64)
    rows = np.minimum(np.searchsorted(ids, numbers), len(ids) - 1)
    return np.where(ids[rows] == numbers, rows, -1).astype(np.int64)


def load(file: h5py.File, columns: Columns) -> None:
    """Fill sessions and graph of `columns`, whose ids are loaded. Raises DamagedError naming the dataset."""
    path = columns.path
    sessions, graph = hdf5_file.find(file, "sessions", path), hdf5_file.find(file, "knowledge_graph", path)
    for name, group in (("sessions", sessions), ("knowledge_graph", graph)):
        if not isinstance(group, h5py.Group):
            raise DamagedError(path=path, detail=f"group /{name} is missing")
    names = _read_texts(sessions, "ids", path, None)
    if names:
        count = len(names)
        starts = _references(sessions, "start_idxs", columns, count)
        ends = _references(sessions, "end_idxs", columns, count)
        if columns.format and any(start > end for start, end in zip(starts, ends, strict=True)):
            raise DamagedError(path=path, detail="/sessions/end_idxs: a session ends before it starts")
        rest = [_read_texts(sessions, name, path, count) for name in ("channels", "summaries")]
        times = _numbers(sessions, "timestamps", path, count, "<f8")
        rows = zip(names, starts, ends, *rest, times, strict=True)
        columns.session_rows = list({row[0]: Session(*row) for row in rows}.values())
        if len(columns.session_rows) < count:
            columns.warnings.append("/sessions/ids: of sessions with one id the last was taken")
    numbers = _numbers(graph, "entity_ids", path, None, "<i8", least=0)
    if numbers:
        count = len(numbers)
        if len(set(numbers)) < count:
            raise DamagedError(path=path, detail="/knowledge_graph/entity_ids: an id stands twice")
        rest = [_read_texts(graph, name, path, count) for name in ("entity_names", "entity_types")]
        records = _references(graph, "entity_emb_idxs", columns, count)
        columns.entity_rows = [Entity(*row) for row in zip(numbers, *rest, records, strict=True)]
    sources = _numbers(graph, "relation_srcs", path, None, "<i8", least=0)
    if sources:
        count = len(sources)
        targets = _numbers(graph, "relation_tgts", path, count, "<i8", least=0)
        types = _read_texts(graph, "relation_types", path, count)
        weights = _numbers(graph, "relation_weights", path, count, "<f4")
        times = _numbers(graph, "relation_ts", path, count, "<f8")
        relations = (Relation(*row) for row in zip(sources, targets, types, weights, times, strict=True))
        columns.relation_rows = list({(row.source, row.target, row.type): row for row in relations}.values())
    texts = list(schema_text.open_column(graph, "alias_strings", path, None, optional=True))
    if texts:
        owners = _numbers(graph, "alias_entity_ids", path, len(texts), "<i8", least=0)
        columns.alias_rows = list({name: Alias(name, id) for name, id in zip(texts, owners, strict=True)}.values())


def _read_texts(group: h5py.Group, name: str, path: str, count: int | None) -> list[str]:
    return list(schema_text.open_column(group, name, path, count))


def _references(group: h5py.Group, name: str, columns: Columns, count: int) -> _Column:
    """Positions as record ids. In a file of other tools they may lie beyond the rows: its log may hold those."""
    path, ids = columns.path, columns.ids
    rows = _array(group, name, path, count, "<i8")
    if not columns.format:
        found: _Column = np.maximum(rows, -1).tolist()
        return found
    if count and not -1 <= rows.min() <= rows.max() < len(ids):
        raise DamagedError(path=path, detail=f"{group.name}/{name}: a position is outside -1 to {len(ids) - 1}")
    found = np.where(rows < 0, -1, ids[rows] if len(ids) else -1).tolist()
    return found


def _numbers(
    group: h5py.Group, name: str, path: str, count: int | None, dtype: str, least: int | None = None
) -> _Column:
    values = _array(group, name, path, count, dtype)
    if not finite(values) or (least is not None and len(values) and values.min() < least):
        raise DamagedError(path=path, detail=f"{group.name}/{name}: a value is out of range")
    found: _Column = values.tolist()
    return found


def _array(group: h5py.Group, name: str, path: str, count: int | None, dtype: str) -> npt.NDArray[Any]:
    full = f"{group.name}/{name}"
    dataset = hdf5_file.find(group, name, path)
    with hdf5_file.reading(path, full):
        kind = dataset.dtype.kind if isinstance(dataset, h5py.Dataset) else ""
    if not kind or kind not in ("i" if dtype == "<i8" else "iuf"):
        raise DamagedError(path=path, detail=f"{full} is missing or no column of numbers")
    schema_text.check_shape(dataset, path, None if count is None else (count,), 1)
    with hdf5_file.reading(path, full), np.errstate(over="ignore"):
        return np.ascontiguousarray(dataset[...], dtype)
