"""Verification of a whole store: log, derived files, notes, damage, and what the report says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import pytest

from clawmem_core.errors import IntegrityError, NoStoreError, NoteError, SigningKeyRequiredError
from clawmem_core.integrity.signing import Signing
from clawmem_core.integrity.verify import verify
from clawmem_core.model import Record, StoreConfig
from clawmem_core.search import index_format
from clawmem_core.storage import derived, fs, keys, ops
from clawmem_core.storage.checkpoint import checkpoint, create_store, identity_of_file
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.log_format import Identity, LogHeader
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.schema import load
from clawmem_core.storage.snapshot import snapshot
from tests.core.integrity.samples import secret_key
from tests.core.integrity.tampering import Edit, attribute, both, replace, set_row

KEY = secret_key()
COUNT = 6


def record(id: int, text: str = "") -> bytes:
    """A RECORD operation."""
    made = Record(id, text or f"memory number {id}", 1.7e9 + id, "chat", f"s{id // 3}", f"tag{id}")
    made.vector = bytes([0, 0x3C + id % 8] * 4)
    return ops.record(made)


def save(paths: StorePaths, ids: range, signing: Signing | None = None, flush: bool = False, text: str = "") -> None:
    """Append records to a store, and checkpoint if asked to."""
    with StoreLock.acquire(paths, 0) as lock:
        log = LogWriter.open(paths, lock, lambda fd: identity_of_file(fd, paths.real))
        try:
            for id in ids:
                state = log.state.copy()
                state.seq, state.rows, state.active = state.seq + 1, state.rows + 1, state.active + 1
                state.next_record_id = id + 1
                log.append(record(id, text), (), state)
            log.commit(True)
            if flush:
                checkpoint(paths, lock, log, signing=signing)
        finally:
            log.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a signed store of six records, checkpointed, and its derived files."""
    folder = tmp_path_factory.mktemp("template")
    paths = StorePaths(folder / "m.h5")
    create_store(paths, StoreConfig(dim=4, agent_id="honest", created_at="2026-01-01T00:00:00Z"))
    save(paths, range(COUNT), Signing(KEY), flush=True)
    return folder


@pytest.fixture
def paths(template: Path, tmp_path: Path) -> StorePaths:
    """A copy of it, times kept."""
    shutil.copytree(template, tmp_path / "s")
    return StorePaths(tmp_path / "s" / "m.h5")


def codes(report: dict[str, Any]) -> list[str]:
    """Codes of all findings."""
    return [finding["code"] for finding in report["findings"]]


def check(paths: StorePaths, **how: Any) -> dict[str, Any]:
    """The report, which is plain JSON."""
    report = verify(paths, KEY.public, **how)
    json.dumps(report, allow_nan=False)
    return report


def flip(path: str, at: int, bit: int = 0x10) -> None:
    """Change a byte of a file."""
    data = bytearray(Path(path).read_bytes())
    data[at] ^= bit
    Path(path).write_bytes(data)


def identity(paths: StorePaths) -> Identity:
    """What the store file says of itself."""
    fd = fs.open_file(paths.real)
    try:
        return identity_of_file(fd, paths.real)
    finally:
        fs.close(fd)


def edit(paths: StorePaths, change: Edit) -> None:
    """Change the store file by h5py."""
    with h5py.File(paths.real, "r+", locking=False) as file:
        change(file)


def test_clean(paths: StorePaths) -> None:
    """Everything holds, nothing is found, nothing is written."""
    before = {path: path.read_bytes() for path in Path(paths.directory).iterdir()}
    for full in (False, True):
        report = check(paths, full=full, strict=True)
        assert (True, True, [], COUNT, 0) == (
            report["valid"], report["signed"], report["findings"], report["records_checked"],
            report["wal_entries_unsigned"],
        )  # fmt: skip
        assert KEY.public.key_id == report["key_id"]
    assert before == {path: path.read_bytes() for path in Path(paths.directory).iterdir()}


def test_never_signed(tmp_path: Path) -> None:
    """No signature is a finding, not a pass."""
    paths = StorePaths(tmp_path / "m.h5")
    create_store(paths, StoreConfig(dim=4))
    save(paths, range(2), None, flush=True)
    report = check(paths)
    assert (False, False, ["unsigned"]) == (report["valid"], report["signed"], codes(report))


def test_no_store(tmp_path: Path) -> None:
    """A missing store is an error of its own."""
    with pytest.raises(NoStoreError):
        check(StorePaths(tmp_path / "none.h5"))


