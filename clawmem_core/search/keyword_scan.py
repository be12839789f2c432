"""The keyword arm over the postings of an index without numpy. Loaded by one-shot search.

Rare words are spread from their postings to the records that hold them and to these records' neighbours. The commonest
words are tables: a bound of what they add to any record comes from one int8 product, and only records whose bound
reaches the score of the POOL-th best so far are scored (MaxScore, Turtle & Flood 1995).

Invariant: a bound is never below the score it bounds, so the pool is exact.
"""

from __future__ import annotations

import struct
from _heapq import heappush, heapreplace
from itertools import compress
from math import ceil

from clawmem_core.search import index_format as form
from clawmem_core.search import ranking, simd
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.topk import above, bar_of, best_of, best_places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clawmem_core.search.index_segment import Segment
    from clawmem_core.search.query import Query, Term

    Scored = list[tuple[float, int]]

FIRST_LOOK = 512  # rows with the highest bounds that are scored before the bar is set
ROUNDING = 1e-9  # slack of bounds against rounding


class KeywordScan:
    """One pass over the postings of a query. `mask` as in a Selection."""

    def __init__(self, query: Query, mask: bytes | None) -> None:
        self.query, self.mask = query, mask
        self.norm = query.norms()
        bounded = query.neighbour == query.base.neighbour_weight
        self.heads = [term for term in query.terms if term.heads] if bounded else []
        self.spread = [self._spread(term, with_heads=not bounded) for term in query.terms]
        self._best: Scored = []  # a heap of (score, -row)

    def best(self) -> Scored:
        """The best POOL (bm25, row), best first."""
        scored = self._scored()
        if self.heads:
            self._with_heads(scored)
            return best_of((score, -row) for score, row in self._best)
        bar = bar_of(list(scored.values()), ranking.POOL) - ROUNDING
        return best_of((self._exact(row), row) for row, score in scored.items() if score >= bar)

    def _spread(self, term: Term, with_heads: bool) -> dict[int, float]:
        """Smoothed frequency by row, from the lists of a term (`with_heads`: and its head tables).

        Head tables without `with_heads` give only what rows outside their segment get from neighbours inside it.
        """
        weight, before, after = self.query.neighbour, self.query.previous, self.query.following
        found: dict[int, float] = {}
        get = found.get
        lists = list(self._lists(term, with_heads))
        for rows, frequencies in lists:
            found.update(zip(rows, frequencies, strict=True))
        for rows, frequencies in lists if weight else ():
            for row, frequency in zip(rows, frequencies, strict=True):
                share = weight * frequency
                near = before[row]
                if near >= 0:
                    found[near] = get(near, 0.0) + share
                near = after[row]
                if near >= 0:
                    found[near] = get(near, 0.0) + share
        for segment, place in () if with_heads else term.heads:
            low, high, own = segment.low, segment.high, segment.head_frequencies(place)
            for row in segment.crossing():
                share = sum(own[near - low] for near in (before[row], after[row]) if low <= near < high)
                if share:
                    found[row] = get(row, 0.0) + weight * share
        return found

    @staticmethod
    def _lists(term: Term, with_heads: bool) -> Iterable[tuple[Sequence[int], Sequence[int]]]:
        yield from term.lists
        for segment, place in term.heads if with_heads else ():
            held = [pair for pair in enumerate(segment.head_frequencies(place), segment.low) if pair[1]]
            yield [row for row, _ in held], [frequency for _, frequency in held]

    def _scored(self) -> dict[int, float]:
        """What the spread terms add to the passing rows that may be among the best.

        Rows of several terms come first; one that has a single term is left out where that term alone, and all head
        terms at their limit, cannot reach the POOL-th best. Not less than the true sum where a term has both lists and
        tables.
        """
        seen: set[int] = set()
        several: set[int] = set()
        for spread in self.spread:
            several |= seen & spread.keys()
            seen |= spread.keys()
        scores = dict.fromkeys(self._passing(several), 0.0)
        self._add(scores, [(term.weight, spread) for term, spread in self._spread_terms()])
        for term, spread in sorted(self._spread_terms(), key=lambda pair: len(pair[1])):
            single = spread.keys() - several
            if len(single) > ranking.POOL and len(scores) >= ranking.POOL:
                least = self._least_frequency(term.weight, bar_of(list(scores.values()), ranking.POOL) - ROUNDING)
                single = {row for row in single if spread[row] >= least}
            found = dict.fromkeys(self._passing(single), 0.0)
            self._add(found, [(term.weight, spread)])
            scores.update(found)
        return scores

    def _spread_terms(self) -> list[tuple[Term, dict[int, float]]]:
        return [pair for pair in zip(self.query.terms, self.spread, strict=True) if pair[1]]

    def _passing(self, rows: Iterable[int]) -> Iterable[int]:
        mask = self.mask
        return rows if mask is None else [row for row in rows if mask[row]]

    def _add(self, scores: dict[int, float], parts: list[tuple[float, dict[int, float]]]) -> None:
        """Add the shares of some (weight, smoothed frequencies) to the rows of `scores`."""
        norm, gain = self.norm, ranking.K1 + 1.0
        for row in scores:
            length = norm(row)
            total = 0.0
            for weight, spread in parts:
                frequency = spread.get(row)
                if frequency:
                    total += weight * (frequency * gain / (frequency + length))
            scores[row] = total

    def _least_frequency(self, weight: float, bar: float) -> float:
        """The smoothed frequency from which a term alone, with all head terms at their limit, may reach a score."""
        rest = bar - self._most()
        limit = weight * (ranking.K1 + 1.0)
        if rest <= 0:
            return 0.0
        return self.query.least_norm() * rest / (limit - rest) if rest < limit else float("inf")

    def _most(self) -> float:
        """No row gets more from its head terms."""
        return sum(term.weight for term in self.heads) * form.IMPACT_MAX

    def _exact(self, row: int) -> float:
        """Exact bm25 of a row, rounded."""
        query = self.query
        norm = self.norm(row)
        weight = query.neighbour
        before, after = query.previous[row], query.following[row]
        total = 0.0
        for term, spread in zip(query.terms, self.spread, strict=True):
            frequency = spread.get(row, 0.0)
            if self.heads and term.heads:
                for segment, place in term.heads:
                    low, high, own = segment.low, segment.high, segment.head_frequencies(place)
                    if low <= row < high:
                        around = own[before - low] if low <= before < high else 0
                        if low <= after < high:
                            around += own[after - low]
                        frequency += own[row - low] + weight * around
            if frequency:
                total += ranking.term_score(term.weight, frequency, norm)
        return ranking.rounded_score(total)

    # ------------------------------------------------------------ MaxScore

    @property
    def _bar(self) -> float:
        """What a row must reach to be among the best."""
        return self._best[0][0] - ROUNDING if len(self._best) >= ranking.POOL else 0.0

    def _take(self, row: int) -> None:
        score = self._exact(row)
        if score <= 0:
            return
        if len(self._best) < ranking.POOL:
            heappush(self._best, (score, -row))
        elif (score, -row) > self._best[0]:
            heapreplace(self._best, (score, -row))

    def _with_heads(self, partial: dict[int, float]) -> None:
        """Fill `_best` from the rows of `partial` and those that only head tables know."""
        most = self._most()
        first = bar_of(list(partial.values()), ranking.POOL)
        taken = {row for row, score in partial.items() if score >= first}
        for row in taken:
            self._take(row)
        if most < self._bar:
            for row, score in partial.items():
                if row not in taken and score + most >= self._bar:
                    self._take(row)
            return
        covered = [(segment.low, segment.high) for segment in self._head_segments()]
        for row, score in partial.items():
            if row not in taken and score >= self._bar and not any(low <= row < high for low, high in covered):
                self._take(row)
        for bounds, unit, segment in self._bounds():
            low, high = segment.low, segment.high
            scored = [
                (score + unit * bounds[row - low], row)
                for row, score in partial.items() if low <= row < high and row not in taken
            ]  # fmt: skip
            self._take_by_bound(scored, taken)
            taken.update(row for _, row in scored)  # what was left out cannot reach the bar
            rows: Sequence[int] = range(low, high)
            if self.mask is not None:
                passing = self.mask[low:high]
                bounds, rows = list(compress(bounds, passing)), list(compress(rows, passing))
            self._take_by_bound([(unit * bounds[at], rows[at]) for at in best_places(bounds, FIRST_LOOK)[0]], taken)
            bar = max(1, ceil(self._bar / unit))
            self._take_by_bound([(unit * bounds[at], rows[at]) for at in above(bounds, bar)], taken)

    def _take_by_bound(self, scored: list[tuple[float, int]], taken: set[int]) -> None:
        """Rows in descending order of their bounds, as long as these reach the bar."""
        scored.sort(key=lambda pair: -pair[0])
        for bound, row in scored:
            if bound < self._bar:
                break
            if row not in taken:
                taken.add(row)
                self._take(row)

    def _head_segments(self) -> list[Segment]:
        found: dict[int, Segment] = {segment.number: segment for term in self.heads for segment, _ in term.heads}
        return list(found.values())

    def _bounds(self) -> Iterable[tuple[list[int], float, Segment]]:
        """For each segment with head terms of the query: bounds of what these add to its rows, in units."""
        for segment in self._head_segments():
            weights = [0.0] * segment.head_count
            for term in self.heads:
                for holder, place in term.heads:
                    if holder is segment:
                        weights[place] = term.weight
            top = max(weights)
            # 126 and not 127: rounded up, a weight must not pass 127, which would wrap to -128
            query = struct.pack(f"{len(weights)}b", *(ceil(weight / top * 126) for weight in weights))
            table = segment.sections.column("himp", segment.number)
            if table is None:
                raise UnusableIndex("section himp is missing")
            drift = max(1.0, self.query.average / segment.average) if segment.average else 1.0
            unit = top / 126 * (form.IMPACT_MAX / 127) * drift
            products = simd.int8_products(query, table, len(weights))
            yield products.tolist(), unit, segment
