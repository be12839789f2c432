"""Posting segments of the index: words, which rows hold them, how often, and tables for the commonest words.

Invariants: a live row is in exactly one segment; lists are in ascending row order; N, df and average length are taken
over all segments at query time, so the number of segments changes no score. The impact matrix bounds from above what
the postings of the segment add to any of its rows for a head term.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clawmem_core.search import index_format as form
from clawmem_core.search.index_writer import IndexFile
from clawmem_core.search.ranking import K1, B
from clawmem_core.search.tokenizer import STOPWORD_MARK, Tokenizer

Array = npt.NDArray[Any]

SEGMENT_ROWS = 131_072
SEGMENT_TOKENS = 8_000_000
READ = 1024  # texts read at a time
ESCAPE = 255  # in `tf`: look the frequency up in `tfx`


class Texts(Protocol):
    """A column of texts."""

    def texts(self, start: int, stop: int) -> list[str]: ...


class Neighbours(Protocol):
    """Liveness and neighbours of all rows."""

    count: int
    live: Array
    previous: Array
    following: Array


class Vocabulary(dict[str, int]):
    """Token -> number in order of first appearance."""

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        return number


class Postings:
    """Lists of one segment: sorted words, list starts [V + 1], rows and frequencies."""

    def __init__(self, words: list[bytes], starts: Array, rows: Array, frequencies: Array) -> None:
        self.words, self.starts, self.rows, self.frequencies = words, starts, rows, frequencies


class Collector:
    """Gathers the tokens of rows until a segment is full."""

    def __init__(self, tokens: Tokenizer) -> None:
        self.tokens = tokens
        self.vocabulary = Vocabulary()
        self.flat = array("I")
        self.rows: list[int] = []
        self.sizes: list[int] = []
        self.lengths: list[int] = []

    @property
    def full(self) -> bool:
        """Whether a new segment should begin."""
        return len(self.rows) >= SEGMENT_ROWS or len(self.flat) >= SEGMENT_TOKENS

    def add(self, row: int, text: str) -> None:
        """Tokens of the text of a row; rows come in ascending order."""
        document = self.tokens.document(text)
        stopwords = self.tokens.stopwords(text)
        self.rows.append(row)
        self.lengths.append(len(document))
        self.sizes.append(len(document) + len(stopwords))
        self.flat.extend(map(self.vocabulary.__getitem__, document))
        if stopwords:
            self.flat.extend(map(self.vocabulary.__getitem__, stopwords))

    def postings(self) -> Postings:
        """The lists of everything added."""
        encoded = [word.encode() for word in self.vocabulary]
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        rank = np.empty(len(encoded), np.int64)
        rank[order] = np.arange(len(encoded))
        count = max(1, len(self.rows))
        keys = rank[np.frombuffer(self.flat, np.uint32)] if len(self.flat) else np.zeros(0, np.int64)
        keys *= count
        keys += np.repeat(np.arange(len(self.sizes)), self.sizes)
        keys.sort()
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
        frequencies = np.diff(np.append(first, len(keys)))
        keys = keys[first]
        starts = np.searchsorted(keys, np.arange(len(encoded) + 1) * count)
        rows = np.array(self.rows, np.int64)[keys % count] if len(keys) else keys
        return Postings([encoded[at] for at in order], starts, rows, frequencies)


def build_segments(
    file: IndexFile, tokens: Tokenizer, texts: Texts, rows: Neighbours, neighbour: float, lengths: Array, wanted: Array,
    low: int = 0,
) -> None:  # fmt: skip
    """Write segments of the wanted rows from `low` on; puts their lengths in tokens into `lengths`, int64[N]."""
    collector = Collector(tokens)
    for start in range(low, rows.count, READ):
        stop = min(start + READ, rows.count)
        for row, text in enumerate(texts.texts(start, stop), start):
            if wanted[row]:
                collector.add(row, text)
        if collector.full or stop == rows.count:
            lengths[collector.rows] = collector.lengths
            heads = HeadRange(low, stop, rows, lengths, neighbour)
            write_segment(file, collector.postings(), heads)
            collector, low = Collector(tokens), stop


def write_scattered(file: IndexFile, tokens: Tokenizer, texts: Texts, chosen: Array, lengths: Array) -> None:
    """Write one segment of some rows, ascending, wherever they are."""
    collector = Collector(tokens)
    for row in chosen.tolist():
        collector.add(row, texts.texts(row, row + 1)[0])
    lengths[chosen] = collector.lengths
    write_segment(file, collector.postings(), None)
    file.put("owned", chosen.astype(np.uint32), file.segments)


class HeadRange:
    """The rows low..high of a segment that holds all postings of these rows, for its head tables."""

    def __init__(self, low: int, high: int, rows: Neighbours, lengths: Array, neighbour: float) -> None:
        self.low, self.high, self.neighbour = low, high, neighbour
        self.previous, self.following = rows.previous[low:high], rows.following[low:high]
        around = np.append(lengths, 0)
        self.smoothed = lengths[low:high] + neighbour * (around[self.previous] + around[self.following])
        live = max(1, int(np.count_nonzero(rows.live[low:high])))
        self.average = float(self.smoothed.sum()) / live

    def _places(self, rows: Array) -> Array:
        """Rows counted from `low`; those outside, and none, as one place after the last."""
        return np.where((rows >= self.low) & (rows < self.high), rows - self.low, self.high - self.low)

    def impacts(self, frequencies: Array) -> Array:
        """Bounds int8[n, H] from own frequencies u8[H, n].

        ceil(127 / IMPACT_MAX * impact). What neighbours outside the segment add, and words that other segments hold for
        rows in its range, is not in it: a search adds that itself.
        """
        count = self.high - self.low
        bounds = np.zeros((count, len(frequencies)), np.int8)
        norm = K1 * ((1.0 - B) + B * (self.smoothed / self.average if self.average else 0.0 * self.smoothed))
        before, after = self._places(self.previous), self._places(self.following)
        for column, own in enumerate(frequencies):
            padded = np.append(own, np.uint8(0)).astype(np.float64)
            smoothed = padded[:count] + self.neighbour * (padded[before] + padded[after])
            bounds[:, column] = np.ceil(127.0 * smoothed / (smoothed + norm) + 1e-9).clip(0, 127)
        return bounds


def write_segment(file: IndexFile, postings: Postings, heads: HeadRange | None) -> None:
    """The sections of one segment. `heads`: for a segment of whole rows, None for one of scattered rows."""
    file.segments += 1
    segment = file.segments
    counts = np.diff(postings.starts)
    kept = np.ones(len(postings.rows), bool)
    chosen: list[int] = []
    if heads is not None and heads.high - heads.low >= form.HEAD_FROM:
        chosen = head_terms(postings, counts, heads.high - heads.low)
        write_heads(file, segment, postings, counts, heads, chosen)
        for term in chosen:
            kept[postings.starts[term] : postings.starts[term + 1]] = False
    rest = counts.copy()
    rest[chosen] = 0
    write_words(file, segment, postings.words)
    write_lists(file, segment, rest, postings.rows[kept], postings.frequencies[kept])
    low, high = (heads.low, heads.high) if heads is not None else (0, 0)
    average = heads.average if heads is not None else 0.0
    file.put("segment", form.SEGMENT.pack(low, high, len(postings.words), len(chosen), 0, average), segment)


def write_lists(file: IndexFile, segment: int, counts: Array, rows: Array, frequencies: Array) -> None:
    """Where each term's list starts, [V + 1], and the lists: rows and frequencies."""
    starts = np.zeros(len(counts) + 1, np.uint64)
    starts[1:] = np.cumsum(counts)
    file.put("starts", starts.astype(np.uint32 if int(starts[-1]) < 1 << 32 else np.uint64), segment)
    narrow_rows = np.uint16 if not len(rows) or int(rows.max()) < 1 << 16 else np.uint32
    file.put("rows", rows.astype(narrow_rows), segment)
    file.put("tf", np.minimum(frequencies, ESCAPE).astype(np.uint8), segment)
    large = np.flatnonzero(frequencies >= ESCAPE)
    if len(large):
        file.put("tfx", np.stack([large, frequencies[large]], axis=1).astype(np.uint32), segment)