@pytest.mark.parametrize("change", ["cut 60", "cut 100", "cut 0", "garbled head", "other file", "garbled middle"])
def test_damaged_file_is_a_finding(paths: StorePaths, change: str) -> None:
    """Truncated, garbled or no HDF5 file at all."""
    data = Path(paths.real).read_bytes()
    content = {
        "cut 60": data[: len(data) * 6 // 10],
        "cut 100": data[:100],
        "cut 0": b"",
        "garbled head": b"x" * 64 + data[64:],
        "other file": b"SQLite format 3\0" * 100,
        "garbled middle": data[: len(data) // 3] + bytes(len(data) // 3) + data[len(data) // 3 * 2 :],
    }
    Path(paths.real).write_bytes(content[change])
    report = check(paths)
    assert not report["valid"]
    assert report["findings"]


# ---------------------------------------------------------------- log


def test_log_entries_are_counted(paths: StorePaths) -> None:
    """A well-formed tail is no damage; strict says it is unsigned."""
    save(paths, range(COUNT, COUNT + 2))
    report = check(paths)
    assert (True, 2, []) == (report["valid"], report["wal_entries_unsigned"], report["findings"])
    report = check(paths, strict=True)
    assert (False, ["log-unsigned"]) == (report["valid"], codes(report))


def test_forged_counter_does_not_hide_entries(paths: StorePaths) -> None:
    """An entry whose counter says that there is none is counted all the same."""
    with StoreLock.acquire(paths, 0) as lock:
        log = LogWriter.open(paths, lock, lambda fd: identity_of_file(fd, paths.real))
        log.append(record(COUNT), (), log.state.copy())
        log.commit(True)
        log.close()
    assert 1 == check(paths)["wal_entries_unsigned"]
    assert not check(paths, strict=True)["valid"]


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.95])
def test_flipped_byte_in_the_log(paths: StorePaths, place: float) -> None:
    """A byte of header or frames flipped is found."""
    save(paths, range(COUNT, COUNT + 3))
    flip(paths.log, int(fs.size(paths.log) * place))
    report = check(paths)
    assert not report["valid"]
    assert codes(report)[0].startswith("log-")


def test_log_cut_in_the_middle_of_an_entry(paths: StorePaths) -> None:
    """A torn end is found."""
    save(paths, range(COUNT, COUNT + 3))
    Path(paths.log).write_bytes(Path(paths.log).read_bytes()[:-30])
    assert ["log-torn"] == codes(check(paths))


def test_entries_taken_out_of_the_middle(paths: StorePaths) -> None:
    """The chain shows that something is missing between two whole entries."""
    sizes = []
    for id in range(COUNT, COUNT + 3):
        sizes.append(fs.size(paths.log))
        save(paths, range(id, id + 1))
    data = Path(paths.log).read_bytes()
    Path(paths.log).write_bytes(data[: sizes[1]] + data[sizes[2] :])
    assert not check(paths)["valid"]


def test_log_of_another_store(paths: StorePaths, tmp_path: Path) -> None:
    """A whole log that belongs elsewhere is found."""
    other = StorePaths(tmp_path / "other.h5")
    create_store(other, StoreConfig(dim=4))
    save(other, range(2))
    shutil.copy(other.log, paths.log)
    assert ["log-foreign"] == codes(check(paths))


def test_log_of_another_checkpoint(paths: StorePaths, template: Path) -> None:
    """An old file beside a newer log is found."""
    save(paths, range(COUNT, COUNT + 2), Signing(KEY), flush=True)
    shutil.copy2(template / "m.h5", paths.real)
    assert "log-other-checkpoint" in codes(check(paths))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 999), ("active", 0), ("seq", 0), ("event_rows", 5), ("audit_seq", 1), ("audit_head", b"x" * 32),
     ("next_record_id", 0), ("dim", 8), ("flags", 3), ("flags", 18), ("generation", 9), ("agent_id", "evil"),
     ("wal_max_entries", 1), ("base_rows", 0), ("h5_id_offset", 8)],
)  # fmt: skip
def test_forged_log_header_is_found(paths: StorePaths, name: str, value: Any) -> None:
    """An empty log, well-formed, of this checkpoint, that starts from other counters or settings."""
    header = LogHeader.unpack(Path(paths.log).read_bytes(), paths.log)
    assert header is not None
    setattr(header if hasattr(header, name) else header.state, name, value)
    Path(paths.log).write_bytes(header.pack())
    assert ["log-header"] == codes(check(paths))


