"""Creation, checkpoint, adoption and snapshot: a pure function of file and log, and no state in between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from clawmem_core.errors import (
    ClawmemError,
    DamagedError,
    ExistsError,
    InvalidInputError,
    LockedError,
    NewerFormatError,
    SigningKeyRequiredError,
    StorageError,
)
from clawmem_core.model import Record, StoreConfig
from clawmem_core.storage import fs, ops, schema
from clawmem_core.storage.adopt import adopt
from clawmem_core.storage.checkpoint import checkpoint, create_store, identity_of_file
from clawmem_core.storage.columns import Columns, Mark
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.log_recovery import CheckpointFirst
from clawmem_core.storage.ops import Alias, Entity, Relation, Session, ValueRow
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.snapshot import snapshot
from tests import rust_reader_rules
from tests.core.storage import h5
from tests.core.storage.test_legacy_hdf5 import log_of, save_entry

AUDIT = bytes(72)


def no_files(_: StorePaths, __: Columns) -> list[str]:
    """Derived files are tested elsewhere."""
    return []


def record(id: int, text: str = "", **fields: Any) -> Record:
    """A record with a vector of its own."""
    made = Record(id, text or f"text {id}", float(id), "chat", f"s{id // 3}", "tag")
    made.vector = np.array([id % 100 + 1, 2, 3], "<f2").tobytes()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class OpenStore:
    """A store that is written to."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.paths = StorePaths(str(path))
        if create:
            create_store(self.paths, StoreConfig(dim=3, created_at="now"), derive=no_files)
        self.lock = StoreLock.acquire(self.paths)
        self.log = LogWriter.open(self.paths, self.lock, lambda fd: identity_of_file(fd, self.paths.real))

    def put(self, payload: bytes, entries: int = 1, **state: int) -> None:
        """Log one frame; `state`: counters that change."""
        after = self.log.state.copy()
        after.seq += entries
        for name, value in state.items():
            setattr(after, name, value)
        self.log.append(payload, (), after)
        self.log.commit(sync=False)

    def save(self, *records: Record) -> None:
        """Log records."""
        for one in records:
            self.put(ops.record(one), next_record_id=max(self.log.state.next_record_id, one.id + 1))

    def checkpoint(self, **options: Any) -> Any:
        """Checkpoint without derived files."""
        return checkpoint(self.paths, self.lock, self.log, derive=no_files, **options)

    def load(self) -> Columns:
        """What the file holds."""
        return schema.open_columns(self.paths)

    def close(self) -> None:
        """Let everything go."""
        self.log.close()
        self.lock.release()

    def reopen(self) -> OpenStore:
        """As a new process would."""
        self.close()
        return OpenStore(Path(self.paths.real), create=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OpenStore]:
    """A new, empty store."""
    session = OpenStore(tmp_path / "m.h5")
    yield session
    session.close()


def texts(session: OpenStore) -> list[str]:
    """The texts in the file."""
    with session.load() as found:
        return list(found.chunks)


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
    store.put(ops.session(Session("s", 1, 5, "chat", "sum", 7.0)))
    store.put(ops.entity(Entity(0, "Alice", "person", 3)), next_entity_id=1)
    store.put(ops.relation(Relation(0, 0, "is", 1.0, 2.0)))
    store.put(ops.alias(Alias("al", 0)))
    store.put(ops.event(h5.event(5)))
    store.put(ops.value(ValueRow(b"v" * 32, b"s" * 32, "wrong", "me", 3)))
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
            session.put(ops.event(h5.event(round + 300)))
            if round == 2:
                session.put(ops.compact())
                session.put(ops.event(h5.event(301, version=2, recorded_from=9)))
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
    store.put(ops.session(Session("inner", 2, 5, "", "", 0.0)))
    store.put(ops.session(Session("gone", 6, 6, "", "", 0.0)))
    store.put(ops.entity(Entity(0, "kept", "", 7)) + ops.entity(Entity(1, "lost", "", 2)), 2)
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
    store.put(ops.event(h5.event(0)) + ops.event(h5.event(1)), 2)
    store.checkpoint()
    store.put(ops.event(h5.event(0, version=2)))
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
    store.put(ops.event(h5.event(1)) + ops.audit(AUDIT))
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
    store.put(ops.event(h5.event(0)) + ops.audit(AUDIT))
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
    store.put(ops.event(h5.event(0)) + ops.audit(AUDIT))
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


