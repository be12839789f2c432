"""The index against the columns it was built from."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from clawmem_core.model import Record
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.storage import fs
from tests.core.search.index_stores import columns_of, reader_of, record, write_store

DIM = 4


def some_records(seed: int, count: int) -> list[Record]:
    """Records of every kind: gaps in the ids, deleted ones, without vector, session or text, of several scopes."""
    chance = random.Random(seed)
    found, id = [], 0
    for _ in range(count):
        id += chance.choice((1, 1, 1, 3))
        words = chance.choices(["café", "tea", "snake_case", "The", "日本語", "run", "running"], k=chance.randrange(8))
        found.append(
            record(
                id,
                " ".join(words),
                None if chance.random() < 0.2 else [chance.gauss(0, 1) for _ in range(DIM)],
                session=chance.choice(("", "a", "b", "ü")),
                scope=chance.choice((b"", b"", b"\1" * 32, b"\2" * 32)),
                tags=chance.choice(("", "x, y", "z")),
                key=chance.choice(("", f"key{id}")),
                source_id=chance.choice(("", f"old{id}")),
                source_channel=chance.choice(("cli", "chat", "")),
                deleted=chance.random() < 0.2,
                activation=chance.choice((1.0, 0.5)),
            )
        )
    return found


@pytest.mark.parametrize("count", [0, 1, 50, 3000])
def test_every_field_is_read_back(count: int) -> None:
    """A record read from the index is the record it was built from."""
    records = some_records(count, count)
    reader = reader_of(records, DIM)
    assert records == [reader.record(row) for row in range(reader.count)]
    assert [row.id for row in records if row.deleted] == reader.deleted_ids()
    assert len([row for row in records if not row.deleted]) == reader.active


@pytest.mark.parametrize("seed", range(3))
def test_ids_are_found(seed: int) -> None:
    """row_of finds every id and nothing else."""
    records = some_records(seed, 60)
    reader = reader_of(records, DIM)
    rows = {entry.id: row for row, entry in enumerate(records)}
    ids = range(-2, records[-1].id + 3)
    assert [rows.get(id, -1) for id in ids] == [reader.row_of(id) for id in ids]


@pytest.mark.parametrize("seed", range(3))
def test_sessions_hold_their_live_rows(seed: int) -> None:
    """rows_of_session gives the live rows of exactly that scope and session, in order."""
    records = some_records(seed, 80)
    reader = reader_of(records, DIM)
    for scope in (b"", b"\1" * 32, b"\2" * 32, b"\3" * 32):
        for name in ("", "a", "b", "ü", "none"):
            expected = [
                row for row, entry in enumerate(records)
                if not entry.deleted and entry.scope == scope and entry.session_id == name
            ]  # fmt: skip
            assert expected == list(reader.rows_of_session(scope, name))


def test_neighbours_are_the_live_records_beside(seed: int = 5) -> None:
    """prev and next skip deleted rows, stay within scope and session, and do not exist without a session."""
    records = some_records(seed, 200)
    reader = reader_of(records, DIM)
    last: dict[tuple[bytes, str], int] = {}
    previous, following = [-1] * len(records), [-1] * len(records)
    for row, entry in enumerate(records):
        if entry.deleted or not entry.session_id:
            continue
        key = (entry.scope, entry.session_id)
        if key in last:
            previous[row], following[last[key]] = last[key], row
        last[key] = row
    found = reader.sections.column("prev"), reader.sections.column("next")
    assert (previous, following) == tuple(column.tolist() for column in found if column is not None)


def test_settings_are_read_back() -> None:
    """Every setting keeps value and type."""
    columns = columns_of([], 3, agent_id="a\nü", float16=False, decay_factor=0.25)
    reader = reader_of([], 3, agent_id="a\nü", float16=False, decay_factor=0.25)
    assert columns.config.as_dict() == dict(reader.config)
    assert [type(value) for value in columns.config.as_dict().values()] == [type(v) for v in reader.config.values()]


def test_events_are_found_by_scope() -> None:
    """events_of_scope gives the events of one scope; event_rows gives all."""
    records = some_records(7, 60)
    reader = reader_of(records, DIM)
    for scope in (b"\1" * 32, b"\2" * 32, b"\3" * 32):
        expected = [entry.id for entry in records if entry.scope == scope]
        assert expected == [event.record_id for event in reader.events_of_scope(scope)]
    assert sum(1 for entry in records if entry.scope) == len(list(reader.event_rows()))


@pytest.mark.parametrize("float16", [True, False])
def test_vectors_come_from_the_store_file(tmp_path: Path, float16: bool) -> None:
    """With an index beside a file the stored bytes are read at their offsets."""
    rng = np.random.default_rng(1)
    records = [record(id, "t", rng.standard_normal(DIM).tolist(), float16=float16) for id in range(2100)]
    store, index = write_store(tmp_path, columns_of(records, DIM, float16=float16))
    fd = fs.open_file(store)
    reader = IndexReader.open(index, fd)
    assert [row.vector for row in records] == [reader.vector(row) for row in range(len(records))]
    reader.close()
    fs.close(fd)


def test_an_index_of_another_file_is_refused(tmp_path: Path) -> None:
    """Missing, of another size, time or checkpoint id: not used."""
    store, index = write_store(tmp_path, columns_of(some_records(1, 30), DIM))
    data = bytearray(Path(store).read_bytes())
    fd = fs.open_file(store)
    with pytest.raises(UnusableIndex, match="missing"):
        IndexReader.open(index + "x", fd)
    IndexReader.open(index, fd).close()
    stat = fs.stat(store)
    assert stat is not None
    data[3] ^= 1
    Path(store).write_bytes(data)
    import os

    os.utime(store, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(UnusableIndex, match="another checkpoint"):
        IndexReader.open(index, fd)
    Path(store).write_bytes(data + b"x")
    with pytest.raises(UnusableIndex, match="another checkpoint"):
        IndexReader.open(index, fd)
    fs.close(fd)


def test_damage_is_never_read_as_content() -> None:
    """Every cut is refused; a flipped byte is refused when it is read, or never read: the records stay the same."""
    from clawmem_core.search.index_build import build
    from clawmem_core.search.index_writer import IndexFile, MemorySink

    records = some_records(11, 40)
    sink = MemorySink()
    build(columns_of(records, DIM), IndexFile(sink), 0, 0)
    whole = bytes(sink.data)
    chance = random.Random(3)
    for _ in range(200):
        with pytest.raises(UnusableIndex):
            IndexReader(whole[: chance.randrange(len(whole))], -1)
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        try:
            reader = IndexReader(damaged, -1)
            assert records == [reader.record(row) for row in range(reader.count)]
        except UnusableIndex:
            pass


def test_a_damaged_index_heals(tmp_path: Path) -> None:
    """With a way to rebuild, every flip leaves every answer as it is: records, sessions, settings and events."""
    records = some_records(11, 60)
    store, index = write_store(tmp_path, columns_of(records, DIM))
    whole = Path(index).read_bytes()
    fd = fs.open_file(store)
    chance = random.Random(4)
    healed = 0
    for _ in range(120):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        Path(index).write_bytes(damaged)
        try:
            reader = IndexReader.open(index, fd)
        except UnusableIndex:
            continue
        reader.rebuild = lambda: whole
        assert records == [reader.record(row) for row in range(reader.count)]
        assert [0, 1] == [reader.row_of(entry.id) for entry in records[:2]]
        assert reader.config["dim"] == DIM
        assert sum(1 for entry in records if entry.scope) == len(list(reader.event_rows()))
        healed += reader.epoch
        assert bool(reader.damage) == bool(reader.epoch)
        reader.close()
    fs.close(fd)
    assert healed > 20