def test_ids_kept_free_by_the_log_are_no_forgery(paths: StorePaths) -> None:
    """After damage the ids of lost entries are not given again."""
    header = LogHeader.unpack(Path(paths.log).read_bytes(), paths.log)
    assert header is not None
    header.state.next_record_id += 7
    Path(paths.log).write_bytes(header.pack())
    assert [] == codes(check(paths))


def test_log_remembers_that_the_store_was_signed(paths: StorePaths) -> None:
    """Signature and setting stripped from the file: the log still refuses a fresh start, with a key or without."""
    edit(paths, both(replace("integrity", None), attribute("signed", 0)))
    with pytest.raises(IntegrityError):
        save(paths, range(COUNT, COUNT + 1), Signing(KEY), flush=True)
    with pytest.raises(SigningKeyRequiredError):
        save(paths, range(COUNT + 1, COUNT + 2), flush=True)


def test_snapshot_of_a_stripped_store(paths: StorePaths, tmp_path: Path) -> None:
    """No snapshot gives a stripped store a fresh start either, and none becomes an unsigned one."""
    edit(paths, both(replace("integrity", None), attribute("signed", 0)))
    with pytest.raises(IntegrityError):
        snapshot(paths, tmp_path / "a.h5", signing=Signing(KEY))
    copy = StorePaths(snapshot(paths, tmp_path / "b.h5").path)
    assert Path(paths.real).read_bytes() == Path(copy.real).read_bytes()


def test_missing_log_is_nothing(paths: StorePaths) -> None:
    """A copy of the file alone verifies."""
    for path in (paths.log, paths.index, paths.keys):
        fs.unlink(path)
    assert [] == check(paths)["findings"]


# ---------------------------------------------------------------- derived files


def resealed(path: str, change: Callable[[bytearray], None]) -> None:
    """Change an index and put all its checksums right, as somebody who knows the format would."""
    data = bytearray(Path(path).read_bytes())
    change(data)
    header = index_format.Header.unpack(Path(path).read_bytes())
    for page in range(header.pages):
        low, high = (
            page * index_format.PAGE or index_format.HEADER_SIZE,
            min((page + 1) * index_format.PAGE, header.pages_offset),
        )
        at = header.pages_offset + 4 * page
        data[at : at + 4] = crc32(data[low:high]).to_bytes(4, "little")
    header.pages_crc = crc32(data[header.pages_offset :])
    data[: index_format.HEADER_SIZE] = header.pack()
    Path(path).write_bytes(data)


def section(path: str, name: str) -> index_format.Section:
    """Where a section of an index lies."""
    from clawmem_core.search.index_reader import IndexReader

    found = IndexReader(Path(path).read_bytes(), -1).sections.section(name)
    assert found is not None
    return found


