"""doctor: each kind of damage has its code, repair keeps every byte and makes nothing up."""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from clawmem_core import MemoryEntry, MemoryStore
from clawmem_core.doctor import examine, repair
from clawmem_core.errors import NoStoreError, NotAStoreError
from clawmem_core.search import ann_file
from clawmem_core.storage import fs, keys, ops
from clawmem_core.storage.checkpoint import identity_of_file
from clawmem_core.storage.log_format import Key
from clawmem_core.storage.paths import StorePaths
from clawmem_core.writer import Writer

IN_FILE, IN_LOG = 6, 5


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store: six records in the file, five in the log, all derived files."""
    folder = tmp_path_factory.mktemp("healthy")
    for name in ("d", "x"):
        with MemoryStore.create(folder / f"{name}.h5", dim=2) as store:
            store.save_batch([MemoryEntry(f"fact {n} of {name}", [1.0, n + 1]) for n in range(IN_FILE)])
            store.flush_wal()
            for n in range(IN_FILE, IN_FILE + IN_LOG):
                store.save(MemoryEntry(f"fact {n} of {name}", [1.0, n + 1]))
    return folder


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    """A copy of the healthy store to be damaged."""
    shutil.copytree(healthy, tmp_path / "copy")
    return tmp_path / "copy" / "d.h5"


def files(folder: Path) -> dict[str, str]:
    """SHA-256 by name."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.is_file()}


def ids(path: Path) -> set[int]:
    """Ids of the records a reader sees."""
    with MemoryStore.open_read_only(path) as store:
        return {record.id for record in store.records()}


def log(path: Path) -> Path:
    """The store's log."""
    return path.with_name("d.h5.wal")


def flip(path: Path, at: int, size: int = 1) -> None:
    """Invert bytes in place."""
    data = bytearray(path.read_bytes())
    data[at : at + size] = bytes(255 - byte for byte in data[at : at + size])
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    """Keep the first bytes; negative: drop the last ones."""
    path.write_bytes(path.read_bytes()[:size])


def undecodable(path: Path) -> None:
    """A frame whose checksum holds and whose payload no door would let through."""
    with Writer.open(path) as writer:
        writer.stage(ops.operation(ops.SESSION, b"short"), 1, operation="session")
        writer.commit()


def interrupted_checkpoint(path: Path) -> None:
    """The file of after a checkpoint with the log of before it."""
    before = log(path).read_bytes()
    with MemoryStore.open(path) as store:
        store.flush_wal()
    log(path).write_bytes(before)


def restored(path: Path) -> None:
    """A backup of the file alone put back beside a newer log."""
    before = path.read_bytes()
    with MemoryStore.open(path) as store:
        store.flush_wal()
        store.save(MemoryEntry("later"))
    path.write_bytes(before)


FORGED = Key(b"k" * 16, bytes(16), 1, "P", 0)


def checkpoint_id(path: Path) -> bytes:
    """That of the store file."""
    fd = fs.open_file(str(path))
    try:
        return identity_of_file(fd, str(path)).checkpoint_id
    finally:
        fs.close(fd)


def graph(path: Path, of: bytes) -> None:
    """A graph file with right checksums and nothing in it."""
    path.with_name("d.h5.ann").write_bytes(b"".join(ann_file.encode(of, defaultdict(int))))


ALL = set(range(IN_FILE + IN_LOG))
FILE = set(range(IN_FILE))

