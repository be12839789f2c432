"""Stores for index and search tests: records -> columns -> an index, in memory or beside a file with the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clawmem_core.model import Record, StoreConfig
from clawmem_core.search.index_build import build
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.index_writer import IndexFile, MemorySink
from clawmem_core.storage import fs
from clawmem_core.storage.columns import BLOCK, Columns, TextColumn, VectorColumn, norms_of
from clawmem_core.storage.row_ops import EventRow


def record(
    id: int,
    chunk: str = "",
    vector: Sequence[float] | None = None,
    *,
    session: str = "",
    scope: bytes = b"",
    float16: bool = True,
    **fields: object,
) -> Record:
    """A record as the door makes it."""
    found = Record(id, chunk, 1e9 + id, "cli", session)
    found.scope = scope
    found.vector = None if vector is None else np.array(vector, "<f4").astype("<f2" if float16 else "<f4").tobytes()
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def columns_of(records: Sequence[Record], dim: int, **settings: object) -> Columns:
    """The columns of records in id order."""
    columns = Columns(StoreConfig(dim=dim, **settings))
    dtype = "<f2" if columns.config.float16 else "<f4"
    columns.store_id, columns.checkpoint_id = b"store id of test", b"checkpoint of it"
    columns.ids = np.array([row.id for row in records], np.int64)
    for name, values in (
        ("chunks", [row.chunk for row in records]),
        ("source_channel", [row.source_channel for row in records]),
        ("session_ids", [row.session_id for row in records]),
        ("tags", [row.tags for row in records]),
        ("keys", [row.key for row in records]),
        ("source_ids", [row.source_id for row in records]),
    ):
        setattr(columns, name, TextColumn.of(values))
    vectors = np.zeros((len(records), dim), dtype)
    for row, entry in enumerate(records):
        if entry.vector is not None:
            vectors[row] = np.frombuffer(entry.vector, dtype)
    columns.embeddings = VectorColumn("", "", vectors, len(records), dim, dtype)
    columns.norms = norms_of(vectors)
    columns.timestamps = np.array([row.timestamp for row in records], np.float64)
    columns.tombstones = np.array([row.deleted for row in records], np.uint8)
    columns.activation = np.array([row.activation for row in records], np.float32)
    columns.events = [event_of(row) for row in records if row.scope]
    return columns


def event_of(entry: Record) -> EventRow:
    """An event whose text is this record."""
    return EventRow(
        label=1, status=2, trust=1, record_id=entry.id, valid_from=0.0, recorded_from=1,
        event_id=entry.id.to_bytes(32, "big"), scope_key=entry.scope, payload=b"{}",
    )  # fmt: skip


def reader_of(records: Sequence[Record], dim: int, **settings: object) -> IndexReader:
    """A reader of an index in memory."""
    sink = MemorySink()
    build(columns_of(records, dim, **settings), IndexFile(sink), 0, 0)
    return IndexReader(sink.data, -1)


def write_store(directory: Path, columns: Columns) -> tuple[str, str]:
    """A file with checkpoint id and vectors as a checkpoint leaves them, and its index; returns both paths."""
    store, index = str(directory / "m.h5"), str(directory / "m.h5.idx")
    rows = columns.embeddings
    data = bytearray(columns.checkpoint_id.ljust(64, b"\0"))
    offsets = []
    for start in range(0, columns.count, BLOCK):
        offsets.append(len(data))
        block = rows.read(start, start + BLOCK).tobytes()
        data += block.ljust(BLOCK * columns.config.dim * rows.dtype.itemsize, b"\0")
    Path(store).write_bytes(data)
    columns.embedding_offsets, columns.checkpoint_id_offset = offsets, 0
    stat = fs.stat(store)
    assert stat is not None
    sink = MemorySink()
    build(columns, IndexFile(sink), stat.st_size, stat.st_mtime_ns)
    Path(index).write_bytes(sink.data)
    return store, index
