"""The keyword arm over the postings of an index without numpy. Loaded by one-shot search.

Rare words are spread from their postings to the records that hold them and to these records' neighbours. The commonest
words are tables: a bound of what they add to any record comes from one int8 product, and only records whose bound
reaches the score of the POOL-th best so far are scored (MaxScore, Turtle & Flood 1995).

Invariant: a bound is never below the score it bounds, so the pool is exact.
"""

from __future__ import annotations

import struct
from _bisect import insort_right as insort
from itertools import compress
from math import ceil

from clawmem_core.search import index_format as form
from clawmem_core.search import ranking, simd
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.query import ROUNDING
from clawmem_core.search.topk import above, bar_of, best_of, best_places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clawmem_core.search.index_segment import Segment
    from clawmem_core.search.query import Query, Term

    Scored = list[tuple[float, int]]

FIRST_LOOK = 512  # rows with the highest bounds that are scored before the bar is set


class KeywordScan:
    """One pass over the postings of a query. `mask` as in a Selection; `changed`: rows to leave out."""

    def __init__(self, query: Query, mask: bytes | None, changed: Iterable[int]) -> None:
        self.query, self.mask, self.changed = query, mask, frozenset(changed)
        self.norm = query.norms()
        bounded = query.neighbour == query.base.neighbour_weight
        self.heads = [term for term in query.terms if term.heads] if bounded else []
        self.spread = [self._spread(term, with_heads=not bounded) for term in query.terms]
        self.most = sum(term.weight for term in self.heads) * form.IMPACT_MAX  # no row gets more from its head terms
        self._best: Scored = []  # (score, -row), ascending
        self._bounds: list[Bounds] | None = None

    def best(self) -> Scored:
        """The best POOL (bm25, row), best first."""
        several, single = self._by_terms()
        self._take(self._with_bounds(self._shares(several)))
        for term, rows in single:
            if len(self._best) == ranking.POOL:
                rows = {row for _, row in self._with_bounds(self._single_shares(term, rows))}
            self._take(self._with_bounds(self._shares(rows)))
        if self.heads and self.most >= self._bar:
            seen = several.union(self.changed, *(spread.keys() for spread in self.spread))
            for bounds in self._head_bounds():
                self._take(bounds.highest(self.mask, seen))
                self._take(bounds.reaching(self._bar, self.mask, seen))
        return best_of((score, -row) for score, row in self._best)

    @property
    def _bar(self) -> float:
        """What a row must reach to be among the best."""
        return self._best[0][0] - ROUNDING if len(self._best) >= ranking.POOL else 0.0

    def _take(self, bounded: Scored) -> None:
        """Score rows in descending order of their bounds, as long as these reach the bar."""
        bounded.sort(reverse=True)
        best, bar = self._best, self._bar
        for bound, row in bounded:
            if bound < bar:
                break
            score = self.score(row)
            if score > 0:
                pair = score, -row
                if len(best) < ranking.POOL:
                    insort(best, pair)
                elif pair > best[0]:
                    del best[0]
                    insort(best, pair)
                bar = self._bar

    # ------------------------------------------------------------ rows of spread terms

    def _by_terms(self) -> tuple[set[int], list[tuple[int, set[int]]]]:
        """The passing rows that several spread terms reach, and those that one reaches, fewest first, by its number."""
        seen: set[int] = set()
        several: set[int] = set()
        for spread in self.spread:
            several |= seen & spread.keys()
            seen |= spread.keys()
        single = [(at, self._passing(spread.keys() - several)) for at, spread in enumerate(self.spread) if spread]
        single.sort(key=lambda pair: len(pair[1]))
        return self._passing(several), single

    def _passing(self, rows: set[int]) -> set[int]:
        mask, rows = self.mask, rows - self.changed
        return rows if mask is None else {row for row in rows if mask[row]}

    def _shares(self, rows: Iterable[int]) -> Scored:
        """(what the spread terms add, row); not less than the true sum where a term has both lists and tables."""
        norm, gain = self.norm, ranking.K1 + 1.0
        pairs = zip(self.query.terms, self.spread, strict=True)
        parts = [(term.weight * gain, spread) for term, spread in pairs if spread]
        found = []
        for row in rows:
            length = norm(row)
            total = 0.0
            for weight, spread in parts:
                frequency = spread.get(row)
                if frequency:
                    total += weight * frequency / (frequency + length)
            found.append((total, row))
        return found

    def _single_shares(self, term: int, rows: Iterable[int]) -> Scored:
        """(bound of what the one spread term adds, row): as if the text were as short as any."""
        spread, weight = self.spread[term], self.query.terms[term].weight * (ranking.K1 + 1.0)
        length = self.query.least_norm()
        share = {frequency: weight * frequency / (frequency + length) for frequency in set(spread.values())}
        return [(share[spread[row]], row) for row in rows]

    def _with_bounds(self, shares: Scored) -> Scored:
        """The rows that may reach the bar with what head terms add at most."""
        if not self.heads:
            bar = self._bar
            return [pair for pair in shares if pair[0] >= bar]
        if len(self._best) < ranking.POOL:  # a first bar, so that most need no bound
            least = bar_of([share for share, _ in shares], ranking.POOL)
            first = [(share + self.most, row) for share, row in shares if share >= least]
            shares = [pair for pair in shares if pair[0] < least]
            self._take(first)
        bar = self._bar
        if self.most < bar:
            shares = [pair for pair in shares if pair[0] + self.most >= bar]
            if not shares:
                return shares
        for bounds in self._head_bounds():
            shares = bounds.added(shares, bar if bounds is self._head_bounds()[-1] else 0.0)
        return shares

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

    def score(self, row: int) -> float:
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

    # ------------------------------------------------------------ head tables

    def _head_bounds(self) -> list[Bounds]:
        """For each segment with head terms of the query: bounds of what these add to its rows."""
        if self._bounds is None:
            segments = {segment.number: segment for term in self.heads for segment, _ in term.heads}
            self._bounds = [Bounds(segment, self.heads, self.query.average) for segment in segments.values()]
        return self._bounds


