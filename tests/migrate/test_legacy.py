"""Stores of the Rust tools."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from clawmem_core.store import MemoryStore

DATA = Path(__file__).resolve().parents[1] / "data/clawhdf5-2.1.0"
EVAL = os.environ.get("CLAWMEM_EVAL_DATA", "")


def test_graph_and_record(tmp_path, migrate, files_of):
    """Every kind of row of a small store, its agent id kept, the old files untouched."""
    before = files_of(DATA)
    answer = migrate("--clawhdf5", DATA / "kg.h5", "--hdf5", tmp_path / "m.h5", "--f32")
    assert answer.code == 0, answer
    assert before == files_of(DATA)
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        (record,) = store.records()
        assert ("x", "chat", 1.0, "s", "k", "0") == (
            record.chunk, record.source_channel, record.timestamp, record.session_id, record.tags, record.source_id
        )  # fmt: skip
        assert np.array([1, 0], "<f4").tobytes() == record.vector
        assert ["Alice", "Bob"] == [entity.name for entity in store.entities()]
        assert 1e8 < store.relations()[0].timestamp < 1e11
        assert "ag" == store.stats()["agent_id"]
    with h5py.File(tmp_path / "m.h5") as file:
        assert [b"my friend"] == [bytes(one) for one in file["knowledge_graph/alias_strings"][...].tolist()]


def test_an_empty_store(tmp_path, migrate):
    """No records, the dimension of the old store; --agent-id names another agent."""
    assert migrate("--clawhdf5", DATA / "empty.h5", "--hdf5", tmp_path / "m.h5", "--agent-id", "new").code == 0
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        stats = store.stats()
    assert (0, 4, "new") == (stats["count"], stats["embedding_dim"], stats["agent_id"])


def test_refusals(tmp_path, make, migrate):
    """A missing file, something else, a store of this toolchain, options that are for SQLite."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    migrate("--sqlite", source, "--hdf5", tmp_path / "own.h5")
    for old, code in (("nope.h5", 10), ("a.db", 14), ("own.h5", 14)):
        assert migrate("--clawhdf5", tmp_path / old, "--hdf5", tmp_path / "m.h5").code == code
    assert migrate("--clawhdf5", DATA / "kg.h5", "--hdf5", tmp_path / "m.h5", "--incremental").code == 2
    assert migrate("--clawhdf5", DATA / "kg.h5", "--hdf5", tmp_path / "m.h5", "--embedding-dim", 3).code == 14


@pytest.mark.skipif(not EVAL, reason="CLAWMEM_EVAL_DATA is not set: larger stores of the Rust tools")
def test_pending_log(tmp_path, migrate):
    """Sixty records of the file and nine of its log."""
    folder = Path(EVAL) / "clawhdf5-2.1.0"
    shutil.copytree(folder, tmp_path / "old")
    answer = migrate("--clawhdf5", tmp_path / "old/legacy-60.h5", "--hdf5", tmp_path / "m.h5")
    assert (69, 0, 0, 0, 0) == answer.counts