def test_every_byte_of_the_index_matters(paths: StorePaths) -> None:
    """A flipped byte anywhere in the index is found."""
    size = fs.size(paths.index)
    for at in range(0, size, size // 60):
        flip(paths.index, at)
        assert not check(paths)["valid"], at
        flip(paths.index, at)


def test_resealed_index_is_found(paths: StorePaths) -> None:
    """Right checksums do not save an index that says something else."""
    for name, full in (("text", False), ("time", False), ("session", False), ("tag", False), ("chans", False),
                       ("settings", False), ("vec", True), ("dl", True)):  # fmt: skip
        before = Path(paths.index).read_bytes()
        at = section(paths.index, name).offset

        def change(data: bytearray, at: int = at) -> None:
            data[at] ^= 1

        resealed(paths.index, change)
        report = check(paths, full=full)
        assert not report["valid"], name
        assert {"index-differs"} == set(codes(report)), name
        Path(paths.index).write_bytes(before)
    assert check(paths, full=True)["valid"]


def test_index_that_names_other_bytes_as_checkpoint_is_found(paths: StorePaths) -> None:
    """A reader finds the checkpoint id where the index says it is; a lie about the place is no stale index."""

    def change(data: bytearray) -> None:
        header = index_format.Header.unpack(bytes(data))
        header.h5_id_offset, header.checkpoint_id = 0, Path(paths.real).read_bytes()[:16]
        data[: index_format.HEADER_SIZE] = header.pack()

    data = bytearray(Path(paths.index).read_bytes())
    data[section(paths.index, "text").offset] ^= 1
    change(data)
    Path(paths.index).write_bytes(data)
    resealed(paths.index, lambda _: None)
    assert ["index-differs"] == codes(check(paths))


def test_index_that_readers_would_take_says_nothing_else(paths: StorePaths) -> None:
    """Header fields that readers believe are compared."""
    for name, value in (("flags", 0), ("generation", 77), ("h5_id_offset", 3), ("dim", 5), ("rows", 1)):
        before = Path(paths.index).read_bytes()
        header = index_format.Header.unpack(before)
        setattr(header, name, value)
        Path(paths.index).write_bytes(header.pack() + before[index_format.HEADER_SIZE :])
        assert {"index-differs"} == set(codes(check(paths))), name
        Path(paths.index).write_bytes(before)


def test_how_much_of_the_index_was_compared(paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small store's wholly, a large one's on request; none where there is none."""
    from clawmem_core.integrity import verify as module

    assert "everything" == check(paths)["index_compared"]
    monkeypatch.setattr(module, "_SMALL", 1)
    assert "columns" == check(paths)["index_compared"]
    assert "everything" == check(paths, full=True)["index_compared"]
    fs.unlink(paths.index)
    assert "nothing" == check(paths)["index_compared"]


def test_index_names_the_record_it_lies_about(paths: StorePaths) -> None:
    """Record and field are named."""
    at = section(paths.index, "text").offset

    def change(data: bytearray) -> None:
        data[at] = ord("M")

    resealed(paths.index, change)
    (finding,) = check(paths)["findings"]
    assert [0] == finding["records"]
    assert "chunk" in finding["message"]


def test_every_byte_of_the_key_table_matters(paths: StorePaths) -> None:
    """A flipped byte anywhere in the key table is found."""
    size = fs.size(paths.keys)
    for at in range(0, size, size // 40):
        flip(paths.keys, at)
        assert not check(paths)["valid"], at
        flip(paths.keys, at)


def test_forged_key_table_is_found(paths: StorePaths) -> None:
    """A table with right checksums and one key too many."""
    forged = keys.Key(b"k" * 16, bytes(16), 1, "P", 0)
    keys.write(paths, identity(paths).checkpoint_id, [forged])
    assert ["keys-differ"] == codes(check(paths))


def test_index_of_another_checkpoint_is_a_warning(paths: StorePaths) -> None:
    """No reader uses it, so the store is valid."""
    old = Path(paths.index).read_bytes()
    save(paths, range(COUNT, COUNT + 1), Signing(KEY), flush=True)
    Path(paths.index).write_bytes(old)
    report = check(paths)
    assert (True, ["index-stale"]) == (report["valid"], codes(report))


def write_graph(paths: StorePaths) -> dict[str, Any]:
    """A graph beside the store; returns hnswlib's state of it."""
    pytest.importorskip("hnswlib")
    from clawmem_core.search import ann
    from clawmem_core.search.index_reader import IndexReader
    from clawmem_core.search.numpy_executor import NumpyExecutor

    fd = fs.open_file(paths.real)
    base = IndexReader.open(paths.index, fd)
    graph = ann.build(NumpyExecutor(base))
    ann.save(paths.ann, base, graph)
    base.close()
    fs.close(fd)
    return dict(graph.__getstate__()[0])


def test_graph(paths: StorePaths) -> None:
    """A graph is held against the file: whole, stale, damaged, resealed over another vector, of fewer rows."""
    from clawmem_core.search import ann_file

    state = write_graph(paths)
    assert [] == codes(check(paths))
    whole = Path(paths.ann).read_bytes()
    for at in range(0, len(whole), len(whole) // 40):
        flip(paths.ann, at)
        assert ["ann-damaged"] == codes(check(paths)), at
        flip(paths.ann, at)
    state["data_level0"] = state["data_level0"].copy()
    state["data_level0"].view("<f4")[state["offset_data"] // 4] += 0.1
    id = identity(paths).checkpoint_id
    Path(paths.ann).write_bytes(b"".join(ann_file.encode(id, state)))
    assert ["ann-differs"] == codes(check(paths))
    state["label_lookup_external"] = state["label_lookup_external"] + 100
    Path(paths.ann).write_bytes(b"".join(ann_file.encode(id, state)))
    assert ["ann-damaged"] == codes(check(paths))
    Path(paths.ann).write_bytes(whole)
    save(paths, range(COUNT, COUNT + 1), Signing(KEY), flush=True)
    report = check(paths)
    assert (True, ["ann-stale"]) == (report["valid"], codes(report))


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (set_row("chunks", 1, b"memory number 7"), ["chunk"]),
        (set_row("timestamps", 1, 0.0), ["timestamp"]),
        (set_row("session_ids", 1, b"other"), ["session_id"]),
        (set_row("embeddings", 1, [9, 9, 9, 9]), ["embedding"]),
        (set_row("tombstones", 1, 1), ["deleted"]),
    ],
)
def test_index_tells_which_field_changed(paths: StorePaths, change: Edit, fields: list[str]) -> None:
    """The honest copy in the index, confirmed by the signed hash, names the field."""
    edit(paths, change)
    report = check(paths)
    assert [1] == report["changed"]
    assert {"1": fields} == report["fields"]
    assert ["record-changed"] == codes(report)


def test_derived_files_do_not_hide_an_edit(paths: StorePaths) -> None:
    """An edit and an index rebuilt from it: the record is named."""
    edit(paths, set_row("chunks", 1, b"memory number 7"))
    fd = fs.open_file(paths.real)
    with load(fd, paths.real) as columns:
        derived.write(paths, columns)
    fs.close(fd)
    assert [1] == check(paths)["changed"]


# ---------------------------------------------------------------- notes


def note_of(paths: StorePaths, path: Path) -> str:
    """Keep the store's note elsewhere."""
    path.write_text(check(paths)["note"], encoding="utf-8")
    return str(path)


def compared(paths: StorePaths, note: str) -> tuple[str, bool, list[str]]:
    """What verify says of a store and a note."""
    report = check(paths, note_path=note)
    return report["checkpoint"]["comparison"], report["valid"], codes(report)


def test_rollback_and_rewriting(paths: StorePaths, tmp_path: Path) -> None:
    """Same, extended, rolled back, rewritten."""
    first = note_of(paths, tmp_path / "note1")
    old = StorePaths(shutil.copytree(paths.directory, tmp_path / "old") / "m.h5")
    assert ("same", True, []) == compared(paths, first)
    save(paths, range(COUNT, COUNT + 3), Signing(KEY), flush=True)
    second = note_of(paths, tmp_path / "note2")
    assert ("same", True, []) == compared(paths, second)
    assert ("extended", True, []) == compared(paths, first)
    assert ("rolled-back", False, ["note-rolled-back"]) == compared(old, second)
    assert ("same", True, []) == compared(old, first)
    save(old, range(COUNT, COUNT + 1), Signing(KEY), flush=True, text="another future")
    assert check(old)["valid"]
    assert ("rewritten", False, ["note-rewritten"]) == compared(old, second)


def test_log_cut_shows_against_the_note(paths: StorePaths, template: Path, tmp_path: Path) -> None:
    """A store put back whole, log and all, is valid by itself and older than the note."""
    save(paths, range(COUNT, COUNT + 3), Signing(KEY), flush=True)
    kept = note_of(paths, tmp_path / "note")
    for name in ("m.h5", "m.h5.wal"):
        shutil.copy2(template / name, paths.directory)
    fs.unlink(paths.index)
    fs.unlink(paths.keys)
    assert check(paths)["valid"]
    assert ("rolled-back", False, ["note-rolled-back"]) == compared(paths, kept)


def test_foreign_note(paths: StorePaths, tmp_path: Path) -> None:
    """A note of another store of the same key."""
    other = StorePaths(tmp_path / "other.h5")
    create_store(other, StoreConfig(dim=4))
    save(other, range(2), Signing(KEY), flush=True)
    assert ("other-store", False, ["note-other-store"]) == compared(paths, note_of(other, tmp_path / "n"))


def test_bad_notes(paths: StorePaths, tmp_path: Path) -> None:
    """Edited, signed by another key, nonsense, missing: exit 12."""
    kept = note_of(paths, tmp_path / "n")
    bad = tmp_path / "bad"
    for content in (Path(kept).read_text().replace("\n6\n", "\n7\n"), "no note\n", ""):
        bad.write_text(content)
        with pytest.raises(NoteError):
            check(paths, note_path=str(bad))
    with pytest.raises(NoteError):
        verify(paths, secret_key(2).public, note_path=kept)
    for path in ("missing", "."):
        with pytest.raises(NoteError):
            check(paths, note_path=str(tmp_path / path))


def test_note_against_a_stripped_store(paths: StorePaths, tmp_path: Path) -> None:
    """Without a seal there is nothing to compare: a finding."""
    kept = note_of(paths, tmp_path / "n")
    edit(paths, lambda file: file.__delitem__("integrity"))
    assert {"unsigned", "note-uncompared"} <= set(codes(check(paths, note_path=kept)))


def test_edited_note_in_the_file(paths: StorePaths) -> None:
    """The note in the file is checked too."""
    edit(paths, set_row("note", 60, 0x39, "integrity"))
    assert ["note-changed"] == codes(check(paths))


def test_wrong_key(paths: StorePaths) -> None:
    """A valid signature of somebody else is not valid."""
    report = verify(paths, secret_key(2).public)
    assert not report["valid"]
    assert {"other-key", "signature-invalid"} <= set(codes(report))
