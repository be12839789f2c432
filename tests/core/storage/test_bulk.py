"""Streaming creation: the same store as by saving one by one, bounded in memory, all or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from clawmem_core.errors import (
    ClosedError,
    DimensionError,
    ExistsError,
    InvalidInputError,
    StorageError,
)
from clawmem_core.model import MemoryEntry, StoreConfig
from clawmem_core.storage import row_ops, schema
from clawmem_core.storage.bulk import BulkWriter
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session
from tests import rust_reader_rules
from tests.core.storage import h5
from tests.core.storage.open_store import OpenStore, no_files, record


def writer(path: Path, **settings: object) -> BulkWriter:
    """A bulk writer without derived files."""
    return BulkWriter(StorePaths(str(path)), StoreConfig(dim=3, created_at="now", **settings), derive=no_files)


def test_equals_saving_one_by_one(tmp_path: Path) -> None:
    """Records, sessions and graph make the same content as saves and a checkpoint."""
    rows = [record(id, f"text {'ä' * (id % 90)}", deleted=id % 7 == 0) for id in range(1500)]
    for row in rows[::5]:
        row.vector, row.key, row.source_id, row.activation = None, f"k{row.id}", "id", 2.0
    session, entity = Session("s", 3, 9000, "chat", "sum", 1.0), Entity(4, "Alice", "person", 77)
    relation, alias = Relation(4, 4, "is", 0.5, 2.0), Alias("al", 4)
    saved = OpenStore(tmp_path / "a.h5")
    saved.save(*rows)
    for payload in (row_ops.session(session), row_ops.entity(entity), row_ops.relation(relation), row_ops.alias(alias)):
        saved.put(payload)
    saved.checkpoint()
    with writer(tmp_path / "b.h5") as bulk:
        for row in rows:
            assert row.id == bulk.add_record(row)
        bulk.add_session(session)
        bulk.add_entity(entity)
        bulk.add_relation(relation)
        bulk.add_alias(alias)
        assert 1500 == bulk.finish()
    with saved.load() as first, schema.open_columns(StorePaths(str(tmp_path / "b.h5"))) as second:
        assert h5.content(first) == h5.content(second)
    saved.close()
    with h5py.File(tmp_path / "b.h5") as file:
        rust_reader_rules.check(file)
    made = OpenStore(tmp_path / "b.h5", create=False)
    assert ([], 1500, 5) == (made.log.reports, made.log.state.next_record_id, made.log.state.next_entity_id)
    made.close()


def test_appears_only_when_finished(tmp_path: Path) -> None:
    """Before `finish`, and without it, there is nothing, not even a temporary file."""
    with writer(tmp_path / "m.h5") as bulk:
        bulk.add_record(record(0))
        assert [] == os.listdir(tmp_path)
    assert [] == os.listdir(tmp_path)
    with pytest.raises(ClosedError):
        bulk.finish()
    with pytest.raises(ClosedError):
        bulk.add_record(record(1))


def test_empty(tmp_path: Path) -> None:
    """No records make an empty store."""
    with writer(tmp_path / "m.h5") as bulk:
        assert 0 == bulk.finish()
    with schema.open_columns(StorePaths(str(tmp_path / "m.h5"))) as found:
        assert 0 == found.count


def test_entries_pass_the_door(tmp_path: Path) -> None:
    """What `save` refuses is refused here, and the writer goes on."""
    with writer(tmp_path / "m.h5") as bulk:
        with pytest.raises(DimensionError):
            bulk.add(MemoryEntry("a", [1.0]))
        with pytest.raises(InvalidInputError, match="NUL"):
            bulk.add(MemoryEntry("a\0"))
        with pytest.raises(InvalidInputError, match="activation"):
            bulk.add(MemoryEntry("a"), activation=5.0)
        assert 0 == bulk.add(MemoryEntry("kept", [1.0, 0.1, 2.0], timestamp=5.0, key="k"), activation=0.5)
        with pytest.raises(InvalidInputError, match="twice"):
            bulk.add(MemoryEntry("again", key="k"))
        assert 1 == bulk.add(MemoryEntry("again", key="k"), deleted=True)
        bulk.finish()
    with schema.open_columns(StorePaths(str(tmp_path / "m.h5"))) as found:
        assert ["kept", "again"] == list(found.chunks)
        assert ([0, 1], [0.5, 1.0]) == (found.tombstones.tolist(), found.activation.tolist())
        assert np.array([1.0, 0.1, 2.0], "f2").tolist() == found.embeddings.read(0, 1)[0].tolist()


def test_ids_ascend(tmp_path: Path) -> None:
    """Given ids may leave gaps, but not go back; the next free one follows."""
    with writer(tmp_path / "m.h5") as bulk:
        assert [5, 9, 10] == [bulk.add_record(record(id)) for id in (5, 9, -1)]
        with pytest.raises(InvalidInputError, match="ascend"):
            bulk.add_record(record(10))


@pytest.mark.parametrize("name", ["m.h5", "m.h5.wal"])
def test_never_clobbers(tmp_path: Path, name: str) -> None:
    """What lies there is kept, whether it was there before or came meanwhile."""
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(ExistsError):
        writer(tmp_path / "m.h5")
    os.unlink(tmp_path / name)
    with writer(tmp_path / "m.h5") as bulk:
        (tmp_path / name).write_bytes(b"precious")
        with pytest.raises(ExistsError):
            bulk.finish()
    assert b"precious" == (tmp_path / name).read_bytes()


def test_full_disk(tmp_path: Path) -> None:
    """A failing write, early or late, leaves nothing."""
    for at in (1, 5, 8, 30):
        with h5.failing(("pwrite",), at, lasting=True), pytest.raises(StorageError), writer(tmp_path / "m.h5") as bulk:
            for id in range(100):
                bulk.add_record(record(id))
            bulk.finish()
        assert {"m.h5.lock"} >= set(os.listdir(tmp_path))


def test_memory_is_bounded(tmp_path: Path) -> None:
    """60,000 records of 384 dimensions (46 MB of vectors, 30 MB of texts) take little more memory than none."""
    program = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from clawmem_core.model import Record, StoreConfig
from clawmem_core.storage.bulk import BulkWriter
from clawmem_core.storage.paths import StorePaths
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scale = 1024 if sys.platform == "darwin" else 1
start = peak()
with BulkWriter(StorePaths({str(tmp_path / "m.h5")!r}), StoreConfig(created_at="now"), derive=lambda *_: []) as bulk:
    for id in range(60_000):
        record = Record(-1, f"{{id}} " * 80, 1.0)
        record.vector = bytes([1, 60]) * 384
        bulk.add_record(record)
    bulk.finish()
print((peak() - start) // scale)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert int(done.stdout) < 40 * 1024
