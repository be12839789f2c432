"""Sixteen writers and eight readers, deaths among them; two stores in one folder; forks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from clawmem_core import MemoryEntry, MemoryStore
from clawmem_core.errors import ForkedError
from tests.faults import crowd
from tests.faults.command import forked

WRITERS, READERS, GROUPS = 16, 8, 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a low threshold, so that checkpoints happen all the time."""
    MemoryStore.create(tmp_path / "m.h5", dim=crowd.DIM, wal_max_entries=20).close()
    return tmp_path / "m.h5"


def test_writers_and_readers(path: Path) -> None:
    """What anyone was told is stored is there once and whole, and no reader ever saw it otherwise."""
    errors = path.parent / "errors"
    inode = os.stat(f"{path}.lock").st_ino
    writers = [
        crowd.spawn(
            lambda n=n: crowd.write(path, path.parent / f"{n}.journal", f"w{n}", lambda k: k >= GROUPS, n, n % 4 == 0),
            errors,
        )
        for n in range(WRITERS)
    ]  # fmt: skip
    done = path.parent / "done"
    readers = [crowd.spawn(lambda: crowd.read(path, lambda _: done.exists()), errors) for _ in range(READERS)]
    os.kill(writers[0], signal.SIGKILL)
    failed = crowd.wait(writers, killed=writers[:1])
    done.touch()
    failed += crowd.wait(readers)
    assert not failed, errors.read_text("utf-8")
    found = crowd.groups_of(path)
    assert set(crowd.acknowledged(path.parent)) <= set(found)
    assert set(found.values()) <= {crowd.GROUP}
    assert inode == os.stat(f"{path}.lock").st_ino


def test_lock_of_a_killed_writer_is_free_at_once(path: Path) -> None:
    """Nobody waits for the dead."""
    inode = os.stat(f"{path}.lock").st_ino
    assert crowd.hold_and_die(path) < 5
    assert inode == os.stat(f"{path}.lock").st_ino


def test_two_stores_in_one_folder(tmp_path: Path) -> None:
    """Names that differ in their ends only: each keeps its own log, and neither touches a file of the other."""
    names = ("m.h5", "m.hdf5", "m", "m.h5.h5")
    for number, name in enumerate(names):
        with MemoryStore.create(tmp_path / name, dim=2) as store:
            store.save(MemoryEntry(f"of {name}", [1, number + 1], timestamp=1.0))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with MemoryStore.open(tmp_path / "m.h5") as store:
        store.flush_wal()
        store.save(MemoryEntry("more", [3, 4], timestamp=1.0))
    own = {"m.h5", "m.h5.wal", "m.h5.lock", "m.h5.idx", "m.h5.keys"}
    changed = {file.name for file in tmp_path.iterdir() if before.get(file.name) != file.read_bytes()}
    assert changed <= own
    for name in names[1:]:
        with MemoryStore.open_read_only(tmp_path / name) as store:
            assert [f"of {name}"] == [record.chunk for record in store.records()]


def test_fork_after_open_is_refused(path: Path) -> None:
    """The child may not use the handle; the parent's lock and handle live on, and do not outlive it in the child."""
    with MemoryStore.open(path) as store:

        def use_it() -> int:
            try:
                store.save(MemoryEntry("from the child", None))
            except ForkedError:
                return 0
            return 1

        assert forked(use_it).code == 0
        assert store.save(MemoryEntry("from the parent", None)).index == 0
    assert 1 == sum(1 for _ in MemoryStore.open_read_only(path).records())


def test_child_does_not_keep_the_lock(path: Path) -> None:
    """A child that outlives its parent's handle holds nothing."""
    with MemoryStore.open(path):
        child = crowd.spawn(lambda: time.sleep(30), path.parent / "errors")
    try:
        MemoryStore.open(path, lock_timeout=10).close()  # the child lets go as soon as it runs, and it sleeps longer
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
