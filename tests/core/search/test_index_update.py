"""An index brought forward against one built anew: they answer alike."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest

from clawmem_core.search import index_format, index_postings, index_update, planner
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.index_update import level, merge_from, write_index
from clawmem_core.storage import fs
from tests.core.search.index_stores import columns_of, write_store
from tests.core.search.search_cases import Case, PlainView, any_record, copy_of

DIM = 4


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What large stores do, in small ones."""
    monkeypatch.setattr(index_format, "HEAD_FROM", 60)
    monkeypatch.setattr(index_format, "HEAD_TERMS", 5)
    monkeypatch.setattr(index_postings, "READ", 25)
    monkeypatch.setattr(index_postings, "SEGMENT_ROWS", 200)
    monkeypatch.setattr(index_update, "LEAST_ROWS", 10)
    monkeypatch.setattr(index_update, "LEVEL_ROWS", 8)
    monkeypatch.setattr(index_update, "FAN", 3)
    monkeypatch.setattr(index_update, "SCATTERED_FREE", 60)
    monkeypatch.setattr(planner, "GATHER_WORDS", 8)
    monkeypatch.setattr(planner, "GATHER_VECTORS", 8)


class Growing(Case):
    """A store on disk that goes from checkpoint to checkpoint."""

    def __init__(self, seed: int, count: int, directory: Path) -> None:
        super().__init__(seed, count, 0, DIM)
        self.directory, self.generation = directory, 0
        self.put: set[int] = set()
        columns = self.columns()
        self.store, self.index = write_store(directory, columns)
        self.before = columns.checkpoint_id

    def columns(self) -> Any:
        """The columns of the model, with an id of their own."""
        columns = columns_of(list(self.records.values()), DIM)
        self.generation += 1
        columns.checkpoint_id = self.generation.to_bytes(16, "big")
        return columns

    def add(self, count: int) -> None:
        """New records."""
        for _ in range(count):
            self.records[self.next] = any_record(self.chance, self.next, DIM)
            self.put.add(self.next)
            self.next += 1

    def alter(self) -> None:
        """One record replaced, deleted or brought back."""
        id = self.chance.choice(sorted(self.records))
        how = self.chance.randrange(3)
        if how == 0:
            self.records[id] = any_record(self.chance, id, DIM)
            self.put.add(id)
        else:
            self.records[id].deleted = not self.records[id].deleted

    def checkpoint(self) -> bool:
        """Write store and index; returns whether the index was brought forward."""
        columns = self.columns()
        kept = Path(self.index).read_bytes()
        self.store, self.index = write_store(self.directory, columns)
        Path(self.index).write_bytes(kept)
        stat = fs.stat(self.store)
        assert stat is not None
        done = write_index(self.index, columns, stat, (self.before, frozenset(self.put)))
        self.before = columns.checkpoint_id
        self.put.clear()
        return done

    def compare(self, queries: int) -> None:
        """Reopened, the index gives the oracle's pages and the records as they are."""
        fd = fs.open_file(self.store)
        reader = IndexReader.open(self.index, fd)
        self.view = PlainView(reader)
        assert list(self.records.values()) == [reader.record(row) for row in range(reader.count)]
        for executor in ("pure", "numpy"):
            for _ in range(queries):
                request = self.request()
                request.executor = executor
                self.check(request)
        reader.close()
        fs.close(fd)


@pytest.mark.parametrize("seed", range(8))
def test_pages_stay_those_of_the_oracle(seed: int, tmp_path: Path) -> None:
    """Through many checkpoints of additions, replacements, deletions and undeletions."""
    case = Growing(seed, 250, tmp_path)
    brought = 0
    for turn in range(9):
        case.add(case.chance.choice((0, 1, 5, 20, 70)))
        for _ in range(case.chance.choice((0, 0, 3, 8)) if seed else 0):
            case.alter()
        brought += case.checkpoint()
        case.compare(4 if turn % 2 else 1)
    assert brought >= 5


def test_a_damaged_index_is_never_carried_over(tmp_path: Path) -> None:
    """After any flip in the old index the new one is right, and whole."""
    chance = random.Random(1)
    for _ in range(25):
        case = Growing(3, 120, tmp_path)
        data = bytearray(Path(case.index).read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        Path(case.index).write_bytes(data)
        case.add(5)
        case.checkpoint()
        case.compare(2)
        reader = IndexReader.of_file(os.open(case.index, os.O_RDONLY))
        reader.sections.check(0, reader.header.pages_offset)
        reader.close()


def test_damage_in_a_copied_page_ends_at_the_next_checkpoint(tmp_path: Path) -> None:
    """A whole page of texts that would only be copied is looked at: the index is built anew."""
    case = Growing(3, 1500, tmp_path)
    data = bytearray(Path(case.index).read_bytes())
    reader = IndexReader(bytes(data), -1)
    section = reader.sections.section("text")
    assert section is not None and section.length > 3 * index_format.PAGE
    data[section.offset + index_format.PAGE + 7] ^= 1
    Path(case.index).write_bytes(data)
    case.add(5)
    assert not case.checkpoint()
    case.compare(1)


def test_another_checkpoints_index_is_not_brought_forward(tmp_path: Path) -> None:
    """Only the index of the state before is; compaction, another tokenizer or store mean a new one."""
    case = Growing(3, 120, tmp_path)
    case.add(2)
    case.before = b"x" * 16
    assert not case.checkpoint()
    case.compare(1)
    del case.records[sorted(case.records)[5]]
    assert not case.checkpoint()
    case.compare(1)


def test_segments_merge_geometrically() -> None:
    """After many additions there are few segments, and rows were rewritten a bounded number of times."""
    ranges: list[tuple[int, int]] = [(0, 100_000)]
    written, end = 0, 100_000
    for _ in range(300):
        start, merged = merge_from(ranges, end + 5)
        ranges = [*ranges[: len(ranges) - merged], (start, end + 5)]
        end += 5
        written += end - start
    assert end == ranges[-1][1] and all(one[1] == two[0] for one, two in itertools.pairwise(ranges))
    assert len(ranges) <= 3 * 6
    assert written <= 1500 * 8
    assert level(8) == 0 < level(9)


def test_the_model_copies() -> None:
    """The model's records are independent of what the store holds."""
    entry = any_record(random.Random(0), 1, DIM)
    assert copy_of(entry) == entry
