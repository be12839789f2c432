"""--check: equality is proven, and any difference found, on either side."""

from __future__ import annotations

import h5py
import pytest

from clawmem_core.model import MemoryEntry
from clawmem_core.store import MemoryStore

GRAPH = """
INSERT INTO sessions VALUES('s0', 1, 3, 'api', 1.7e9, 'first');
INSERT INTO entities VALUES(5, 'Alice', 'person', 2), (9, 'Acme', 'company', -1);
INSERT INTO relations VALUES(9, 5, 'employs', 0.5, 7);
"""


@pytest.fixture
def pair(tmp_path, make, migrate):
    """A source with a graph, and its store."""
    source = make.rows(tmp_path / "a.db", [make.row(id, deleted=int(id == 4)) for id in range(1, 6)], GRAPH)
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5").code == 0
    return source, tmp_path / "m.h5"


def test_a_good_copy(pair, migrate, files_of):
    """Exit 0, both digests equal, nothing written; the agent's own records do not count."""
    source, store = pair
    with MemoryStore.open(store) as opened:
        opened.save(MemoryEntry("mine", [1.0, 2.0, 3.0, 4.0]))
    before = files_of(store.parent)
    answer = migrate("--check", "--sqlite", source, "--hdf5", store)
    assert (0, "equal") == (answer.code, answer.report["status"])
    assert answer.report["source"]["rows_sha256"] == answer.report["store"]["rows_sha256"]
    assert before == files_of(store.parent)


@pytest.mark.parametrize(
    ("dataset", "row", "value", "table", "field"),
    [
        ("memory/embeddings", 1, 9.0, "records", "embedding"),
        ("memory/timestamps", 1, 9.0, "records", "timestamp"),
        ("memory/tombstones", 1, 1, "records", "deleted"),
        ("memory/tags", 1, b"x", "records", "tags"),
        ("memory/session_ids", 1, b"x", "records", "session_id"),
        ("memory/source_channel", 1, b"x", "records", "source_channel"),
        ("sessions/timestamps", 0, 3.0, "sessions", "timestamp"),
        ("sessions/end_idxs", 0, 1, "sessions", "end"),
        ("knowledge_graph/entity_types", 0, b"x", "entities", "type"),
        ("knowledge_graph/entity_emb_idxs", 0, 0, "entities", "record_id"),
        ("knowledge_graph/relation_weights", 0, 0.75, "relations", "weight"),
        ("knowledge_graph/relation_ts", 0, 3.0, "relations", "timestamp"),
    ],
)
def test_a_changed_store(pair, migrate, dataset, row, value, table, field):
    """One value changed in the file: exit 13, row and field named."""
    source, store = pair
    with h5py.File(store, "r+") as file:
        data = file[dataset]
        if data.ndim == 2:
            data[row, 0] = value
        else:
            data[row] = value
    answer = migrate("--check", "--sqlite", source, "--hdf5", store)
    assert (13, "differs") == (answer.code, answer.report["status"])
    (named,) = answer.report["validation"]["named"]
    assert (table, field) == (named["table"], named["field"])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memory_chunks SET tags = 'x' WHERE id = 2",
        "UPDATE memory_chunks SET deleted = 1 WHERE id = 2",
        "DELETE FROM memory_chunks WHERE id = 5",
        "INSERT INTO memory_chunks SELECT 9, chunk, embedding, 'x', 9, 's', 't', 0 FROM memory_chunks LIMIT 1",
        "UPDATE memory_chunks SET chunk = NULL WHERE id = 2",
        "UPDATE sessions SET summary = 'x'",
        "INSERT INTO entities VALUES(10, 'New', 'x', -1)",
        "UPDATE relations SET relation = 'x'",
    ],
)
def test_a_changed_source(pair, make, migrate, change):
    """Whatever changes in the source is a difference."""
    source, store = pair
    make.script(source, change)
    answer = migrate("--check", "--sqlite", source, "--hdf5", store)
    assert (13, "migration-mismatch") == (answer.code, answer.error["code"])


def test_a_deletion_pending_in_the_log(pair, migrate):
    """The log is part of the store."""
    source, store = pair
    with MemoryStore.open(store) as opened:
        opened.delete(0)
    (named,) = migrate("--check", "--sqlite", source, "--hdf5", store).report["validation"]["named"]
    assert ("1", "deleted", False, True) == tuple(named[name] for name in ("row", "field", "source", "store"))


def test_no_store(tmp_path, make, migrate):
    """A missing store is exit 10."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    assert migrate("--check", "--sqlite", source, "--hdf5", tmp_path / "m.h5").code == 10
