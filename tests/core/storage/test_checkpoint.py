"""Creation and checkpoint: a pure function of file and log, and no state in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from clawmem_core.errors import (
    DamagedError,
    ExistsError,
    NewerFormatError,
    SigningKeyRequiredError,
    StorageError,
)
from clawmem_core.model import StoreConfig
from clawmem_core.storage import fs, ops, row_ops, schema
from clawmem_core.storage.checkpoint import checkpoint, create_store
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session, ValueRow
from tests import rust_reader_rules
from tests.core.storage import h5
from tests.core.storage.open_store import AUDIT, OpenStore, Seal, no_files, record, texts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OpenStore]:
    """A new, empty store."""
    session = OpenStore(tmp_path / "m.h5")
    yield session
    session.close()


# ---------------------------------------------------------------- create


def test_create_makes_a_store(tmp_path: Path) -> None:
    """An empty store: file, log, lock, nothing else; readable by the ancestor; 0600."""
    paths = StorePaths(str(tmp_path / "m.h5"))
    assert [] == create_store(paths, StoreConfig(dim=3, agent_id=""), derive=no_files)
    assert ["m.h5", "m.h5.lock", "m.h5.wal"] == sorted(os.listdir(tmp_path))
    assert 0o600 == os.stat(paths.real).st_mode & 0o777
    with h5py.File(paths.real) as file:
        rust_reader_rules.check(file)


@pytest.mark.parametrize("name", ["m.h5", "m.h5.wal"])
def test_create_never_clobbers(tmp_path: Path, name: str) -> None:
    """An existing file, or the log of one, is kept (defects B3, C5)."""
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(ExistsError):
        create_store(StorePaths(str(tmp_path / "m.h5")), StoreConfig(dim=3), derive=no_files)
    assert [name] == os.listdir(tmp_path)
    assert b"precious" == (tmp_path / name).read_bytes()


def test_create_follows_a_symlink_to_nowhere(tmp_path: Path) -> None:
    """The store is made where the link leads, and the link stays (defect A9)."""
    (tmp_path / "link.h5").symlink_to(tmp_path / "real.h5")
    create_store(StorePaths(str(tmp_path / "link.h5")), StoreConfig(dim=3), derive=no_files)
    assert (tmp_path / "link.h5").is_symlink()
    assert (tmp_path / "real.h5.wal").exists()


@pytest.mark.parametrize("name", ["pwrite", "ftruncate", "fsync", "link", "replace"])
def test_create_on_a_full_disk_leaves_nothing(tmp_path: Path, name: str) -> None:
    """Whichever call fails: StorageError naming the store or its log, and only the lock file remains."""
    hits = 0
    for at in range(1, 400, 5 if name == "pwrite" else 1):
        paths = StorePaths(str(tmp_path / f"{at}" / "m.h5"))
        os.mkdir(paths.directory)
        with h5.failing((name,), at) as layer:
            try:
                create_store(paths, StoreConfig(dim=3), derive=no_files)
            except StorageError as error:
                hits += 1
                assert ".tmp-" not in error.message
                assert ["m.h5.lock"] == [name for name in os.listdir(paths.directory) if name != "m.h5.wal"]
                continue
        assert not layer.hit
        break
    assert hits >= 1


# ---------------------------------------------------------------- checkpoint


def test_checkpoint_moves_the_log_into_the_file(store: OpenStore) -> None:
    """Records, deletions, weights, sessions, graph, events and settings end up in the file, and the log is empty."""
    store.save(*(record(id) for id in range(6)), record(2, "replaced", key="k"), record(6, vector=None))
    store.put(ops.ids(ops.DELETE, [1, 4]))
    store.put(ops.ids(ops.UNDELETE, [4]))
    store.put(ops.activation([(3, 2.5)]))
    store.put(row_ops.session(Session("s", 1, 5, "chat", "sum", 7.0)))
    store.put(row_ops.entity(Entity(0, "Alice", "person", 3)), next_entity_id=1)
    store.put(row_ops.relation(Relation(0, 0, "is", 1.0, 2.0)))
    store.put(row_ops.alias(Alias("al", 0)))
    store.put(row_ops.event(h5.event(5)))
    store.put(row_ops.value(ValueRow(b"v" * 32, b"s" * 32, "wrong", "me", 3)))
    store.put(ops.config("decay_factor", "0.5") + ops.audit(AUDIT))
    seq = store.log.state.seq
    result = store.checkpoint()
    assert (seq, 2, []) == (result.entries, result.generation, result.warnings)
    assert (0, 512) == (store.log.pending, os.path.getsize(store.paths.log))
    with store.load() as found:
        expected = ["text 0", "text 1", "replaced", "text 3", "text 4", "text 5", "text 6"]
        assert expected == list(found.chunks)
        assert [0, 1, 0, 0, 0, 0, 0] == found.tombstones.tolist()
        assert [1, 1, 1, 2.5, 1, 1, 1] == found.activation.tolist()
        assert ["", "", "k", "", "", "", ""] == list(found.keys)
        assert [True] * 6 + [False] == [bool(norm) for norm in found.norms]
        assert [("s", 1, 5)] == [(row.id, row.start, row.end) for row in found.session_rows]
        assert [3] == [row.record_id for row in found.entity_rows]
        assert (1, 1, 1, 1) == (len(found.relation_rows), len(found.alias_rows), len(found.events), len(found.values))
        assert (0.5, AUDIT) == (found.config.decay_factor, found.audit)
    with h5py.File(store.paths.real) as file:
        rust_reader_rules.check(file)


def test_checkpoints_in_steps_equal_one(tmp_path: Path) -> None:
    """The same operations give the same content, however many checkpoints lie between them."""
    stepped, at_once = (OpenStore(tmp_path / name) for name in ("a.h5", "b.h5"))
    for session in (stepped, at_once):
        for round in range(4):
            session.save(*(record(id) for id in range(round * 700, (round + 1) * 700)))
            session.put(ops.ids(ops.DELETE, range(round * 100, round * 100 + 30)))
            session.save(record(round * 10 + 50, f"replaced {'ä' * 40 * round}"))
            session.put(row_ops.event(h5.event(round + 300)))
            if round == 2:
                session.put(ops.compact())
                session.put(row_ops.event(h5.event(301, version=2, recorded_from=9)))
            if session is stepped:
                session.checkpoint()
        session.checkpoint()
    with stepped.load() as first, at_once.load() as second:
        assert h5.content(first) == h5.content(second)
        assert first.log_state == second.log_state
    for session in (stepped, at_once):
        session.close()


def test_compaction_keeps_references(store: OpenStore) -> None:
    """Dropped rows: ids stay, a session shrinks to what is left inside it, a lost reference is -1 (defect D1)."""
    store.save(*(record(id) for id in range(8)))
    store.put(row_ops.session(Session("inner", 2, 5, "", "", 0.0)))
    store.put(row_ops.session(Session("gone", 6, 6, "", "", 0.0)))
    store.put(row_ops.entity(Entity(0, "kept", "", 7)) + row_ops.entity(Entity(1, "lost", "", 2)), 2)
    store.checkpoint()
    store.put(ops.ids(ops.DELETE, [0, 2, 6]))
    store.put(ops.compact())
    store.checkpoint()
    with store.load() as found:
        assert [1, 3, 4, 5, 7] == found.ids.tolist()
        assert [("inner", 3, 5), ("gone", -1, -1)] == [(row.id, row.start, row.end) for row in found.session_rows]
        assert [7, -1] == [row.record_id for row in found.entity_rows]
    with h5py.File(store.paths.real) as file:
        assert [1, -1] == file["sessions/start_idxs"][...].tolist()
        assert [4, -1] == file["knowledge_graph/entity_emb_idxs"][...].tolist()
    assert 8 == store.log.state.next_record_id


def test_purge_takes_events_along(store: OpenStore) -> None:
    """Every version of the events of a purged record is gone, the others stay."""
    store.save(record(0), record(1))
    store.put(row_ops.event(h5.event(0)) + row_ops.event(h5.event(1)), 2)
    store.checkpoint()
    store.put(row_ops.event(h5.event(0, version=2)))
    store.put(ops.purge([0]))
    store.checkpoint()
    with store.load() as found:
        assert ([1], [1]) == (found.ids.tolist(), [event.record_id for event in found.events])


def test_mode_and_symlink_survive(tmp_path: Path) -> None:
    """A checkpoint keeps the file's mode, and a symlink to it stays one (defect A9)."""
    store = OpenStore(tmp_path / "m.h5")
    os.chmod(store.paths.real, 0o640)
    (tmp_path / "link.h5").symlink_to("m.h5")
    store.save(record(0))
    store = store.reopen()
    store.checkpoint()
    store.close()
    linked = OpenStore(tmp_path / "link.h5", create=False)
    linked.save(record(1))
    linked.checkpoint()
    assert (tmp_path / "link.h5").is_symlink()
    assert 0o640 == os.stat(tmp_path / "m.h5").st_mode & 0o777
    assert ["text 0", "text 1"] == texts(linked)
    linked.close()