class Seal:
    """A signer that writes a mark."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def before(self, file: h5py.File, path: str, *, signed: bool = False) -> None:
        """Remember what was asked."""
        self.seen.append(signed)

    def seal(self, file: h5py.File, path: str, changed: Any = None) -> None:
        """Write the mark."""
        file["integrity/mark"] = len(file["memory/ids"])
        self.seen.append(None if changed is None else sorted(changed))


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


# ---------------------------------------------------------------- adoption


def make_foreign(path: Path, count: int) -> None:
    """A store file in the ancestor's layout that current HDF5 reads."""
    columns = h5.columns_of(count, dim=2, float16=False)
    columns.session_rows = [Session("s1", 0, count, "chat", "", 1.7e15)]
    h5.write(path, columns)
    with h5.edited(path) as file:
        file["sessions/end_idxs"][0] = count
        for name in ("clawmem_format", "store_id", "wal_applied_log", "signed"):
            del file["meta"].attrs[name]
        for name in ("meta/checkpoint_id", "meta/log_state", "memory/ids"):
            del file[name]


@pytest.mark.parametrize("log", [None, b"", log_of(save_entry("y", [0.0, 2.0]), save_entry("z", [3.0, 4.0]))])
def test_older_store_is_taken_over(tmp_path: Path, log: bytes | None) -> None:
    """A file without an id, with or without a log of the ancestor's, becomes a store of ours, once."""
    make_foreign(tmp_path / "m.h5", 3)
    paths = StorePaths(str(tmp_path / "m.h5"))
    if log is not None:
        Path(paths.log).write_bytes(log)
    lock = StoreLock.acquire(paths)
    with pytest.raises(CheckpointFirst):
        LogWriter.open(paths, lock, lambda fd: identity_of_file(fd, paths.real))
    added = ["y", "z"] if log else []
    assert len(added) == adopt(paths, lock, derive=no_files).entries
    lock.release()
    store = OpenStore(tmp_path / "m.h5", create=False)
    store.save(record(3 + len(added), vector=bytes(8)))
    store.checkpoint()
    with store.load() as found:
        assert ["text 0", "text 1", "text 2", *added, f"text {3 + len(added)}"] == list(found.chunks)
        assert 1.7e9 == found.session_rows[0].timestamp
        assert "1.0" == found.format
    store.close()


def test_interrupted_adoption_applies_nothing_twice(tmp_path: Path) -> None:
    """If the old log is still there after the file was written, the mark in it is believed (defect A1)."""
    make_foreign(tmp_path / "m.h5", 1)
    paths = StorePaths(str(tmp_path / "m.h5"))
    Path(paths.log).write_bytes(log_of(save_entry("y", [0.0, 2.0])))
    lock = StoreLock.acquire(paths)
    with h5.failing(("replace",), 2, lasting=True), pytest.raises(StorageError):
        adopt(paths, lock, derive=no_files)
    assert b"EHWL" == Path(paths.log).read_bytes()[:4]
    assert 0 == adopt(paths, lock, derive=no_files).entries
    with schema.open_columns(paths) as found:
        assert ["text 0", "y"] == list(found.chunks)
    lock.release()


# ---------------------------------------------------------------- snapshot


def test_snapshot_holds_pending_entries(store: OpenStore, tmp_path: Path) -> None:
    """The copy is whole, of its own, openable by the ancestor; the source is not touched (defect A10)."""
    store.save(record(0))
    store.checkpoint()
    store.save(record(1))
    before = {name: (tmp_path / name).read_bytes() for name in ("m.h5", "m.h5.wal")}
    made = snapshot(store.paths, tmp_path / "copy.h5")
    assert (str(tmp_path / "copy.h5"), 0) == (made.path, made.pending)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    copy = OpenStore(tmp_path / "copy.h5", create=False)
    assert [] == copy.log.reports
    assert ["text 0", "text 1"] == texts(copy)
    with copy.load() as found, store.load() as source:
        assert Mark() == found.mark
        assert (source.store_id, False) == (found.store_id, source.checkpoint_id == found.checkpoint_id)
    with h5py.File(copy.paths.real) as file:
        rust_reader_rules.check(file)
    copy.close()


