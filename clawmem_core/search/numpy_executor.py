"""Candidates and exact scores with numpy: for one-shots without simsimd, long-lived use, and pages beyond the union.

A long-lived process gains by the shares of query words, which are kept, bounded by CACHE_BYTES.

Invariants: the pools are those of ranking.py given the int8 candidates; scores are float64, in the order given there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.search import fusion, planner, ranking
from clawmem_core.search.filters import Selection
from clawmem_core.search.index_format import HAS_NO_VECTOR, IS_DELETED, UnusableIndex, fingerprint_row
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.query import Query, Term
from clawmem_core.search.stored_vectors import SINGLE_ERROR, StoredVectors

Array = npt.NDArray[Any]
Scored = list[tuple[float, int]]

CACHE_BYTES = 64 << 20
BLOCK_ROWS = 2048  # int8 rows widened at a time
SCANNED_MOST = 4096
BLOCKED = 4096  # scores from which on blocks of them are compared first
ROUNDING = 1e-11


class NumpyExecutor:
    """Executor over the rows of one index."""

    name = "numpy"
    fuse = staticmethod(fusion.fuse)

    def __init__(self, base: IndexReader) -> None:
        self.base = base
        self.vectors = StoredVectors(base)
        self._shares: dict[tuple[str, float, float], tuple[Array | None, Array]] = {}
        self._cached = 0
        self._totals: tuple[Array, Array] | None = None  # for `scores`: fresh memory would cost more than the sums
        self._norms: tuple[tuple[float, float], Array] | None = None
        self._checked = False
        self._without: Array | None = None
        flags = base.sections.column("flags")
        if flags is not None:
            self._without = (np.frombuffer(flags, np.uint8) & (HAS_NO_VECTOR | IS_DELETED)) != 0

    # ------------------------------------------------------------ vectors

    def vector(self, values: Sequence[float]) -> Array:
        """A query vector made ready: float64."""
        return np.asarray(values, np.float64)

    def compare(self, vector: Array, stored: bytes) -> list[float]:
        """Exact cosines with stored vectors, one after the other, rounded."""
        found: list[float] = self.vectors.compare_bytes(vector, stored).tolist()
        return found

    def cosines(self, vector: Array, rows: Sequence[int]) -> list[float | None]:
        """Exact cosines of some index rows; None without vector."""
        if not len(rows):
            return []
        exact = self.exact(vector, np.asarray(rows))
        if self._without is None:
            found: list[float | None] = exact.tolist()
            return found
        return [None if value != value else value for value in exact.tolist()]

    def exact(self, vector: Array, rows: Array) -> Array:
        """Exact cosines of some index rows, rounded; NaN without vector."""
        if self._without is None:
            return self.vectors.exact(vector, rows)
        having = ~self._without[rows]
        if having.all():
            return self.vectors.exact(vector, rows)
        found = np.full(len(rows), np.nan)
        found[having] = self.vectors.exact(vector, rows[having])
        return found

    def beside(self, vector: Array, stored: Sequence[bytes], _: float) -> Scored:
        """(exact cosine, place) of vectors beside the index."""
        return list(zip(self.compare(vector, b"".join(stored)), range(len(stored)), strict=True)) if stored else []

    def _column(self, name: str, dtype: Any) -> Array:
        column = self.base.sections.column(name)
        if column is None:
            raise UnusableIndex(f"section {name} is missing")
        return np.frombuffer(column, dtype)

    def vector_pool(self, vector: Array, selection: Selection) -> tuple[Scored, str]:
        """The best POOL (cosine, row) of the selected rows that have a vector, best first; and the plan."""
        rows, plan = self.candidates(vector, selection)
        return best_of(self.vectors.exact(vector, rows), rows), plan

    def candidates(self, vector: Array, selection: Selection) -> tuple[Array, str]:
        """Selected rows with a vector, ascending, that may be among the best POOL; and the plan."""
        if not self.base.vectors:
            return np.zeros(0, np.int64), planner.GATHER
        passing = self.passing(selection)
        count = self.base.count if passing is None else int(np.count_nonzero(passing))
        if count <= planner.GATHER_ARRAYS:
            rows = np.arange(count) if passing is None else np.flatnonzero(passing)
            plan = planner.GATHER
        else:
            rows, plan = self._by_small(vector, passing), planner.vector_plan(count, passing is not None, 0)
        if len(rows) > 2 * ranking.POOL:
            near = self.vectors.near(vector, rows)
            if near is not None:
                rows = rows[near >= bar_of(near, ranking.POOL) - 2 * self.vectors.near_error]
        return rows, plan

    def passing(self, selection: Selection) -> Array | None:
        """Rows that pass and have a vector; None for all."""
        mask = None if selection.mask is None else np.frombuffer(selection.mask, np.bool_)
        if self._without is None:
            return mask
        return ~self._without if mask is None else mask & ~self._without

    def _by_small(self, vector: Array, passing: Array | None) -> Array:
        """Rows, ascending, that may be among the best POOL by their int8 vectors; at most SCANNED_MOST."""
        scores = self._small_scores(vector)
        if passing is not None:
            scores = np.where(passing, scores, -np.inf)
        base = self.base
        spread = 6 * base.error_spread / base.dim**0.5
        slack = 2 * (min(base.error_max, spread) + SINGLE_ERROR) / base.step
        rows = np.flatnonzero(scores >= bar_of(scores, ranking.POOL) - slack)
        rows = rows[scores[rows] > -np.inf]
        if len(rows) > SCANNED_MOST:
            rows = np.sort(rows[np.argsort(-scores[rows], kind="stable")[:SCANNED_MOST]])
        return rows

    def _small_scores(self, vector: Array) -> Array:
        """Products of the unit query with every int8 row."""
        base = self.base
        section = base.sections.section("vec")
        if section is None:
            raise UnusableIndex("section vec is missing")
        prints = self._column("fp", np.int32)
        odd = np.frombuffer(fingerprint_row(base.dim), np.int8).astype(np.float32)
        if not self._checked and base.dim * 127 * 127 >= 1 << 24:  # float32 cannot hold such fingerprints
            base.sections.check(section.offset, section.offset + section.length)
            self._checked = True
        unit = (vector / np.sqrt(vector @ vector)).astype(np.float32)
        queries = unit[:, None] if self._checked else np.stack([unit, odd], axis=1)
        rows = np.frombuffer(base.sections.raw("vec"), np.int8).reshape(base.count, base.dim)
        scores = np.empty(base.count, np.float32)
        for start in range(0, base.count, BLOCK_ROWS):
            products = rows[start : start + BLOCK_ROWS].astype(np.float32) @ queries
            scores[start : start + BLOCK_ROWS] = products[:, 0]
            if not self._checked and not np.array_equal(products[:, 1], prints[start : start + BLOCK_ROWS]):
                raise UnusableIndex("damaged vectors")
        self._checked = True
        return scores

    # ------------------------------------------------------------ words

    def keyword_pool(
        self, query: Query, selection: Selection, changed: Collection[int]
    ) -> tuple[Scored, str, Callable[[int], float]]:
        """The best POOL (bm25, row) above 0 of the selected rows, best first; the plan; and any row's score.

        `changed`: rows with other neighbours than in the index, which are left out; no score of theirs may be asked.
        """
        rows, plan, whole = self.worded(query, selection.without(changed) if changed else selection)
        return best_of(words_of(whole, rows), rows), plan, lambda row: ranking.rounded_score(float(whole[row]))

    def worded(self, query: Query, selection: Selection) -> tuple[Array, str, Array]:
        """Selected rows above 0, ascending, that may be among the best POOL; the plan; scores of all rows."""
        whole = self.scores(query)
        scores = whole if selection.mask is None else whole * np.frombuffer(selection.mask, np.uint8)
        rows = (scores > max(0.0, bar_of(scores, ranking.POOL) - ROUNDING)).nonzero()[0]
        return rows, planner.SCAN if selection.mask is None else planner.SCAN_MASKED, whole

    def scores(self, query: Query) -> Array:
        """bm25 of every index row, not rounded; of deleted rows anything. Valid until the next query is scored."""
        if self._totals is None:
            self._totals = np.empty(self.base.count), np.empty(self.base.count)
        total, product = self._totals
        empty = True
        for term in query.terms:
            rows, share = self._share(query, term)
            if rows is None:
                np.multiply(share, term.weight, out=total if empty else product)
                if not empty:
                    total += product
            else:
                if empty:
                    total.fill(0.0)
                np.add.at(total, rows, term.weight * share)
            empty = False
        if empty:
            total.fill(0.0)
        return total

    def _share(self, query: Query, term: Term) -> tuple[Array | None, Array]:
        """(rows, tf' (k1 + 1) / (tf' + norm)) of a term; rows None for all."""
        key = (term.token, query.neighbour, query.average)
        found = self._shares.get(key)
        if found is None:
            rows, smoothed = self._smoothed(query, term)
            norms = self._norm(query)
            share = smoothed * (ranking.K1 + 1.0) / (smoothed + (norms if rows is None else norms[rows]))
            found = rows, share
            size = share.nbytes + (0 if rows is None else rows.nbytes)
            if self._cached + size > CACHE_BYTES:
                self._shares.clear()
                self._cached = 0
            if size <= CACHE_BYTES:
                self._shares[key] = found
                self._cached += size
        return found

    def _norm(self, query: Query) -> Array:
        """norm(d) of every row."""
        key = (query.neighbour, query.average)
        if self._norms is None or self._norms[0] != key:
            sections = self.base.sections
            sizes, around = (np.asarray(sections.column(name) or np.zeros(self.base.count)) for name in ("dl", "ndl"))
            lengths = sizes + query.neighbour * around
            relative = lengths / query.average if query.average else np.zeros(self.base.count)
            self._norms = key, ranking.K1 * ((1.0 - ranking.B) + ranking.B * relative)
        return self._norms[1]

    def _smoothed(self, query: Query, term: Term) -> tuple[Array | None, Array]:
        """(rows, smoothed frequencies) of a term, ascending; rows None for all."""
        places = [np.asarray(rows).astype(np.int64) for rows, _ in term.lists]
        values = [np.asarray(frequencies, np.float64) for _, frequencies in term.lists]
        for segment, place in term.heads:
            own = np.frombuffer(segment.head_frequencies(place), np.uint8)
            held = np.flatnonzero(own)
            places.append(held + segment.low)
            values.append(own[held].astype(np.float64))
        if not places:
            return np.zeros(0, np.int64), np.zeros(0)
        own_rows, own_values = np.concatenate(places), np.concatenate(values)
        if not query.neighbour:
            order = np.argsort(own_rows)
            return own_rows[order], own_values[order]
        before, after = self._column("prev", np.int32)[own_rows], self._column("next", np.int32)[own_rows]
        rows = np.concatenate([own_rows, before, after])
        shares = np.concatenate([own_values, query.neighbour * own_values, query.neighbour * own_values])
        if len(rows) * 2 > self.base.count:
            here = rows >= 0
            return None, np.bincount(rows[here], shares[here], self.base.count)
        order = np.argsort(rows, kind="stable")
        rows, shares = rows[order], shares[order]
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        rows, shares = rows[first], np.add.reduceat(shares, first)
        return (rows[1:], shares[1:]) if len(rows) and rows[0] < 0 else (rows, shares)


def bar_of(scores: Array, wanted: int) -> float:
    """The `wanted`-th highest score, or one that is not above it; -inf where there are fewer."""
    count = len(scores)
    if count <= wanted:
        return float("-inf")
    if count >= BLOCKED:  # the best of every `size` scores that lie evenly apart
        size = min(128, count // (4 * wanted))
        whole = count // size * size
        scores = np.concatenate([scores[:whole].reshape(size, -1).max(axis=0), scores[whole:]])
    else:
        scores = scores.copy()
    scores.partition(len(scores) - wanted)
    return float(scores[len(scores) - wanted])


def best_of(scores: Array, rows: Array) -> Scored:
    """The best POOL of (score, row), best first, ties by row."""
    order = np.lexsort((rows, -scores))[: ranking.POOL]
    return list(zip(scores[order].tolist(), rows[order].tolist(), strict=True))


def words_of(whole: Array, rows: Array) -> Array:
    """bm25 of some rows, rounded."""
    return fusion.rounded(whole[rows], ranking.SCORE_DIGITS)
