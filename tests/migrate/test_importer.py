"""New stores from the documented layout."""

from __future__ import annotations

import json
import sqlite3
import struct

import h5py
import numpy as np
import pytest

from clawmem_core.model import SearchOptions
from clawmem_core.storage import fs
from clawmem_core.store import MemoryStore
from clawmem_migrate import importer

GRAPH = """
INSERT INTO sessions VALUES('s0', 10, 30, 'api', 1.7e9, 'first'), ('s1', NULL, NULL, NULL, NULL, NULL);
INSERT INTO entities VALUES(5, 'Alice', 'person', 20), (9, 'Acme', 'company', -1), (12, 'Bob', 'person', NULL);
INSERT INTO relations VALUES(9, 5, 'employs', 0.1, 7), (12, 5, 'knows', NULL, NULL);
"""


def test_every_field_comes_over(tmp_path, make, migrate, records_of):
    """Ids with gaps in any order, NULLs, deleted rows: numbered from 0 in id order, every field kept."""
    source = make.rows(
        tmp_path / "a.db",
        [make.row(30, source_channel=None, tags=None), make.row(10, deleted=1), make.row(20, session_id=None)],
        GRAPH,
    )
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--agent-id", "me", "--validate-full")
    assert answer.code == 0
    assert (3, 0, 0, 0, 0) == answer.counts
    found = records_of(tmp_path / "m.h5")
    assert [(0, "10", True), (1, "20", False), (2, "30", False)] == [(r.id, r.source_id, r.deleted) for r in found]
    assert ["", "a, b"] == [found[2].source_channel, found[1].tags]
    assert found[1].session_id == "" and found[2].tags == ""
    half = np.frombuffer(make.row(20)["embedding"], "<f4").astype("<f2").tobytes()
    assert half == found[1].vector
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        sessions = [(s.id, s.start, s.end, s.channel, s.summary, s.timestamp) for s in store.sessions()]
        assert [("s0", 0, 2, "api", "first", 1.7e9), ("s1", -1, -1, "", "", 0.0)] == sessions
        entities = [(e.id, e.name, e.type, e.record_id) for e in store.entities()]
        assert [(0, "Alice", "person", 1), (1, "Acme", "company", -1), (2, "Bob", "person", -1)] == entities
        tenth = struct.unpack("<f", struct.pack("<f", 0.1))[0]
        relations = [(r.source, r.target, r.type, r.weight, r.timestamp) for r in store.relations()]
        assert [(1, 0, "employs", tenth, 7.0), (2, 0, "knows", 1.0, 0.0)] == relations
        assert store.stats()["agent_id"] == "me"
        assert store.search(None, "text 20", SearchOptions(k=1))[0].index == 1


def test_positions_where_not_all_indexes_are_ids(tmp_path, make, migrate):
    """0 is the id of no row, so all indexes are positions in id order; -1 is none."""
    script = "INSERT INTO sessions VALUES('s', 0, 1, '', 0, ''); INSERT INTO entities VALUES(1, 'A', '', 2);"
    source = make.rows(tmp_path / "a.db", [make.row(1), make.row(2), make.row(5)], script)
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5").code == 0
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        assert (0, 1) == (store.sessions()[0].start, store.sessions()[0].end)
        assert store.entities()[0].record_id == 1  # 2 is an id among the entities' indexes, so it is read as one


def test_indexes_follow_rows_that_are_left_out(tmp_path, make, migrate):
    """A session loses its deleted ends, an entity its deleted row."""
    script = "INSERT INTO sessions VALUES('s', 1, 4, '', 0, ''); INSERT INTO entities VALUES(1, 'A', '', 1);"
    rows = [make.row(id, deleted=int(id in (1, 4))) for id in range(1, 6)]
    source = make.rows(tmp_path / "a.db", rows, script)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--skip-deleted")
    assert answer.report["records"]["left_out"] == 2
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        assert (0, 1) == (store.sessions()[0].start, store.sessions()[0].end)
        assert store.entities()[0].record_id == -1
        assert store.stats()["count"] == 3


def test_f32_keeps_every_bit(tmp_path, make, migrate, records_of):
    """Values float16 cannot hold come over with --f32."""
    source = make.rows(tmp_path / "a.db", [make.row(1, embedding=make.vector(1e5, 1e-30, -3.1, 0))])
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "no.h5").code == 2
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--f32").code == 0
    assert make.vector(1e5, 1e-30, -3.1, 0) == records_of(tmp_path / "m.h5")[0].vector