def test_a_changed_file_is_not_replaced(store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another program touches the file during the checkpoint, its work is kept."""
    store.save(record(0))
    write = schema.write

    def touched(*arguments: Any) -> list[str]:
        os.utime(store.paths.real, ns=(1, 1))
        return write(*arguments)

    monkeypatch.setattr(schema, "write", touched)
    with pytest.raises(StorageError, match="another program changed"):
        store.checkpoint()
    assert [] == texts(store)
    monkeypatch.undo()
    store.checkpoint()
    assert ["text 0"] == texts(store)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("name", ["pwrite", "ftruncate", "fsync", "replace"])
def test_full_disk(tmp_path: Path, name: str, lasting: bool) -> None:
    """Whichever call fails: no temporary file, an error that names the store, everything still there once (A5, A6)."""
    store = OpenStore(tmp_path / "m.h5")
    store.save(record(0), record(1))
    store.checkpoint()
    store.save(record(2), record(3))
    store.put(row_ops.event(h5.event(1)) + ops.audit(AUDIT))
    store.close()
    backup = tmp_path / "backup"
    backup.mkdir()
    for suffix in ("", ".wal"):
        shutil.copy2(store.paths.real + suffix, backup / f"m.h5{suffix}")
    faults = 0
    for at in range(1, 400, 9 if name == "pwrite" else 1):  # test_hdf5_file.py tries every single write
        for suffix in ("", ".wal"):
            shutil.copy2(backup / f"m.h5{suffix}", store.paths.real + suffix)
        store = OpenStore(tmp_path / "m.h5", create=False)
        with h5.failing((name,), at, lasting) as layer:
            try:
                warnings = store.checkpoint().warnings
            except StorageError as error:
                warnings = [error.message]
                assert error.fields["path"] in (store.paths.real, store.paths.log)
            hit = layer.hit
        assert hit == bool(warnings)
        assert all(".tmp-" not in warning for warning in warnings)
        assert [] == [name for name in os.listdir(tmp_path) if ".tmp-" in name]
        store = store.reopen()
        store.save(record(4))
        store.checkpoint()
        with store.load() as found:
            assert [f"text {id}" for id in range(5)] == list(found.chunks)
            assert (1, AUDIT) == (len(found.events), found.audit)
        store.close()
        if not hit:
            break
        faults += 1
    assert faults >= (2 if name in ("fsync", "replace") else 1)


def test_failed_rotation_keeps_the_old_log_valid(store: OpenStore) -> None:
    """The checkpoint holds, a warning says that the old log stays; nothing is applied twice, even in this process."""
    store.save(record(0))
    store.put(row_ops.event(h5.event(0)) + ops.audit(AUDIT))
    with h5.failing(("replace",), 2, lasting=True):
        warnings = store.checkpoint().warnings
    assert 1 == len(warnings)
    assert "old log stays" in warnings[0]
    store.save(record(1))
    store.checkpoint()
    store.checkpoint()
    with store.load() as found:
        assert ["text 0", "text 1"] == list(found.chunks)
        assert (1, AUDIT) == (len(found.events), found.audit)


def test_directory_sync_that_fails_after_the_rename(store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is in place then; the same handle goes on without applying anything twice."""
    store.save(record(0))
    store.put(row_ops.event(h5.event(0)) + ops.audit(AUDIT))
    store.log.sync()

    def fail(path: str) -> None:
        raise StorageError(path=path, detail="Input/output error", errno=5)

    monkeypatch.setattr(fs, "sync_directory", fail)
    with pytest.raises(StorageError):
        store.checkpoint()
    monkeypatch.undo()
    assert ["text 0"] == texts(store)
    store.save(record(1))
    store.checkpoint()
    with store.load() as found:
        assert ["text 0", "text 1"] == list(found.chunks)
        assert (1, AUDIT) == (len(found.events), found.audit)


def test_payload_that_does_not_decode_is_quarantined(store: OpenStore) -> None:
    """A frame with a good checksum and a bad payload: what is before it is kept, the log goes to quarantine."""
    store.save(record(0))
    store.put(b"\x01\x00\x00\x00\xff\xff\xff\x00")
    store.save(record(1))
    store.checkpoint()
    assert ["text 0"] == texts(store)
    assert 1 == len(store.paths.quarantined())


def test_operation_of_a_newer_version_stops_the_checkpoint(store: OpenStore) -> None:
    """An unknown operation is refused, and everything stays."""
    store.put(ops.operation(99, b""))
    size = os.path.getsize(store.paths.log)
    with pytest.raises(NewerFormatError):
        store.checkpoint()
    assert size == os.path.getsize(store.paths.log)


def test_record_that_fits_nowhere(store: OpenStore) -> None:
    """A vector of another length, or an id that is neither stored nor new, is damage."""
    store.save(record(5))
    store.checkpoint()
    store.save(record(3))
    with pytest.raises(DamagedError, match="neither stored nor new"):
        store.checkpoint()


def test_derived_files_may_fail(store: OpenStore) -> None:
    """What readers can do without is a warning."""

    def broken(paths: StorePaths, _: Columns) -> list[str]:
        raise StorageError(path=paths.index, detail="No space left on device")

    store.save(record(0))
    result = checkpoint(store.paths, store.lock, store.log, derive=broken)
    assert ["derived files were not written"] == [warning.split(":")[0] for warning in result.warnings]
    assert ["text 0"] == texts(store)


# ---------------------------------------------------------------- signing


def test_signed_store_needs_its_key(store: OpenStore) -> None:
    """Once signed, a checkpoint without the key is refused, and the saves stay in the log."""
    seal = Seal()
    store.save(record(0))
    store.checkpoint(signing=seal)
    store.save(record(1))
    with pytest.raises(SigningKeyRequiredError, match=r"1 entries"):
        store.checkpoint()
    store.checkpoint(signing=seal)
    assert [False, [0], True, [1]] == seal.seen
    with store.load() as found:
        assert (True, 2) == (found.signed, found.file["integrity/mark"][()])


def test_layout_is_identical_after_a_checkpoint_of_nothing(store: OpenStore) -> None:
    """A checkpoint without entries changes ids, not content."""
    store.save(*(record(id) for id in range(20)))
    store.checkpoint()
    with store.load() as found:
        before, id = h5.content(found), found.checkpoint_id
    result = store.checkpoint()
    assert 0 == result.entries
    with store.load() as found:
        assert before == h5.content(found)
        assert id != found.checkpoint_id
    assert fs.size(store.paths.log) == 512
