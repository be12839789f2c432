"""Does an index answer every read and search as one built anew from the HDF5 file would?

An index that was brought forward from checkpoint to checkpoint has other segments, other steps of its int8 vectors and
looser bounds than a fresh one, so these are compared by what they say: which row holds which word how often, how near
an int8 vector is to the stored one, whether a bound still bounds. Everything else is compared byte for byte.

Invariants: nothing in the index is believed, every number is checked before it is used as a place; a difference that
could change a page of hits is reported. Not judged: how fast the index is, and how fine the steps of its vectors are.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from clawmem_core.search import index_build as build
from clawmem_core.search.index_postings import HeadRange
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.index_update import known_texts
from clawmem_core.search.index_writer import IndexFile, MemorySink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from numpy.typing import NDArray

    from clawmem_core.search.index_segment import Segment
    from clawmem_core.storage.columns import Columns

    Array = NDArray[Any]

#: sections that depend on the columns and the lengths in tokens alone, however the index came about
_COLUMNS: Final = (
    "norm", "chunks", "exact", "ndl", "prev", "next", "session", "ses", "ses.o", "sescope", "sesrow", "sesoff", "scope",
    "scopes", "sesrows", "entities", "rels", "aliases", "events", "events.s", "values", "values.s", "settings",
)  # fmt: skip
_TOTALS: Final = (
    "active", "lengths", "neighbour_lengths", "vectors", "neighbour_weight", "ascending_times", "shortest",
)  # fmt: skip
NO_ROWS: Final = np.zeros(0, np.int64)
_ESCAPE: Final = 255  # in `tf`: look in `tfx`
_STEPS: Final = 0.5 + 1e-3  # distance of an int8 value from the true one: half a step, and rounding
_ROUNDING: Final = 1e-5


class Forged(ValueError):
    """The index cannot be an honest one; the text says what is wrong."""


def columns_differ(reader: IndexReader, columns: Columns) -> Iterator[str]:
    """What differs in all but texts, vectors and words, one text for each part.

    Lengths in tokens are believed, and so are sessions, channels and tags: the caller compared them.
    """
    lengths = _token_lengths(reader, columns.count)
    if len(lengths) != columns.count:
        yield "section dl"
        return
    totals = build.Totals(columns.config.neighbour_weight)
    totals.vectors = int(np.count_nonzero((columns.norms > 0) & (columns.tombstones == 0)))
    sink = MemorySink()
    file = IndexFile(sink)
    known = known_texts(reader, NO_ROWS)
    build.write_columns(columns, file, build.Rows(columns, known["session"]), lengths, totals, known)
    file.finish(build.header_of(columns, 0, 0))
    built = IndexReader(sink.data, -1)
    for name in _COLUMNS:
        if bytes(reader.sections.blob(name)) != bytes(built.sections.blob(name)):
            yield f"section {name}"
    if any(getattr(reader, name) != getattr(built, name) for name in _TOTALS):
        yield "section totals"


def words_differ(reader: IndexReader, columns: Columns) -> Iterator[str]:
    """What differs in vectors and words, one text for each part. Raises Forged and as the reader."""
    yield from _vectors(reader, columns)
    built = IndexReader(build.build_in_memory(columns), -1)
    if not np.array_equal(_token_lengths(reader, columns.count), _token_lengths(built, columns.count)):
        yield "section dl"
    mine = Lists(reader, {})
    if not mine.same(Lists(built, mine.numbers)):
        yield "its postings"
    yield from _bounds(reader, columns)


def _token_lengths(reader: IndexReader, count: int) -> Array:
    column = reader.sections.column("dl")
    return np.zeros(count, np.int64) if column is None else np.asarray(column).astype(np.int64)


# ---------------------------------------------------------------- vectors


def _vectors(reader: IndexReader, columns: Columns) -> Iterator[str]:
    """Int8 vectors are the stored ones to half a step, with the right fingerprints, and errors bound the true ones."""
    having = (columns.norms > 0) & (columns.tombstones == 0)
    if not having.any():
        return
    step, dim = reader.step, columns.config.dim
    section = reader.sections.column("vec")
    if section is None or len(section) != columns.count * dim or not 0 < step <= (1 + _ROUNDING) / 127:
        yield "section vec"
        return
    small = np.frombuffer(section, np.int8).reshape(columns.count, dim)
    prints = np.asarray(reader.sections.column("fp"))
    squares = 0.0
    largest = 0.0
    for start in range(0, columns.count, build.BLOCK):
        rows = small[start : start + build.BLOCK]
        dead = columns.tombstones[start : start + build.BLOCK] != 0  # may keep their old vectors: no search takes them
        unit = build.normalised(columns.embeddings.read(start, start + build.BLOCK))
        unit[~having[start : start + build.BLOCK]] = 0
        if not np.array_equal(prints[start : start + build.BLOCK], build.fingerprints(rows)):
            yield "section fp"
            return
        if (np.abs((unit / np.float32(step)).clip(-127, 127) - rows)[~dead] > _STEPS).any():
            yield "section vec"
            return
        unit -= rows * np.float32(step)
        unit[dead] = 0
        errors = np.einsum("ij,ij->i", unit, unit, dtype=np.float64)
        squares += float(errors.sum())
        largest = max(largest, float(errors.max()) ** 0.5)
    spread = (squares / int(np.count_nonzero(having))) ** 0.5
    if not (reader.error_max * (1 + _ROUNDING) >= largest and reader.error_spread * (1 + _ROUNDING) >= spread):
        yield "the errors of its vectors"


# ---------------------------------------------------------------- postings


class Lists:
    """All postings of an index as (word and row as one number, frequency), ascending; rows that several segments hold
    are refused.

    `numbers`: number of each word that some row holds; known ones are taken over.
    """

    def __init__(self, reader: IndexReader, known: dict[bytes, int]) -> None:
        self.numbers = dict(known)
        self._count = reader.count
        keys: list[Array] = []
        frequencies: list[Array] = []
        held = np.zeros(reader.count, bool)
        end = 0
        for segment in reader.segments:
            words, rows, values = _lists(segment, reader.count)
            mine = np.zeros(reader.count, bool)
            mine[rows] = True
            owned = reader.sections.column("owned", segment.number)
            if owned is not None:
                _require(
                    not mine[~_marked(np.asarray(owned), reader.count)].any(), segment, "holds rows it does not own"
                )
            else:
                _require(segment.low >= end and not (mine[: segment.low].any() or mine[segment.high :].any()), segment,
                         "holds rows out of its range")  # fmt: skip
                end = segment.high
            _require(not (held & mine).any(), segment, "holds rows of another")
            held |= mine
            keys.append(self._named(segment, words) * self._count + rows)
            frequencies.append(values)
        self.keys = np.concatenate(keys) if keys else np.zeros(0, np.int64)
        self.frequencies = np.concatenate(frequencies) if frequencies else np.zeros(0, np.int64)

    def _named(self, segment: Segment, words: Array) -> Array:
        """Numbers of words that mean the same in every segment."""
        names = _words(segment)
        used = np.flatnonzero(np.bincount(words, minlength=len(names)))
        number = np.zeros(len(names), np.int64)
        number[used] = [self.numbers.setdefault(names[at], len(self.numbers)) for at in used.tolist()]
        return number[words]

    def same(self, other: Lists) -> bool:
        """Whether both hold the same words in the same rows equally often."""
        if self.numbers != other.numbers:
            return False
        mine, theirs = np.argsort(self.keys), np.argsort(other.keys)
        return np.array_equal(self.keys[mine], other.keys[theirs]) and np.array_equal(
            self.frequencies[mine], other.frequencies[theirs]
        )


def _require(holds: bool, segment: Segment, what: str) -> None:
    if not holds:
        raise Forged(f"posting segment {segment.number} {what}")


def _marked(rows: Array, count: int) -> Array:
    marked = np.zeros(count, bool)
    marked[rows] = True
    return marked


def _column(segment: Segment, name: str, kind: Any = np.int64) -> Array:
    column = segment.sections.column(name, segment.number)
    return np.zeros(0, kind) if column is None else np.asarray(column).astype(kind)


def _words(segment: Segment) -> list[bytes]:
    data = bytes(segment.sections.column("words", segment.number) or b"")
    return [data[low:high] for low, high in pairwise(_column(segment, "words.o").tolist())]


def _ascending(values: Array, starts: Array | None = None) -> bool:
    """Whether values ascend strictly, within each list that begins at one of `starts`."""
    rising = np.diff(values) > 0
    if starts is not None:
        edges = starts[(starts > 0) & (starts < len(values))] - 1
        rising[edges] = True
    return bool(rising.all())


def _lists(segment: Segment, count: int) -> tuple[Array, Array, Array]:
    """(word, row, frequency) of every posting of a segment. Raises Forged where its parts do not fit together."""
    names = _words(segment)
    _require(len(names) == segment.words and all(a < b for a, b in pairwise(names)), segment, "has unsorted words")
    _require(0 <= segment.low <= segment.high <= count, segment, "has a range beyond the rows")
    starts, rows, values = _column(segment, "starts"), _column(segment, "rows"), _column(segment, "tf")
    fits = len(starts) == len(names) + 1 and starts[0] == 0 and bool((np.diff(starts) >= 0).all())
    _require(fits and starts[-1] == len(rows) == len(values), segment, "has lists that do not fit")
    _require(not len(rows) or 0 <= rows.min() <= rows.max() < count, segment, "has rows that are not there")
    _require(_ascending(rows, starts), segment, "has unsorted lists")
    large = _column(segment, "tfx").reshape(-1, 2)
    places = np.flatnonzero(values == _ESCAPE)
    _require(np.array_equal(large[:, 0], places) and bool((large[:, 1] >= _ESCAPE).all()), segment, "has wrong escapes")
    values[places] = large[:, 1]
    words = np.repeat(np.arange(len(names)), np.diff(starts))
    heads, own = _heads(segment)
    _require(
        not len(heads) or 0 <= heads[:, 0].min() <= heads[:, 0].max() < len(names), segment, "has unknown head words"
    )
    _require(len(np.unique(heads[:, 0])) == len(heads), segment, "has a head word twice")
    _require(not np.isin(heads[:, 0], words).any(), segment, "has head words with lists")
    place, row = np.nonzero(own)
    _require(
        np.array_equal(np.bincount(place, minlength=len(heads)), heads[:, 1]), segment, "counts head words wrongly"
    )
    return (
        np.concatenate([words, heads[place, 0]]),
        np.concatenate([rows, row + segment.low]),
        np.concatenate([values, own[place, row]]),
    )


def _heads(segment: Segment) -> tuple[Array, Array]:
    """Head terms (word, rows) and their own frequencies u8[H, rows]."""
    heads = _column(segment, "heads").reshape(-1, 2)
    own = _column(segment, "htf", np.uint8)
    size = segment.high - segment.low
    _require(
        len(heads) == segment.head_count and own.size == len(heads) * size, segment, "has head tables that do not fit"
    )
    return heads, own.reshape(len(heads), size)


def _bounds(reader: IndexReader, columns: Columns) -> Iterator[str]:
    """Head tables bound what their segment's postings add to a row, and know the rows that they reach outside it."""
    rows = build.Rows(columns)
    lengths = _token_lengths(reader, columns.count)
    for segment in reader.segments:
        if not segment.head_count:
            continue
        average = segment.average
        _require(0 <= average < np.inf, segment, "has no average length")
        _, own = _heads(segment)
        span = HeadRange(segment.low, segment.high, rows, lengths, columns.config.neighbour_weight)
        span.average = average
        bounds = _column(segment, "himp", np.int8)
        if bounds.size != own.size or (bounds.reshape(own.shape[::-1]) < span.impacts(own)).any():
            yield f"the bounds of posting segment {segment.number}"
        beside = np.zeros(columns.count, bool)
        for near in (rows.previous, rows.following):
            beside |= (near >= segment.low) & (near < segment.high)
        beside[segment.low : segment.high] = False
        if not np.array_equal(_column(segment, "cross"), np.flatnonzero(beside)):
            yield f"the rows beside posting segment {segment.number}"
