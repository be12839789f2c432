"""Older stores are taken over once, with their log."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawmem_core.errors import (
    StorageError,
)
from clawmem_core.storage import schema
from clawmem_core.storage.adopt import adopt
from clawmem_core.storage.checkpoint import identity_of_file
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.log_recovery import CheckpointFirst
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Session
from tests.core.storage import h5
from tests.core.storage.open_store import OpenStore, no_files, record
from tests.core.storage.test_legacy_hdf5 import log_of, save_entry


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
