"""Store files for the tests of the HDF5 side, and a disk that fails once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from clawmem_core.model import StoreConfig
from clawmem_core.storage import fs, hdf5_file, schema
from clawmem_core.storage.columns import Columns, TextColumn, VectorColumn, norms_of
from clawmem_core.storage.log_format import LogState
from clawmem_core.storage.row_ops import Alias, Entity, EventRow, Relation, Session, ValueRow

TEXTS = ("chunks", "source_channel", "session_ids", "tags", "keys", "source_ids")
NUMBERS = ("ids", "timestamps", "tombstones", "norms", "activation")
TABLES = ("session_rows", "entity_rows", "relation_rows", "alias_rows", "events", "values")


def columns_of(count: int, dim: int = 3, **settings: Any) -> Columns:
    """Columns of `count` plain records with ids from 0."""
    columns = Columns(StoreConfig(dim=dim, created_at="2026-01-01T00:00:00Z", **settings))
    columns.store_id, columns.checkpoint_id = b"store-id-16bytes", os.urandom(16)
    columns.log_state = LogState(seq=count, next_record_id=count, rows=count, active=count).pack()
    columns.ids = np.arange(count, dtype=np.int64)
    columns.chunks = TextColumn.of([f"text {row}" for row in range(count)])
    columns.source_channel = TextColumn.of(["chat"] * count)
    columns.session_ids = TextColumn.of([f"s{row // 10}" for row in range(count)])
    for name in ("tags", "keys", "source_ids"):
        setattr(columns, name, TextColumn.of([""] * count))
    base = (np.arange(count * dim).reshape(count, dim) % 50 + 1).astype(columns.embeddings.dtype)
    columns.embeddings = VectorColumn("", "", base, count, dim, base.dtype)
    columns.timestamps = np.arange(count, dtype=np.float64)
    columns.tombstones = np.zeros(count, np.uint8)
    columns.norms = norms_of(base)
    columns.activation = np.ones(count, np.float32)
    return columns


def fill_tables(columns: Columns) -> None:
    """Sessions, graph, events, value tombstones and audit lines for columns with at least three records."""
    columns.session_rows = [Session("s0", 0, 2, "chat", "summary ä", 1.5), Session("s1", -1, -1, "", "", 0.0)]
    columns.entity_rows = [Entity(0, "Alice", "person", 1), Entity(7, "Bob", "person", -1)]
    columns.relation_rows = [Relation(0, 7, "knows", 0.5, 9.25)]
    columns.alias_rows = [Alias("my friend", 7)]
    columns.events = [
        event(1, version=1, recorded_to=6),
        event(1, version=2),
        event(2, status=3, source_event="\ud800"),
    ]
    columns.values = [ValueRow(b"v" * 32, b"s" * 32, "wrong", "tester", 5), ValueRow(b"w" * 32, b"s" * 32, "", "", 6)]
    columns.values[1].lifted = True
    columns.audit = bytes(range(72)) * 3


def event(record_id: int, **changes: Any) -> EventRow:
    """An active fact about a record."""
    values: dict[str, Any] = {
        "label": 2, "status": 2, "trust": 1, "record_id": record_id, "valid_from": 1.0, "recorded_from": 5,
        "event_id": bytes([record_id % 256]) * 32, "scope_key": b"s" * 32, "session": "s0",
        "payload": b'{"a":"\\ud800"}',
    }  # fmt: skip
    return EventRow(**{**values, **changes})


def write(path: Path, columns: Columns) -> list[str]:
    """Write a store file; returns the warnings."""
    fd = fs.open_file(str(path), fs.RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        with hdf5_file.writing(fd, str(path)) as file:
            return schema.write(file, columns)
    finally:
        fs.close(fd)


def load(path: Path) -> Columns:
    """Load a store file; closing the columns closes it."""
    fd = fs.open_file(str(path))
    try:
        columns = schema.load(fd, str(path))
    except BaseException:
        fs.close(fd)
        raise
    columns.fd = fd
    return columns


def content(columns: Columns) -> dict[str, Any]:
    """Everything a store holds, comparable by ==."""
    found: dict[str, Any] = {name: list(getattr(columns, name)) for name in TEXTS}
    found |= {name: getattr(columns, name).tolist() for name in NUMBERS}
    found |= {name: [fields(row) for row in getattr(columns, name)] for name in TABLES}
    found["embeddings"] = columns.embeddings.read(0, len(columns.embeddings)).tolist()
    return found | {"config": columns.config.as_dict(), "audit": columns.audit}


def fields(row: Any) -> tuple[Any, ...]:
    """The fields of a row as a tuple."""
    return tuple(getattr(row, name) for name in row.__slots__)


@contextmanager
def edited(path: Path) -> Iterator[h5py.File]:
    """The file, open for changes by another tool."""
    with h5py.File(path, "r+") as file:
        yield file


class FailingLayer(fs.RealLayer):
    """The operating system, but call number `at` of the methods `names` fails with ENOSPC (once, or from then on)."""

    def __init__(self, names: tuple[str, ...], at: int, lasting: bool = False) -> None:
        self.calls, self.at, self.lasting = 0, at, lasting
        for name in names:
            setattr(self, name, self._failing(getattr(fs.RealLayer, name)))

    def _failing(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self.at or (self.lasting and self.calls > self.at):
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*arguments)

        return call

    @property
    def hit(self) -> bool:
        """Whether a call failed."""
        return self.calls >= self.at


@contextmanager
def failing(names: tuple[str, ...], at: int, lasting: bool = False) -> Iterator[FailingLayer]:
    """The storage shim over a FailingLayer."""
    layer, real = FailingLayer(names, at, lasting), fs.layer
    fs.layer = layer
    try:
        yield layer
    finally:
        fs.layer = real