DAMAGES: dict[str, tuple[Callable[[Path], object], str, set[int]]] = {
    "log flipped in the middle": (
        lambda p: flip(log(p), log(p).read_bytes().find(b"fact 8")), "log-corrupt", FILE | {6, 7},
    ),
    "log head flipped": (lambda p: flip(log(p), 20), "log-header-bad", FILE),
    "log cut": (lambda p: cut(log(p), -5), "log-torn", ALL - {10}),
    "log emptied": (lambda p: cut(log(p), 0), "log-empty", FILE),
    "log gone": (lambda p: log(p).unlink(), "log-missing", FILE),
    "log of another store": (lambda p: shutil.copy(p.with_name("x.h5.wal"), log(p)), "log-foreign", FILE),
    "file older than the log": (restored, "log-other-checkpoint", FILE),
    "interrupted checkpoint": (interrupted_checkpoint, "log-already-applied", ALL),
    "entry that does not decode": (undecodable, "log-undecodable", ALL),
    "temp left": (lambda p: p.with_name("d.h5.tmp-99999-0bad").write_bytes(b"half"), "temp-left", ALL),
    "index gone": (lambda p: p.with_name("d.h5.idx").unlink(), "index-missing", ALL),
    "index cut": (lambda p: cut(p.with_name("d.h5.idx"), 900), "index-damaged", ALL),
    "index of another store": (
        lambda p: shutil.copy(p.with_name("x.h5.idx"), p.with_name("d.h5.idx")), "index-stale", ALL,
    ),
    "keys gone": (lambda p: p.with_name("d.h5.keys").unlink(), "keys-missing", ALL),
    "keys flipped": (lambda p: flip(p.with_name("d.h5.keys"), 5000), "keys-damaged", ALL),
    "keys of another store": (
        lambda p: shutil.copy(p.with_name("x.h5.keys"), p.with_name("d.h5.keys")), "keys-stale", ALL,
    ),
    "one key too many": (lambda p: keys.write(StorePaths(p), checkpoint_id(p), [FORGED]), "keys-differ", ALL),
    "graph of noise": (lambda p: p.with_name("d.h5.ann").write_bytes(b"noise"), "ann-damaged", ALL),
    "graph of nothing": (lambda p: graph(p, checkpoint_id(p)), "ann-damaged", ALL),
    "graph of another checkpoint": (lambda p: graph(p, b"another one here"), "ann-stale", ALL),
}  # fmt: skip


def test_healthy(path: Path) -> None:
    """Nothing is found in a healthy store, and repairing it changes nothing."""
    before = files(path.parent)
    assert [] == examine(StorePaths(path)).findings
    assert repair(StorePaths(path)).repaired
    assert before == files(path.parent)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(path: Path, name: str) -> None:
    """The code, nothing written unasked, every byte kept, exactly what can be had afterwards, no id given twice."""
    damage, code, left = DAMAGES[name]
    damage(path)
    before = files(path.parent)
    found = examine(StorePaths(path))
    codes = [finding["code"] for finding in found.findings]
    assert code == codes[0]
    assert all(other.endswith("-stale") for other in codes[1:])  # an old file makes its derived files stale
    assert before == files(path.parent)
    done = repair(StorePaths(path))
    assert done.repaired
    kept = set(files(path.parent).values())
    assert {before[name] for name in ("d.h5", "d.h5.wal") if name in before} <= kept
    assert [] == examine(StorePaths(path)).findings
    assert left == ids(path)
    with MemoryStore.open(path) as store:
        answer = store.save(MemoryEntry("next"))
    if code in ("log-corrupt", "log-undecodable"):
        assert answer.index >= IN_FILE + IN_LOG
    assert left | {answer.index} == ids(path)


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_file_cut(path: Path, share: float) -> None:
    """A file cut short is beyond repair, and everything is kept as it is."""
    cut(path, int(path.stat().st_size * share))
    before = files(path.parent)
    assert ["file-damaged"] == [finding["code"] for finding in examine(StorePaths(path)).findings]
    done = repair(StorePaths(path))
    assert not done.repaired
    assert before == files(path.parent)


def test_no_store(tmp_path: Path) -> None:
    """No file, a folder, or a file that never was a store are errors, not findings."""
    with pytest.raises(NoStoreError):
        examine(StorePaths(tmp_path / "none.h5"))
    with pytest.raises(NotAStoreError):
        examine(StorePaths(tmp_path))
    (tmp_path / "text.h5").write_text("no store\n")
    with pytest.raises(NotAStoreError):
        examine(StorePaths(tmp_path / "text.h5"))