class Bounds:
    """What the head terms of a query add to the rows of a segment, from above: whole numbers of `unit`."""

    def __init__(self, segment: Segment, terms: Iterable[Term], average: float) -> None:
        self.low, self.high = segment.low, segment.high
        weights = [0.0] * segment.head_count
        for term in terms:
            for holder, place in term.heads:
                if holder is segment:
                    weights[place] = term.weight
        top = max(weights)
        # 126 and not 127: rounded up, a weight must not pass 127, which would wrap to -128
        query = struct.pack(f"{len(weights)}b", *(ceil(weight / top * 126) for weight in weights))
        table = segment.sections.column("himp", segment.number)
        if table is None:
            raise UnusableIndex("section himp is missing")
        drift = max(1.0, average / segment.average) if segment.average else 1.0
        self.unit = top / 126 * (form.IMPACT_MAX / 127) * drift
        self.bounds: list[int] = simd.int8_products(query, table, len(weights)).tolist()

    def added(self, shares: Scored, bar: float) -> Scored:
        """(share + bound, row) of the rows that then reach `bar`; rows of other segments keep their share."""
        low, high, unit, bounds = self.low, self.high, self.unit, self.bounds
        return [
            (bound, row) for share, row in shares
            if (bound := share + unit * bounds[row - low] if low <= row < high else share) >= bar
        ]  # fmt: skip

    def highest(self, mask: bytes | None, seen: set[int]) -> Scored:
        """(bound, row) of FIRST_LOOK passing rows with the highest bounds, without those in `seen`."""
        bounds, rows = self._passing(mask)
        chosen = best_places(bounds, FIRST_LOOK)[0]
        found = [(self.unit * bounds[at], rows[at]) for at in chosen if rows[at] not in seen and bounds[at]]
        seen.update(row for _, row in found)
        return found

    def reaching(self, bar: float, mask: bytes | None, seen: set[int]) -> Scored:
        """(bound, row) of the passing rows whose bound reaches `bar`, without those in `seen`."""
        bounds, rows = self._passing(mask)
        chosen = above(bounds, max(1, ceil(bar / self.unit)))
        return [(self.unit * bounds[at], rows[at]) for at in chosen if rows[at] not in seen]

    def _passing(self, mask: bytes | None) -> tuple[list[int], Sequence[int]]:
        rows = range(self.low, self.high)
        if mask is None:
            return self.bounds, rows
        passing = mask[self.low : self.high]
        return list(compress(self.bounds, passing)), list(compress(rows, passing))
