"""Candidates and exact vector scores without numpy: simsimd for products, plain Python for the rest.

What makes it fast: one product of the query with all int8 rows, with the stored vectors of the best only; the commonest
words as tables with bounds, so that most of their records are never scored (MaxScore).

Invariants: the pools are those of ranking.py given the int8 candidates, which hold the true best unless quantisation
moved one past the margin of `_margin`; bounds are never below the score they bound; int8 rows whose fingerprint differs
are never used.
"""

from __future__ import annotations

import struct
from itertools import compress
from math import ceil, sqrt

from clawmem_core.search import index_format as form
from clawmem_core.search import planner, ranking, simd
from clawmem_core.search.filters import Selection
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.keyword_scan import KeywordScan
from clawmem_core.search.topk import Running, best_of, near_best

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from clawmem_core.search.index_reader import IndexReader
    from clawmem_core.search.query import Query

    Scored = list[tuple[float, int]]

SCANNED_MOST = 4096  # int8 candidates compared exactly at most
BLOCK_ROWS = 1024  # int8 rows looked at a time: they and their products stay in the processor's cache
TOGETHER, BESIDE = 16, 128  # vectors compared exactly, or nearly, at a time: the memory they take is used again
SPLIT = 2048.0  # a query value is high + low / SPLIT, both half precision
HALF_ERROR, SINGLE_ERROR = 1e-6, 1e-5  # of a cosine from half or single precision products at 384 dimensions
UNSAFE = 2.0  # no cosine
LEAST_NORM, MOST_NORM = 1e-15, 1e15  # lengths whose products are safe in single precision


class PureExecutor:
    """Executor over the rows of one index."""

    name = "pure"

    def __init__(self, base: IndexReader) -> None:
        self.base = base
        self._dim = base.dim

    # ------------------------------------------------------------ vectors

    def compare(self, vector: Vector, stored: bytes | memoryview) -> list[float]:
        """Exact cosines with stored vectors, one after the other, rounded; 0 with zeros, as only damaged files hold."""
        base, norm, rounded = self.base, vector.norm, ranking.rounded_score
        size, cosines = TOGETHER * base.vector_bytes, list[float]()
        for start in range(0, len(stored), size):
            rows = simd.doubles(stored[start : start + size], base.float16)
            pairs = zip(simd.double_products(vector.wide, rows), simd.double_lengths(rows, self._dim), strict=True)
            cosines += [rounded(product / (norm * sqrt(square))) if square else 0.0 for product, square in pairs]
        return cosines

    def vector(self, values: Sequence[float]) -> Vector:
        """A query vector made ready."""
        return Vector(values, self.base.float16)

    def cosines(self, vector: Vector, rows: Sequence[int]) -> list[float | None]:
        """Exact cosines of some index rows; None without vector."""
        stored = list(map(self.base.vector, rows))
        having = [data for data in stored if data is not None]
        if not having:
            return [None] * len(stored)
        found = iter(self.compare(vector, b"".join(having)))
        return [None if data is None else next(found) for data in stored]

    def vector_pool(self, vector: Vector, selection: Selection) -> tuple[Scored, str]:
        """The best POOL (cosine, row) of the selected rows that have a vector, best first; and the plan."""
        base = self.base
        if not base.vectors:
            return [], planner.GATHER
        mask = selection.mask
        flags = base.sections.column("flags")
        if flags is not None:
            mask = _with_vector(flags, mask)
            selection = Selection(mask, selection.total, selection.tail)
        plan = planner.vector_plan(selection.count, mask is not None, planner.GATHER_VECTORS)
        rows = selection.rows if plan == planner.GATHER else self._scan(vector, mask)
        return self._best(vector, rows), plan

    def _scan(self, vector: Vector, mask: bytes | None) -> list[int]:
        """Rows, ascending, that may be among the best POOL by their int8 products; at most SCANNED_MOST."""
        base, dim = self.base, self._dim
        prints = base.sections.column("fp")
        if prints is None:
            raise UnusableIndex("section fp is missing")
        expected = prints.cast("B")
        queries = vector.small + form.fingerprint_row(dim)
        best = Running(ranking.POOL, ceil(2 * self._margin(vector) / (vector.step * base.step)))
        for start in range(0, base.count, BLOCK_ROWS):
            count = min(BLOCK_ROWS, base.count - start)
            products = simd.int8_products(queries, base.small_vectors(start, start + count), dim)
            if bytes(products[count:]) != bytes(expected[4 * start : 4 * (start + count)]):  # quicker than as views
                raise UnusableIndex("damaged vectors")
            scores = products[:count].tolist()
            if mask is None:
                best.add(scores, start)
            else:
                passing = mask[start : start + count]
                best.add_some(list(compress(scores, passing)), list(compress(range(start, start + count), passing)))
        return best.rows(SCANNED_MOST)

    def _margin(self, vector: Vector) -> float:
        """How far a cosine may lie from its int8 estimate: the worst case, or six standard deviations if less."""
        base = self.base
        worst: float = base.error_max + vector.error * (1 + base.error_max)
        return min(worst, 6 * sqrt((base.error_spread**2 + vector.error**2) / self._dim)) + HALF_ERROR

    def _best(self, vector: Vector, rows: Sequence[int]) -> Scored:
        """The best POOL of some rows by exact cosine: products in half or single precision first, then exact ones."""
        base = self.base
        if not rows:
            return []
        norms = base.sections.column("norm")
        if norms is None:
            raise UnusableIndex("section norm is missing")
        size, stored = base.vector_bytes, memoryview(base.stored_vectors(rows))
        products = vector.products(stored, len(rows))
        approximate = []
        for at, row in enumerate(rows):
            norm = norms[row]
            if LEAST_NORM < norm < MOST_NORM:
                approximate.append(products[at] / norm)
            else:
                approximate.append(self.compare(vector, stored[at * size : at * size + size])[0])
        error = (HALF_ERROR if base.float16 else SINGLE_ERROR) * max(1.0, sqrt(self._dim / 384))
        chosen = near_best(approximate, error)
        near = self.compare(vector, b"".join([stored[at * size : at * size + size] for at in chosen]))
        return best_of(zip(near, [rows[at] for at in chosen], strict=True))

    def beside(self, vector: Vector, stored: Sequence[bytes], least: float) -> Scored:
        """(exact cosine, place) of the vectors beside the index that may be among the best POOL; `least`: of all of
        them, these must reach it.
        """
        places: Sequence[int] = range(len(stored))
        if self.base.float16 and len(stored) > ranking.POOL:
            near: list[float] = []
            for at in range(0, len(stored), BESIDE):
                near += self._near(vector, stored[at : at + BESIDE])
            error = SINGLE_ERROR * max(1.0, sqrt(self._dim / 384))
            if UNSAFE not in near:
                least -= error
                places = [at for at in near_best(near, error) if near[at] >= least]
        if not places:
            return []
        return list(zip(self.compare(vector, b"".join([stored[at] for at in places])), places, strict=True))

    def _near(self, vector: Vector, stored: Sequence[bytes]) -> list[float]:
        """Cosines with half precision vectors from products in single precision; UNSAFE where these say nothing."""
        rows, tiny = b"".join(stored), LEAST_NORM**2
        pairs = zip(vector.products(rows, len(stored)), simd.half_lengths(rows, self._dim), strict=True)
        return [product / sqrt(square) if square > tiny else UNSAFE for product, square in pairs]

    # ------------------------------------------------------------ words

    def keyword_pool(
        self, query: Query, selection: Selection, changed: Collection[int]
    ) -> tuple[Scored, str, Callable[[int], float]]:
        """The best POOL (bm25, row) above 0 of the selected rows, best first; the plan; and any row's score.

        `changed`: rows with other neighbours than in the index, which are left out; no score of theirs may be asked.
        """
        postings = sum(term.held_by() for term in query.terms)
        plan = planner.keyword_plan(selection.count, selection.mask is not None, postings)
        if plan == planner.GATHER:
            left_out = frozenset(changed)
            rows = (row for row in selection.rows if row not in left_out)
            return best_of((score, row) for row in rows if (score := query.score(row)) > 0), plan, query.score
        scan = KeywordScan(query, selection.mask, changed)
        return scan.best(), plan, scan.score

    fuse = staticmethod(ranking.fuse)


