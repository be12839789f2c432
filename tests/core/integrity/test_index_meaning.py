"""The deep comparison of an index: honest histories pass, a lie in any part is found."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from clawmem_core.integrity.index_meaning import columns_differ, words_differ
from clawmem_core.integrity.sidecars import FAULTS
from clawmem_core.search import index_format as form
from clawmem_core.search import index_postings, index_update
from clawmem_core.search.index_reader import IndexReader
from tests.core.search.test_index_update import Growing


@pytest.fixture(autouse=True, scope="module")
def small_limits() -> Iterator[None]:
    """What large stores do, in small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form, "HEAD_FROM", 60)
        patch.setattr(form, "HEAD_TERMS", 5)
        patch.setattr(index_postings, "READ", 25)
        patch.setattr(index_postings, "SEGMENT_ROWS", 200)
        patch.setattr(index_update, "LEAST_ROWS", 10)
        patch.setattr(index_update, "LEVEL_ROWS", 8)
        patch.setattr(index_update, "FAN", 3)
        patch.setattr(index_update, "SCATTERED_FREE", 60)
        yield


class Kept(Growing):
    """Keeps the columns of its last checkpoint."""

    def columns(self) -> Any:
        """The columns of the model."""
        self.last = super().columns()
        return self.last


def differences(case: Kept, index: bytes) -> list[str]:
    """What differs between an index and the columns of the last checkpoint."""
    try:
        reader = IndexReader(index, -1)
        return [*columns_differ(reader, case.last), *words_differ(reader, case.last)]
    except FAULTS as error:
        return [str(error) or type(error).__name__]


def grown(seed: int, directory: Path) -> Iterator[Kept]:
    """A store after each of several checkpoints."""
    case = Kept(seed, 250, directory)
    for _ in range(6):
        case.add(case.chance.choice((1, 5, 20, 70)))
        for _ in range(case.chance.choice((0, 3, 8))):
            case.alter()
        case.checkpoint()
        yield case


@pytest.mark.parametrize("seed", range(5))
def test_honest_histories_pass(seed: int, tmp_path: Path) -> None:
    """An index that was brought forward again and again says what a fresh one says."""
    segments = []
    for case in grown(seed, tmp_path):
        index = Path(case.index).read_bytes()
        segments.append(len(IndexReader(index, -1).segments))
        assert [] == differences(case, index)
    assert max(segments) > 2


def resealed(data: bytearray) -> bytes:
    """An index with its checksums put right."""
    header = form.Header.unpack(bytes(data[: form.HEADER_SIZE]))
    for page in range(header.pages):
        low, high = page * form.PAGE or form.HEADER_SIZE, min((page + 1) * form.PAGE, header.pages_offset)
        at = header.pages_offset + 4 * page
        data[at : at + 4] = crc32(data[low:high]).to_bytes(4, "little")
    header.pages_crc = crc32(data[header.pages_offset :])
    data[: form.HEADER_SIZE] = header.pack()
    return bytes(data)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A store whose index has several segments, head tables, and a segment of scattered rows."""
    return list(grown(1, tmp_path_factory.mktemp("grown")))[-1]


def idle_segments(index: bytes) -> set[int]:
    """Segments whose last posting went with a record that was replaced or deleted."""
    table = IndexReader(index, -1).sections.table
    return {segment for name, segment in table if name == "rows" and not table[name, segment].length
            and ("htf", segment) not in table}  # fmt: skip


#: sections that plain verification compares, and those that say nothing about what is found
_ELSEWHERE = (
    "id", "text", "text.o", "chan", "chans", "chans.o", "tag", "tags", "tags.o", "time", "act", "flags",
)  # fmt: skip


def test_a_lie_in_any_section_is_found(old: Kept) -> None:
    """A byte in the middle of every section, resealed."""
    index = Path(old.index).read_bytes()
    table = IndexReader(index, -1).sections.table
    idle = idle_segments(index)
    assert {"owned", "heads", "htf", "himp", "vec", "fp", "rows", "tf", "words"} <= {name for name, _ in table}
    for (name, segment), section in table.items():
        if name in (*_ELSEWHERE, "segment", "totals") or segment in idle or not section.length:
            continue
        data = bytearray(index)
        at = section.offset + section.length // 2 // section.width * section.width
        if name == "himp":
            while not 0 < data[at] < 128:
                at += 1
            data[at] = 0
        elif name == "vec":
            data[at] = (data[at] + 2) & 0xFF
        else:
            data[at] ^= 1
        assert differences(old, resealed(data)), (name, segment)


NAN = float("nan")


@pytest.mark.parametrize(
    ("field", "value"),
    [(0, 1), (1, 1), (3, 1), (4, 0.0), (4, 0.5), (4, NAN), (5, 0.0), (5, NAN), (6, 0.0), (7, 0.9), (9, 999)],
)
def test_totals_that_hide_hits_are_found(old: Kept, field: int, value: Any) -> None:
    """Counts, steps and errors that would make a search look at too few vectors."""
    data = bytearray(Path(old.index).read_bytes())
    at = IndexReader(bytes(data), -1).sections.table["totals", 0].offset
    fields = list(form.TOTALS.unpack_from(data, at))
    fields[field] = value
    form.TOTALS.pack_into(data, at, *fields)
    assert differences(old, resealed(data))


@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize("value", [0, 1, 1 << 40, (1 << 64) - 1])
def test_segments_that_do_not_fit_are_found(old: Kept, field: int, value: int) -> None:
    """Ranges and sizes of every posting segment, huge ones too, never raise anything else."""
    index = Path(old.index).read_bytes()
    for (name, segment), section in IndexReader(index, -1).sections.table.items():
        if name != "segment":
            continue
        data = bytearray(index)
        now = struct.unpack_from("<Q", data, section.offset + 8 * field)[0]
        struct.pack_into("<Q", data, section.offset + 8 * field, value)
        free = field < 2 and ("owned", segment) in IndexReader(index, -1).sections.table  # a range nobody asks for
        if value != now and not free:
            assert differences(old, resealed(data)), (segment, field)


def test_a_segment_without_its_words_is_found(old: Kept) -> None:
    """A whole segment taken out of the section table."""
    index = bytearray(Path(old.index).read_bytes())
    header = form.Header.unpack(bytes(index[: form.HEADER_SIZE]))
    size = form.table_size(1)
    idle = idle_segments(bytes(index))
    for place in range(header.sections):
        at = header.table_offset + place * size
        if index[at : at + 8].rstrip(b"\0") == b"segment" and index[at + 8] not in idle:
            data = bytearray(index)
            data[at : at + 8] = b"nothing\0"
            assert differences(old, resealed(data)), place
