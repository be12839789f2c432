"""Incremental runs: the store follows its source, the agent's deletions stay, and a second run changes nothing."""

from __future__ import annotations

import random

import h5py
import pytest

from clawmem_core.integrity.keys import keygen
from clawmem_core.model import MemoryEntry, SearchOptions
from clawmem_core.store import MemoryStore

COPY = "INSERT INTO memory_chunks SELECT {id}, chunk, embedding, 'x', 9, 's', 't', {deleted} FROM memory_chunks LIMIT 1"


@pytest.fixture
def pair(tmp_path, make, migrate):
    """A source of five rows and its store; returns both and a function that runs again."""
    rows = {id: make.row(id, deleted=int(id == 3)) for id in (1, 2, 3, 5, 8)}
    source = make.rows(tmp_path / "a.db", rows.values())
    store = tmp_path / "m.h5"
    assert migrate("--sqlite", source, "--hdf5", store).code == 0

    def again(*words):
        answer = migrate("--sqlite", source, "--hdf5", store, "--incremental", *words)
        assert answer.code == 0, answer
        return answer

    return source, store, again


def _live(records):
    return {record.source_id for record in records if not record.deleted}


def test_an_unchanged_source_changes_no_byte(pair, files_of):
    """Nothing is written, not even a checkpoint."""
    source, _, again = pair
    before = files_of(source.parent)
    answer = again()
    after = files_of(source.parent)
    assert (0, 0, 0, 0, 5) == answer.counts and answer.report["status"] == "unchanged"
    assert before | {"m.h5.lock": ""} == after | {"m.h5.lock": ""}  # the lock names its last owner and the time


def test_each_kind_of_change(pair, make, records_of):
    """Added (also with a smaller id), updated, deleted, undeleted; twice gives zero changes."""
    source, store, again = pair
    make.script(source, "UPDATE memory_chunks SET tags = 'new' WHERE id = 1")
    make.script(source, "UPDATE memory_chunks SET deleted = 1 WHERE id = 2")
    make.script(source, "UPDATE memory_chunks SET deleted = 0 WHERE id = 3")
    make.script(source, COPY.format(id=4, deleted=0))
    assert (1, 1, 1, 1, 2) == again().counts
    assert (0, 0, 0, 0, 6) == again().counts
    found = {record.source_id: record for record in records_of(store)}
    assert ("new", True, False, 5) == (found["1"].tags, found["2"].deleted, found["3"].deleted, found["4"].id)
    with MemoryStore.open_read_only(store) as opened:
        assert opened.search(None, found["5"].chunk, SearchOptions(k=1))[0].index == found["5"].id


def test_the_agents_deletion_stays(pair, make, records_of):
    """Also when the source deletes the row and takes that back, and after compact."""
    source, store, again = pair
    with MemoryStore.open(store) as opened:
        opened.delete(4)  # source id 8
    assert (0, 0, 0, 0, 5) == again().counts
    for flag in (1, 0):
        make.script(source, f"UPDATE memory_chunks SET deleted = {flag} WHERE id = 8")
        make.script(source, f"UPDATE memory_chunks SET tags = '{flag}' WHERE id = 1")  # so that something is written
        assert (0, 1, 0, 0, 4) == again().counts
    assert "8" not in _live(records_of(store))
    with MemoryStore.open(store) as opened:
        opened.compact()
    assert (0, 0, 0, 0, 5) == again().counts
    assert {"1", "2", "5"} == _live(records_of(store))


def test_after_compact_only_the_source_brings_rows_back(pair, make, records_of):
    """A row the source had deleted comes back when the source takes that back, under a new number."""
    source, store, again = pair
    with MemoryStore.open(store) as opened:
        opened.compact()
    assert (0, 0, 0, 0, 5) == again().counts
    make.script(source, "UPDATE memory_chunks SET deleted = 0 WHERE id = 3")
    assert (0, 0, 0, 1, 4) == again().counts
    assert 5 == next(record.id for record in records_of(store) if record.source_id == "3")
    assert (0, 0, 0, 0, 5) == again().counts


def test_the_agents_own_records_are_left_alone(pair, make, records_of):
    """Records without a source id, keys and pending log entries of the agent survive."""
    source, store, again = pair
    with MemoryStore.open(store) as opened:
        opened.save(MemoryEntry("mine", [1.0, 2.0, 3.0, 4.0], key="k"))
        opened.boost([0])
    make.script(source, "UPDATE memory_chunks SET tags = 'new' WHERE id = 1")
    assert (0, 1, 0, 0, 4) == again().counts
    found = records_of(store)
    assert ("mine", "k") == (found[5].chunk, found[5].key)
    assert found[0].activation > 1


def test_rows_the_source_no_longer_has_are_kept(pair, make, records_of):
    """They are counted, not deleted."""
    source, store, again = pair
    make.script(source, "DELETE FROM memory_chunks WHERE id = 5")
    answer = again()
    assert (0, 0, 0, 0, 4) == answer.counts and answer.report["records"]["not_in_source"] == 1
    assert "5" in _live(records_of(store))


def test_skip_deleted_carries_the_flag_of_held_rows(pair, make, records_of):
    """--skip-deleted leaves new deleted rows out, and deletes held ones."""
    source, store, again = pair
    make.script(source, "UPDATE memory_chunks SET deleted = 1 WHERE id = 1")
    make.script(source, COPY.format(id=9, deleted=1))
    assert (0, 0, 1, 0, 3) == again("--skip-deleted").counts
    assert (0, 0, 0, 0, 3) == again("--skip-deleted").counts
    assert {"2", "5", "8"} == _live(records_of(store)) and len(records_of(store)) == 5
    make.script(source, "UPDATE memory_chunks SET deleted = 0 WHERE id = 1")
    assert (0, 0, 0, 1, 3) == again("--skip-deleted").counts