def head_terms(postings: Postings, counts: Array, rows: int) -> list[int]:
    """Up to HEAD_TERMS commonest terms, in at least 1/64 of the rows each, without stopwords and huge frequencies."""
    candidates = np.flatnonzero(counts * 64 >= rows)
    common = candidates[np.argsort(-counts[candidates], kind="stable")]
    mark = STOPWORD_MARK.encode()
    found: list[int] = []
    for term in common.tolist():
        start, stop = postings.starts[term], postings.starts[term + 1]
        if not postings.words[term].startswith(mark) and postings.frequencies[start:stop].max() <= 255:
            found.append(term)
            if len(found) == form.HEAD_TERMS:
                break
    return found


def write_heads(
    file: IndexFile, segment: int, postings: Postings, counts: Array, heads: HeadRange, chosen: Sequence[int]
) -> None:
    """`heads`: u32 term and u32 df of each head term; `htf`: own frequencies [H, n]; `himp`: bounds [n, H]."""
    if not chosen:
        return
    file.head_ranges[segment] = (heads.low, heads.high)
    frequencies = np.zeros((len(chosen), heads.high - heads.low), np.uint8)
    for at, term in enumerate(chosen):
        span = slice(int(postings.starts[term]), int(postings.starts[term + 1]))
        frequencies[at, postings.rows[span] - heads.low] = postings.frequencies[span]
    file.put("heads", np.stack([np.array(chosen), counts[chosen]], axis=1).astype(np.uint32), segment)
    file.put("htf", frequencies, segment)
    file.put("himp", heads.impacts(frequencies), segment)


def write_words(file: IndexFile, segment: int, words: list[bytes]) -> None:
    """The sorted words and where each starts, u32[V + 1]."""
    offsets = np.zeros(len(words) + 1, np.uint32)
    offsets[1:] = np.cumsum(np.fromiter(map(len, words), np.uint32, len(words)))
    file.put("words", b"".join(words), segment)
    file.put("words.o", offsets, segment)