def test_snapshot_into_a_folder_gets_a_name_of_its_own(store: OpenStore, tmp_path: Path) -> None:
    """Two in a row do not collide (defect A11)."""
    (tmp_path / "backups").mkdir()
    made = {snapshot(store.paths, tmp_path / "backups").path for _ in range(3)}
    assert 3 == len(made)
    assert all(os.path.basename(path).startswith("snapshot_") and path.endswith("_m.h5") for path in made)


@pytest.mark.parametrize("name", ["m.h5", "./m.h5", "m.h5.wal", "m.h5.lock", "m.h5.idx"])
@pytest.mark.parametrize("force", [False, True])
def test_snapshot_onto_itself_is_refused(store: OpenStore, tmp_path: Path, name: str, force: bool) -> None:
    """Neither the store, by whatever name, nor one of its files is a destination."""
    store.save(record(0))
    os.link(store.paths.real, tmp_path / "hard.h5")
    for dest in (tmp_path / name, tmp_path / "hard.h5"):
        with pytest.raises(InvalidInputError, match="the store itself"):
            snapshot(store.paths, dest, force=force)
    assert 1 == store.log.pending


def test_snapshot_over_something(store: OpenStore, tmp_path: Path) -> None:
    """A file, or the log of one, is kept without `force`; with it, nothing of what lay there is picked up (A10)."""
    store.save(record(0))
    other = OpenStore(tmp_path / "other.h5")
    other.save(record(0, "alien"))
    other.close()
    for suffix in (".idx", ".keys"):
        Path(other.paths.real + suffix).write_bytes(b"stale")
    with pytest.raises(ExistsError):
        snapshot(store.paths, other.paths.real)
    os.unlink(other.paths.real)
    with pytest.raises(ExistsError):
        snapshot(store.paths, other.paths.real)
    snapshot(store.paths, other.paths.real, force=True)
    assert not os.path.exists(other.paths.index)
    assert not os.path.exists(other.paths.keys)
    copy = OpenStore(tmp_path / "other.h5", create=False)
    assert ([], 0, ["text 0"]) == (copy.log.reports, copy.log.pending, texts(copy))
    copy.close()


def test_snapshot_over_a_store_in_use(store: OpenStore, tmp_path: Path) -> None:
    """Even with `force`, a store that somebody writes to is not replaced."""
    other = OpenStore(tmp_path / "other.h5")
    with pytest.raises(LockedError):
        snapshot(store.paths, other.paths.real, force=True)
    other.close()


def test_signed_store_is_copied_as_a_pair_without_its_key(store: OpenStore, tmp_path: Path) -> None:
    """Without the key: the signed file byte for byte, and its pending entries in a log; with it: one new file."""
    store.save(record(0))
    store.checkpoint(signing=Seal())
    store.save(record(1))
    made = snapshot(store.paths, tmp_path / "pair.h5")
    assert 1 == made.pending
    assert Path(store.paths.real).read_bytes() == (tmp_path / "pair.h5").read_bytes()
    pair = OpenStore(tmp_path / "pair.h5", create=False)
    assert ([], 1) == (pair.log.reports, pair.log.pending)
    pair.checkpoint(signing=Seal())
    assert ["text 0", "text 1"] == texts(pair)
    pair.close()
    snapshot(store.paths, tmp_path / "merged.h5", signing=Seal())
    with schema.open_columns(StorePaths(str(tmp_path / "merged.h5"))) as found:
        assert (["text 0", "text 1"], 2) == (list(found.chunks), found.file["integrity/mark"][()])


@pytest.mark.parametrize("name", ["pwrite", "fsync", "link", "copy_range"])
def test_snapshot_on_a_full_disk(store: OpenStore, tmp_path: Path, name: str) -> None:
    """A failed snapshot leaves no temporary file and no half copy under the name that was asked for."""
    store.save(record(0))
    (tmp_path / "out").mkdir()
    if name == "copy_range":
        store.checkpoint(signing=Seal())
    with h5.failing((name,), 1, lasting=True), pytest.raises(ClawmemError, match="No space left"):
        snapshot(store.paths, tmp_path / "out" / "copy.h5")
    assert [] == os.listdir(tmp_path / "out")


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
