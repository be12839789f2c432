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
from clawmem_core.search.tokenizer import STOPWORD_MARK, Tokenizer, split
from clawmem_core.search.word_table import WordTable

Array = npt.NDArray[Any]

SEGMENT_ROWS = 131_072
SEGMENT_TOKENS = 8_000_000
READ = 1024  # texts read at a time
KEPT_WORD = 64  # characters up to which a word is looked up rather than cut up again
MARK = "="  # stands for the end of a text among its words; no word has this character
ESCAPE = 255  # in `tf`: look the frequency up in `tfx`


_UNUSED = "\x1f"  # an ASCII character that hardly a text has; separates words like a blank
_END = f" {_UNUSED} "
_MARKING = "".join(MARK if char == _UNUSED else char if split(char) else " " for char in map(chr, range(256)))
_MARKED_BYTES = _MARKING.encode("latin-1")


class Texts(Protocol):
    """A column of texts."""

    def texts(self, start: int, stop: int) -> list[str]: ...


class Neighbours(Protocol):
    """Liveness and neighbours of all rows."""

    count: int
    live: Array
    previous: Array
    following: Array


class Words(dict[str, int]):
    """Word in its own case -> number, with the tokens that each gives: those of a document and its stopword. MARK is 0.

    Long words are numbered anew wherever they occur, so that the keys stay small. `lengths`: document tokens of a word;
    `starts`: where its tokens start in `tokens`, one more than words; `vocabulary`: token -> number.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.vocabulary: dict[str, int] = {}
        self.tokens = array("I")
        self.lengths, self.starts = array("I", [0]), array("Q", [0, 0])
        self[MARK] = 0

    def numbers(self, words: list[str]) -> list[int]:
        """The number of each word; those seen for the first time are cut up together."""
        fresh = list(dict.fromkeys([word for word in words if word not in self and len(word) <= KEPT_WORD]))
        for word, tokens in zip(fresh, self.tokenizer.words(fresh), strict=True):
            self._add(word, tokens)
        return list(map(self.__getitem__, words))

    def __missing__(self, word: str) -> int:
        return self._add(word, self.tokenizer.word(word))

    def _add(self, word: str, found: tuple[str, ...]) -> int:
        number = len(self.lengths)
        self.lengths.append(len(found))
        if (folded := word.casefold()) in self.tokenizer.dropped:
            found = (*found, STOPWORD_MARK + folded)
        numbers = self.vocabulary
        self.tokens.extend([numbers.setdefault(token, len(numbers)) for token in found])
        self.starts.append(len(self.tokens))
        if len(word) <= KEPT_WORD:
            self[word] = number
        return number


class Postings:
    """Lists of one segment: sorted words, list starts [V + 1], rows and frequencies."""

    def __init__(self, words: list[bytes], starts: Array, rows: Array, frequencies: Array) -> None:
        self.words, self.starts, self.rows, self.frequencies = words, starts, rows, frequencies


class Collector:
    """Gathers the words of rows until a segment is full."""

    def __init__(self, tokens: Tokenizer) -> None:
        self.words = Words(tokens)
        self._table = WordTable(self.words.numbers)
        self.rows: list[int] = []
        self._numbers: list[Array] = []
        self._tokens = 0

    @property
    def full(self) -> bool:
        """Whether a new segment should begin."""
        return len(self.rows) >= SEGMENT_ROWS or self._tokens >= SEGMENT_TOKENS

    def add(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Words of the texts of some rows; rows come in ascending order."""
        if texts:
            numbers = self._numbered(texts)
            starts = np.frombuffer(self.words.starts, np.uint64)
            self._tokens += int((starts[1:] - starts[:-1])[numbers].sum())
            self._numbers.append(numbers)
            self.rows += rows

    def _numbered(self, texts: Sequence[str]) -> Array:
        """Numbers of the words of all texts in order, u32, that of MARK after each text."""
        joined = _END.join(texts) + _END
        if joined.isascii() and joined.count(_UNUSED) == len(texts):
            return self._table.numbers(joined.encode().translate(_MARKED_BYTES))
        return np.array(self.words.numbers([word for text in texts for word in (*split(text), MARK)]), np.uint32)

    def postings(self) -> tuple[Postings, Array]:
        """The lists of everything added, and the length of each row in tokens, int64."""
        words = self.words
        numbers = np.concatenate(self._numbers) if self._numbers else np.zeros(0, np.uint32)
        places = np.cumsum(numbers == 0)  # the word at `at` is of the places[at]-th text, MARK of the one after it
        count = len(self.rows)
        lengths = np.bincount(places, np.frombuffer(words.lengths, np.uint32)[numbers], count + 1)[:count]
        encoded = [token.encode() for token in words.vocabulary]
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        rank = np.empty(len(encoded), np.int64)
        rank[order] = np.arange(len(encoded))
        tokens = rank[np.frombuffer(words.tokens, np.uint32)] if words.tokens else np.zeros(0, np.int64)
        keys = self._keys(numbers, places, tokens)
        keys.sort()
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
        frequencies = np.diff(np.append(first, len(keys)))
        keys = keys[first]
        starts = np.searchsorted(keys, np.arange(len(encoded) + 1) * max(1, count))
        rows = np.array(self.rows, np.int64)[keys % max(1, count)] if len(keys) else keys
        return Postings([encoded[at] for at in order], starts, rows, frequencies), lengths.astype(np.int64)

    def _keys(self, numbers: Array, places: Array, tokens: Array) -> Array:
        """token * texts + text of every occurrence of a token."""
        starts = np.frombuffer(self.words.starts, np.uint64).astype(np.int64)
        sizes = np.diff(starts)
        first = np.append(tokens, 0)[starts[:-1]] * len(self.rows)  # nearly every word gives one token
        held = sizes[numbers] > 0
        parts = [first[numbers[held]] + places[held]]
        several = np.flatnonzero(sizes[numbers] > 1)
        if len(several):
            more = sizes[numbers[several]] - 1
            inside = np.arange(int(more.sum())) - np.repeat(np.cumsum(more) - more, more)
            at = np.repeat(starts[numbers[several]] + 1, more) + inside
            parts.append(tokens[at] * len(self.rows) + np.repeat(places[several], more))
        return np.concatenate(parts)


def build_segments(
    file: IndexFile, tokens: Tokenizer, texts: Texts, rows: Neighbours, neighbour: float, lengths: Array, wanted: Array,
    low: int = 0,
) -> None:  # fmt: skip
    """Write segments of the wanted rows from `low` on; puts their lengths in tokens into `lengths`, int64[N]."""
    collector = Collector(tokens)
    for start in range(low, rows.count, READ):
        stop = min(start + READ, rows.count)
        chosen = np.flatnonzero(wanted[start:stop]).tolist()
        found = texts.texts(start, stop)
        collector.add([start + at for at in chosen], [found[at] for at in chosen])
        if collector.full or stop == rows.count:
            postings, lengths[collector.rows] = collector.postings()
            write_segment(file, postings, HeadRange(low, stop, rows, lengths, neighbour))
            collector, low = Collector(tokens), stop


def write_scattered(file: IndexFile, tokens: Tokenizer, texts: Texts, chosen: Array, lengths: Array) -> None:
    """Write one segment of some rows, ascending, wherever they are."""
    collector = Collector(tokens)
    for row in chosen.tolist():
        collector.add([row], texts.texts(row, row + 1))
    postings, lengths[chosen] = collector.postings()
    write_segment(file, postings, None)
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