class Vector:
    """A query vector in the forms the products need.

    `small`: its unit vector as int8 multiples of `step`, off by `error`.
    """

    __slots__ = ("_float16", "_split", "error", "norm", "small", "step", "values", "wide")

    def __init__(self, values: Sequence[float], float16: bool) -> None:
        dim = len(values)
        self.values = values
        self.wide = memoryview(struct.pack(f"{dim}d", *values)).cast("d")
        self.norm = sqrt(simd.dot(self.wide, self.wide))
        unit = [value / self.norm for value in values]
        self.step = max(map(abs, unit)) / 127
        small = [round(value / self.step) for value in unit]
        self.small = struct.pack(f"{dim}b", *small)
        self.error = sqrt(sum((value - self.step * whole) ** 2 for value, whole in zip(unit, small, strict=True)))
        self._float16 = float16
        if float16:
            high = struct.unpack(f"<{dim}e", struct.pack(f"<{dim}e", *unit))
            low = [(value - near) * SPLIT for value, near in zip(unit, high, strict=True)]
            self._split = struct.pack(f"<{2 * dim}e", *high, *low)
        else:
            self._split = struct.pack(f"<{dim}f", *unit)

    def products(self, stored: bytes | memoryview, count: int) -> list[float]:
        """Products of the unit query with `count` stored vectors, to about 1e-7 of their lengths."""
        found = simd.float_products(self._split, stored, len(self.values), self._float16)
        if self._float16:
            return [high + low / SPLIT for high, low in zip(found[:count], found[count:], strict=True)]
        return found


def _with_vector(flags: memoryview, mask: bytes | None) -> bytes:
    """A mask without rows that are deleted or have no vector."""
    having = bytes(flags).translate(b"\1" + bytes(255))
    if mask is None:
        return having
    both = int.from_bytes(having, "little") & int.from_bytes(mask, "little")
    return both.to_bytes(len(having), "little")
