"""Snapshots: whole, of their own, never over something that is in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from clawmem_core.errors import (
    ClawmemError,
    ExistsError,
    InvalidInputError,
    LockedError,
)
from clawmem_core.storage import schema
from clawmem_core.storage.columns import Mark
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.snapshot import snapshot
from tests import rust_reader_rules
from tests.core.storage import h5
from tests.core.storage.open_store import OpenStore, Seal, record, texts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OpenStore]:
    """A new, empty store."""
    session = OpenStore(tmp_path / "m.h5")
    yield session
    session.close()


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