def test_an_existing_output_is_kept(tmp_path, make, migrate, files_of):
    """Without --incremental an output that is there is refused and not touched."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    (tmp_path / "m.h5").write_text("mine")
    before = files_of(tmp_path)
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5").code == 15
    assert before == files_of(tmp_path)


def test_an_empty_source_needs_the_dimension(tmp_path, make, migrate):
    """No row tells the length of the vectors; with --embedding-dim the store is empty."""
    source = make.rows(tmp_path / "a.db", [])
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    assert answer.code == 2 and "--embedding-dim" in answer.error["hint"]
    assert not list(tmp_path.glob("m.h5*"))
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--embedding-dim", 7).code == 0
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        assert (0, 7) == (store.stats()["count"], store.stats()["embedding_dim"])


def test_compression_and_old_flags(tmp_path, make, migrate):
    """--compression deflates the vectors at a level between 1 and 9; --float16 is the default."""
    source = make.rows(tmp_path / "a.db", [make.row(id) for id in range(20)])
    flags = ("--compression", "--compression-level", "99", "--float16")
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", *flags).code == 0
    with h5py.File(tmp_path / "m.h5") as file:
        assert file["memory/embeddings"].compression == "gzip"
        assert file["memory/embeddings"].compression_opts == 9


def test_a_flipped_byte_is_found_before_the_output_has_its_name(tmp_path, make, migrate, monkeypatch):
    """Validation reads the finished file from disk: a flipped text byte drops it, and the report names the row."""
    source = make.rows(tmp_path / "a.db", [make.row(id) for id in range(30)])
    confirm = importer._NewStore.confirm

    def flip(self, temp):
        with open(temp, "r+b") as file:
            data = file.read()
            at = data.index(b"text 17")
            file.seek(at + 6)
            file.write(b"8")
        confirm(self, temp)

    monkeypatch.setattr(importer._NewStore, "confirm", flip)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    assert answer.code == 13
    (named,) = answer.report["validation"]["named"]
    assert ("records", "17", "chunk") == (named["table"], named["row"], named["field"])
    assert ["a.db", "m.h5.lock"] == sorted(path.name for path in tmp_path.iterdir())


class _Full:
    """A storage layer whose disk is full after some bytes."""

    def __init__(self, real, room):
        self._real, self.room = real, room

    def __getattr__(self, name):
        return getattr(self._real, name)

    def pwrite(self, fd, data, offset):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self._real.pwrite(fd, data, offset)


@pytest.mark.parametrize("room", [0, 1_000, 20_000, 45_000])
def test_a_full_disk_leaves_nothing(tmp_path, make, migrate, monkeypatch, room):
    """Wherever the disk fills up: exit 74 or a complete store, never half of one."""
    source = make.rows(tmp_path / "a.db", [make.row(id) for id in range(30)])
    monkeypatch.setattr(fs, "layer", _Full(fs.layer, room))
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    assert answer.code == 74
    assert {"a.db", "m.h5.lock"} >= {path.name for path in tmp_path.iterdir()}


def test_an_interrupt_leaves_nothing(tmp_path, make, migrate, monkeypatch):
    """Control-C while rows are written: exit 130, no file but the source."""
    source = make.rows(tmp_path / "a.db", [make.row(id) for id in range(30)])

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importer.Side, "add", interrupt)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    assert 130 == answer.code == answer.error["exit"]
    assert ["a.db"] == [path.name for path in tmp_path.iterdir()]


def test_a_source_that_changes_meanwhile_is_refused(tmp_path, make, migrate, monkeypatch):
    """A WAL-mode database nobody has open is read without a lock: a write to it during the run drops the output."""
    source = make.rows(tmp_path / "a.db", [make.row(1)], "PRAGMA journal_mode = wal;")
    confirm = importer._NewStore.confirm

    def write(self, temp):
        with sqlite3.connect(source) as db:
            db.execute("UPDATE memory_chunks SET tags = 'new'")
        db.close()
        confirm(self, temp)

    monkeypatch.setattr(importer._NewStore, "confirm", write)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    assert 11 == answer.code and "source-changed" == answer.error["code"]
    assert not (tmp_path / "m.h5").exists()


def test_dry_run_only_counts(tmp_path, make, migrate):
    """--dry-run looks at no row and makes nothing, and needs no destination."""
    rows = [make.row(1, embedding=b"x"), make.row(2, deleted=1)]
    source = make.rows(tmp_path / "a.db", rows, GRAPH.split(";")[0] + ";")
    answer = migrate("--sqlite", source, "--dry-run")
    assert {"records": 2, "sessions": 2, "entities": 0, "relations": 0} == answer.report["would_migrate"]
    assert migrate("--sqlite", source, "--dry-run", "--skip-deleted").report["would_migrate"]["records"] == 1
    assert ["a.db"] == [path.name for path in tmp_path.iterdir()]


def test_many_rows_in_several_batches(tmp_path, make, migrate, records_of):
    """Batches, halves of batches with bad rows in them, and the sample of the validation."""
    rows = [make.row(id, **({"deleted": 2} if id in (0, 777, 2999) else {})) for id in range(3000)]
    source = make.rows(tmp_path / "a.db", rows)
    answer = migrate(
        "--sqlite", source, "--hdf5", tmp_path / "m.h5", "--skip-invalid", "--rejects", tmp_path / "r.ndjson"
    )
    assert answer.code == 3
    assert [0, 777, 2999] == [problem["row"] for problem in answer.report["problems"]]
    assert [0, 777, 2999] == [json.loads(line)["row"] for line in (tmp_path / "r.ndjson").read_text().splitlines()]
    validation = answer.report["validation"]
    assert (2997, 1000, False) == (validation["rows_compared"], validation["rows_read_again"], validation["full"])
    wanted = [str(id) for id in range(3000) if id not in (0, 777, 2999)]
    assert wanted == [record.source_id for record in records_of(tmp_path / "m.h5")]
