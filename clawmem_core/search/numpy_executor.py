"""Candidates and exact scores with numpy: for one-shots without simsimd, long-lived use, and pages beyond the union.

A long-lived process gains by the shares of query words, which are kept, bounded by CACHE_BYTES.

Invariants: the pools are those of ranking.py given the int8 candidates; scores are float64, in the order given there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads: its thread pool costs more than it gives here

import numpy as np
import numpy.typing as npt

from clawmem_core.search import planner, ranking
from clawmem_core.search.filters import Selection
from clawmem_core.search.index_format import HAS_NO_VECTOR, IS_DELETED, UnusableIndex
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.query import Query, Term

Array = npt.NDArray[Any]
Scored = list[tuple[float, int]]

CACHE_BYTES = 64 << 20
BLOCK_ROWS = 8192  # int8 rows widened at a time
SCANNED_MOST = 4096
SINGLE_ERROR = 1e-5  # of a cosine from single precision products


class NumpyExecutor:
    """Executor over the rows of one index."""

    name = "numpy"

    def __init__(self, base: IndexReader) -> None:
        self.base = base
        self._dtype = np.dtype("<f2" if base.float16 else "<f4")
        self._shares: dict[tuple[str, float, float], tuple[Array | None, Array]] = {}
        self._cached = 0
        self._norms: tuple[tuple[float, float], Array] | None = None
        self._checked = False
        self._without: Array | None = None
        flags = base.sections.column("flags")
        if flags is not None:
            self._without = (np.frombuffer(flags, np.uint8) & (HAS_NO_VECTOR | IS_DELETED)) != 0

    # ------------------------------------------------------------ vectors

    def vector(self, values: Sequence[float]) -> Array:
        """A query vector made ready: float64."""
        return np.array(values, np.float64)

    def cosine(self, vector: Array, stored: bytes) -> float:
        """Exact cosine with a stored vector, rounded."""
        return float(self._exact(vector, np.frombuffer(stored, self._dtype)[None, :])[0])

    def cosines(self, vector: Array, rows: Sequence[int]) -> list[float | None]:
        """Exact cosines of some index rows; None without vector."""
        if not len(rows):
            return []
        places = np.asarray(rows)
        exact = self._exact(vector, self._stored(places))
        found: list[float | None] = exact.tolist()
        norms = self._column("norm", np.float32)
        for at in np.flatnonzero(norms[places] == 0).tolist():
            found[at] = None
        return found

    def _exact(self, vector: Array, rows: Array) -> Array:
        wide = rows.astype(np.float64)
        norms = np.sqrt(vector @ vector) * np.sqrt(np.einsum("ij,ij->i", wide, wide))
        with np.errstate(invalid="ignore"):
            found: Array = np.round(wide @ vector / norms, ranking.SCORE_DIGITS)
        return found

    def _stored(self, rows: Array) -> Array:
        data = self.base.stored_vectors(rows.tolist())
        return np.frombuffer(data, self._dtype).reshape(len(rows), self.base.dim)

    def _column(self, name: str, dtype: Any) -> Array:
        column = self.base.sections.column(name)
        if column is None:
            raise UnusableIndex(f"section {name} is missing")
        return np.frombuffer(column, dtype)

    def vector_pool(self, vector: Array, selection: Selection) -> tuple[Scored, str]:
        """The best POOL (cosine, row) of the selected rows that have a vector, best first; and the plan."""
        if not self.base.vectors:
            return [], planner.GATHER
        passing = self._passing(selection)
        count = self.base.count if passing is None else int(np.count_nonzero(passing))
        plan = planner.vector_plan(count, passing is not None, planner.GATHER_ARRAYS)
        rows = self.candidates(vector, passing) if plan != planner.GATHER else None
        if rows is None:
            rows = np.arange(count) if passing is None else np.flatnonzero(passing)
        return self.best(vector, rows), plan

    def _passing(self, selection: Selection) -> Array | None:
        """Rows that pass and have a vector; None for all."""
        mask = None if selection.mask is None else np.frombuffer(selection.mask, np.bool_)
        if self._without is None:
            return mask
        return ~self._without if mask is None else mask & ~self._without

    def best(self, vector: Array, rows: Array) -> Scored:
        """The best POOL of some rows, ascending, by exact cosine."""
        stored = self._stored(rows)
        if len(rows) > 4 * ranking.POOL:
            norms = self._column("norm", np.float32)[rows]
            safe = (norms > 1e-15) & (norms < 1e15)
            if safe.all():
                approximate = stored.astype(np.float32) @ (vector / np.sqrt(vector @ vector)).astype(np.float32) / norms
                error = SINGLE_ERROR * max(1.0, (self.base.dim / 384) ** 0.5)
                near = np.flatnonzero(approximate >= bar_of(approximate, ranking.POOL) - 2 * error)
                rows, stored = rows[near], stored[near]
        return best_of(self._exact(vector, stored), rows)

    def candidates(self, vector: Array, passing: Array | None) -> Array:
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
        if not self._checked:
            base.sections.check(section.offset, section.offset + section.length)
            self._checked = True
        unit = (vector / np.sqrt(vector @ vector)).astype(np.float32)
        rows = np.frombuffer(base.sections.raw("vec"), np.int8).reshape(base.count, base.dim)
        scores = np.empty(base.count, np.float32)
        for start in range(0, base.count, BLOCK_ROWS):
            scores[start : start + BLOCK_ROWS] = rows[start : start + BLOCK_ROWS].astype(np.float32) @ unit
        return scores

    # ------------------------------------------------------------ words

    def keyword_pool(self, query: Query, selection: Selection) -> tuple[Scored, str, Callable[[int], float]]:
        """The best POOL (bm25, row) above 0 of the selected rows, best first; the plan; and any row's score.

        No selected row, and no row asked for, may have other neighbours than in the index.
        """
        scores = self.scores(query)
        passing = scores if selection.mask is None else scores * np.frombuffer(selection.mask, np.uint8)
        rows = np.flatnonzero(passing > 0)
        rows = rows[passing[rows] >= bar_of(passing[rows], ranking.POOL)]
        plan = planner.SCAN if selection.mask is None else planner.SCAN_MASKED
        return best_of(passing[rows], rows), plan, lambda row: float(scores[row])

    def scores(self, query: Query) -> Array:
        """bm25 of every index row, rounded; of deleted rows 0."""
        total = np.zeros(self.base.count)
        for term in query.terms:
            rows, share = self._share(query, term)
            if rows is None:
                total += term.weight * share
            else:
                total[rows] += term.weight * share
        return np.round(total, ranking.SCORE_DIGITS)

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
    size = min(128, count // (4 * wanted))
    if size > 1:
        whole = count // size * size
        scores = np.append(scores[:whole].reshape(-1, size).max(axis=1), scores[whole:])
    return float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])


def best_of(scores: Array, rows: Array) -> Scored:
    """The best POOL of (score, row), best first, ties by row."""
    order = np.lexsort((rows, -scores))[: ranking.POOL]
    return list(zip(scores[order].tolist(), rows[order].tolist(), strict=True))