def test_sessions_and_graph_follow(pair, make):
    """Changed and new sessions, entities and relations; numbers of entities stay."""
    source, store, again = pair
    make.script(
        source,
        """
        INSERT INTO sessions VALUES('s', 1, 8, 'c', 1, 'one');
        INSERT INTO entities VALUES(7, 'B', 't', 5); INSERT INTO relations VALUES(7, 7, 'is', 1, 1);
        """,
    )
    again()
    make.script(
        source,
        """
        UPDATE sessions SET summary = 'two'; UPDATE entities SET type = 'u';
        INSERT INTO entities VALUES(3, 'A', 't', NULL); INSERT INTO relations VALUES(3, 7, 'knows', 0.5, 2);
        """,
    )
    assert again().report["status"] == "updated"
    assert again().report["status"] == "unchanged"
    with MemoryStore.open_read_only(store) as opened:
        assert [("s", 0, 4, "two")] == [(s.id, s.start, s.end, s.summary) for s in opened.sessions()]
        assert [(0, "B", "u", 3), (1, "A", "t", -1)] == [(e.id, e.name, e.type, e.record_id) for e in opened.entities()]
        assert [(0, 0, "is"), (1, 0, "knows")] == [(r.source, r.target, r.type) for r in opened.relations()]


def test_a_locked_store_is_named(pair):
    """Another writer holds the store: exit 11, nothing changed."""
    source, store, _ = pair
    with MemoryStore.open(store):
        from clawmem_migrate import entry

        code = entry.run(["--sqlite", str(source), "--hdf5", str(store), "--incremental", "--lock-timeout", "0"])
    assert code == 11


def test_a_signed_store(pair, make, migrate, tmp_path, monkeypatch):
    """Without its key nothing is changed (12); with it the new state is signed."""
    source, store, again = pair
    keygen(str(tmp_path / "key"))
    with MemoryStore.open(store, signing_key=str(tmp_path / "key")) as opened:
        opened.flush_wal()
    make.script(source, "UPDATE memory_chunks SET tags = 'new' WHERE id = 1")
    answer = migrate("--sqlite", source, "--hdf5", store, "--incremental")
    assert (12, "signing-key-required") == (answer.code, answer.error["code"])
    monkeypatch.setenv("CLAWMEM_SIGNING_KEY_FILE", str(tmp_path / "key"))
    assert (0, 1, 0, 0, 4) == again().counts
    with MemoryStore.open_read_only(store) as opened:
        assert opened.stats()["signed"]


def test_a_failed_validation_keeps_the_old_store(pair, make, migrate, monkeypatch, records_of):
    """What validation finds drops the new file; the store is as it was and can be used."""
    from clawmem_migrate import validate

    source, store, again = pair
    make.script(source, "UPDATE memory_chunks SET tags = 'new' WHERE id = 1")
    with monkeypatch.context() as patch:
        patch.setattr(validate.Side, "digest", lambda self: str(id(self)))
        patch.setattr(validate, "_has_words", lambda text: True)
        answer = migrate("--sqlite", source, "--hdf5", store, "--incremental")
    assert answer.code == 13
    assert "a, b" == records_of(store)[0].tags
    assert not [path for path in store.parent.iterdir() if "tmp" in path.name]
    assert (0, 1, 0, 0, 4) == again().counts


def test_a_damaged_memory_of_earlier_runs(pair, migrate):
    """/migration with columns that do not fit is damage, not a reason to guess."""
    source, store, _ = pair
    with h5py.File(store, "r+") as file:
        del file["migration/flags"]
        file["migration/flags"] = [1, 2]
    assert migrate("--sqlite", source, "--hdf5", store, "--incremental").code == 13


def test_a_store_that_is_not_there_yet(tmp_path, make, migrate):
    """--incremental makes it, so that one command line serves a nightly job."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    assert (1, 0, 0, 0, 0) == migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--incremental").counts


@pytest.mark.parametrize("seed", range(3))
def test_random_histories(tmp_path, make, migrate, records_of, seed):
    """A source that grows, changes, deletes and undeletes at random: the store equals it after every run."""
    dice = random.Random(seed)
    rows = {id: make.row(id) for id in dice.sample(range(100), 10)}
    source, store = make.rows(tmp_path / "a.db", rows.values()), tmp_path / "m.h5"
    for turn in range(5):
        answer = migrate("--sqlite", source, "--hdf5", store, "--incremental", "--validate-full")
        assert answer.code == 0
        found = {record.source_id: record for record in records_of(store)}
        assert {str(id) for id in rows} == set(found)
        for id, row in rows.items():
            record = found[str(id)]
            assert (row["chunk"], row["tags"], bool(row["deleted"])) == (record.chunk, record.tags, record.deleted)
        again = migrate("--sqlite", source, "--hdf5", store, "--incremental")
        assert (0, 0, 0, 0, len(rows)) == again.counts
        check = migrate("--check", "--sqlite", source, "--hdf5", store)
        assert check.code == 0, check
        for _ in range(6):
            id = dice.randrange(100)
            row = rows.setdefault(id, make.row(id))
            row[dice.choice(("tags", "chunk"))] = f"turn {turn} {dice.random()}"
            row["deleted"] = dice.randrange(2)
        make.script(source, "DELETE FROM memory_chunks")
        source.unlink()
        make.rows(source, rows.values())
