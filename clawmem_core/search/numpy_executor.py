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
from clawmem_core.search.index_format import (
    CHUNK_ROWS,
    HAS_NO_VECTOR,
    IS_DELETED,
    UnusableIndex,
    fingerprint_row,
)
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.query import Query, Term
from clawmem_core.storage import fs

Array = npt.NDArray[Any]
Scored = list[tuple[float, int]]

CACHE_BYTES = 64 << 20
BLOCK_ROWS = 2048  # int8 rows widened at a time
SCANNED_MOST = 4096
RESIDENT_ROWS = 4096  # stores up to here keep their unit vectors in memory, as float32
FEW = 16  # records that plain Python fuses faster
ROUNDING = 1e-11
SINGLE_ERROR = 1e-5  # of a cosine from single precision products
UNSAFE = 1e15  # lengths beyond it, or below its inverse, are not for single precision

#: every float16 as float64, by its bits: a look-up is several times faster than a conversion
_WIDE = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)


class NumpyExecutor:
    """Executor over the rows of one index."""

    name = "numpy"

    def __init__(self, base: IndexReader) -> None:
        self.base = base
        self._bits = np.dtype("<u2" if base.float16 else "<f4")
        self._shares: dict[tuple[str, float, float], tuple[Array | None, Array]] = {}
        self._cached = 0
        self._norms: tuple[tuple[float, float], Array] | None = None
        self._checked = False
        self._map: Any = None
        self._resident: Array | None = None
        self._without: Array | None = None
        flags = base.sections.column("flags")
        if flags is not None:
            self._without = (np.frombuffer(flags, np.uint8) & (HAS_NO_VECTOR | IS_DELETED)) != 0
        offsets = base.sections.column("chunks")
        self._offsets = None if offsets is None or base.h5_fd < 0 else np.asarray(offsets).astype(np.int64)

    def _stored(self, rows: Array) -> Array:
        """The stored vectors of some rows, as bits of float16 or as float32."""
        base, size = self.base, self.base.vector_bytes
        if self._offsets is None:
            data = base.stored_vectors(rows.tolist())
        else:
            if self._map is None:
                self._map = fs.map_file(base.h5_fd, base.header.h5_size)
            mapped = self._map
            starts = self._offsets[rows // CHUNK_ROWS] + rows % CHUNK_ROWS * size
            data = b"".join([mapped[start : start + size] for start in starts.tolist()])
            if len(data) != len(rows) * size:
                raise UnusableIndex("the HDF5 file is shorter than the index says")
        return np.frombuffer(data, self._bits).reshape(len(rows), base.dim)

    # ------------------------------------------------------------ vectors

    def vector(self, values: Sequence[float]) -> Array:
        """A query vector made ready: float64."""
        return np.array(values, np.float64)

    def cosine(self, vector: Array, stored: bytes) -> float:
        """Exact cosine with a stored vector, rounded."""
        return float(self._exact(vector, np.frombuffer(stored, self._bits)[None, :])[0])

    def cosines(self, vector: Array, rows: Sequence[int]) -> list[float | None]:
        """Exact cosines of some index rows; None without vector."""
        if not len(rows):
            return []
        places = np.asarray(rows)
        if self._without is None:
            exact: list[float | None] = self._exact(vector, self._stored(places)).tolist()
            return exact
        norms = self._column("norm", np.float32)[places]
        found = np.zeros(len(places))
        having = norms > 0
        found[having] = self._exact(vector, self._stored(places[having]))
        return [value if has else None for value, has in zip(found.tolist(), having.tolist(), strict=True)]

    def beside(self, vector: Array, stored: Sequence[bytes]) -> Scored:
        """(exact cosine, place) of vectors beside the index."""
        if not stored:
            return []
        rows = np.frombuffer(b"".join(stored), self._bits).reshape(len(stored), -1)
        return list(zip(self._exact(vector, rows).tolist(), range(len(stored)), strict=True))

    def _exact(self, vector: Array, rows: Array) -> Array:
        """Exact cosines with stored rows, given as bits of float16 or as float32."""
        wide = _WIDE[rows] if self.base.float16 else rows.astype(np.float64)
        norms = np.sqrt(vector @ vector) * np.sqrt(np.einsum("ij,ij->i", wide, wide))
        found: Array = np.round(wide @ vector / norms, ranking.SCORE_DIGITS)
        return found

    def _column(self, name: str, dtype: Any) -> Array:
        column = self.base.sections.column(name)
        if column is None:
            raise UnusableIndex(f"section {name} is missing")
        return np.frombuffer(column, dtype)

    def vector_pool(self, vector: Array, selection: Selection) -> tuple[Scored, str]:
        """The best POOL (cosine, row) of the selected rows that have a vector, best first; and the plan."""
        if not self.base.vectors:
            return [], planner.GATHER
        passing = self.passing(selection)
        count = self.base.count if passing is None else int(np.count_nonzero(passing))
        if count <= planner.GATHER_ARRAYS:
            rows = np.arange(count) if passing is None else np.flatnonzero(passing)
            return self.best(vector, rows, self._near(vector, rows)), planner.GATHER
        rows = self._candidates(vector, passing)
        return self.best(vector, rows, self._near(vector, rows)), planner.vector_plan(count, passing is not None, 0)

    def passing(self, selection: Selection) -> Array | None:
        """Rows that pass and have a vector; None for all."""
        mask = None if selection.mask is None else np.frombuffer(selection.mask, np.bool_)
        if self._without is None:
            return mask
        return ~self._without if mask is None else mask & ~self._without

    def best(self, vector: Array, rows: Array, near: Array | None = None) -> Scored:
        """The best POOL of some rows by exact cosine. `near`: their cosines to SINGLE_ERROR, if known."""
        if near is not None and len(rows) > ranking.POOL:
            error = SINGLE_ERROR * max(1.0, (self.base.dim / 384) ** 0.5)
            rows = rows[near >= bar_of(near, ranking.POOL) - 2 * error]
        return best_of(self._exact(vector, self._stored(rows)), rows)

    def _near(self, vector: Array, rows: Array) -> Array | None:
        """Cosines of some rows in single precision; None where that is not worth it or not safe."""
        if len(rows) <= 2 * ranking.POOL:
            return None
        unit = (vector / np.sqrt(vector @ vector)).astype(np.float32)
        if self.base.count <= RESIDENT_ROWS:
            if self._resident is None:
                self._resident = self.units(np.arange(self.base.count))
            whole = self._resident
            return None if whole is None else (whole @ unit if len(rows) == len(whole) else whole[rows] @ unit)
        units = self.units(rows)
        return None if units is None else units @ unit

    def units(self, rows: Array) -> Array | None:
        """Rows as unit vectors, float32; zeros where there is none."""
        norms = self._column("norm", np.float32)[rows]
        safe = norms[norms > 0]
        if len(safe) and not (safe.min() > 1 / UNSAFE and safe.max() < UNSAFE):
            return None
        stored = self._stored(rows)
        wide = stored.view(np.float16).astype(np.float32) if self.base.float16 else stored
        units: Array = wide / np.where(norms > 0, norms, 1)[:, None]
        return units

    def _candidates(self, vector: Array, passing: Array | None) -> Array:
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

    def keyword_pool(self, query: Query, selection: Selection) -> tuple[Scored, str, Callable[[int], float]]:
        """The best POOL (bm25, row) above 0 of the selected rows, best first; the plan; and any row's score.

        No selected row, and no row asked for, may have other neighbours than in the index.
        """
        whole = self.scores(query)
        scores = whole if selection.mask is None else whole * np.frombuffer(selection.mask, np.uint8)
        rows = np.flatnonzero(scores > max(0.0, bar_of(scores, ranking.POOL) - ROUNDING))
        found = np.round(scores[rows], ranking.SCORE_DIGITS)
        plan = planner.SCAN if selection.mask is None else planner.SCAN_MASKED
        return best_of(found, rows), plan, lambda row: ranking.rounded_score(float(whole[row]))

    def scores(self, query: Query) -> Array:
        """bm25 of every index row, not rounded; of deleted rows anything."""
        total = np.zeros(self.base.count)
        for term in query.terms:
            rows, share = self._share(query, term)
            if rows is None:
                total += term.weight * share
            else:
                total[rows] += term.weight * share
        return total

    @staticmethod
    def fuse(
        candidates: Sequence[ranking.Candidate], weights: ranking.Weights, *, vector: bool, keyword: bool
    ) -> list[tuple[int, float]]:
        """`ranking.fuse` over arrays."""
        vector_weight, keyword_weight = weights.vector * vector, weights.keyword * keyword
        total = vector_weight + keyword_weight
        if weights.fusion == "rrf" or not total or len(candidates) < FEW:
            return ranking.fuse(candidates, weights, vector=vector, keyword=keyword)
        ids, cosines, bm25, boosts, sessions = zip(*candidates, strict=True)
        scores = np.zeros(len(ids))
        if vector:
            scores += vector_weight * _unit(np.array(cosines, np.float64))
        if keyword:
            scores += keyword_weight * _unit(np.array(bm25, np.float64))
        scores = scores / total * np.array(boosts)
        prior = weights.prior
        if prior:
            plain = scores.tolist()
            best: dict[Any, float] = {}
            for session, score in zip(sessions, plain, strict=True):
                if score > best.get(session, -1.0):
                    best[session] = score
            tops = np.array([
                score if session is None else best[session] for session, score in zip(sessions, plain, strict=True)
            ])  # fmt: skip
            scores = np.where(
                np.array([session is None for session in sessions]), scores, (scores + prior * tops) / (1.0 + prior)
            )
        scores = np.round(scores, ranking.FINAL_DIGITS)
        numbers = np.array(ids, np.int64)
        order = np.lexsort((numbers, -scores))
        return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))

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


def _unit(values: Array) -> Array:
    """Values from 0 (least) to 1 (greatest), 0 for NaN; 1 where all are equal."""
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    missing = np.isnan(values)
    if not low < high:
        return np.where(missing, 0.0, 1.0)
    found: Array = (values - low) / (high - low)
    if missing.any():
        found[missing] = 0.0
    return found


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
