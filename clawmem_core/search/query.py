"""The words of one search, weighed over all live records, and exact keyword scores. Loaded by one-shot search.

Invariant: scores are those of ranking.py, computed from own frequencies in index and tail; how candidates were found
plays no part in them.
"""

from __future__ import annotations

from _bisect import bisect_left
from itertools import compress

from clawmem_core.search import ranking
from clawmem_core.search.tail import NONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from clawmem_core.search.index_reader import IndexReader
    from clawmem_core.search.index_segment import Segment
    from clawmem_core.search.tail import Tail

    Places = tuple[list[tuple[memoryview, Sequence[int]]], list[tuple[Segment, int]], int]

KEPT_TERMS = 4096  # tokens whose places are kept for the next query
FEW = 512  # rows that are rather put into a dictionary than searched for one by one
ROUNDING = 1e-9  # slack of bounds against rounding


class Term:
    """One distinct token of a query. `weight`: its count in the query times its idf.

    `lists`: (rows, frequencies) of the segments that hold it; `heads`: (segment, place in its head tables); `later`:
    frequencies of the tail records and a 0 for NONE.
    """

    __slots__ = ("_few", "_held_by", "count", "heads", "later", "lists", "token", "weight")

    def __init__(self, base: IndexReader, token: str, count: int) -> None:
        self.token, self.count = token, count
        self.weight, self.later = 0.0, [0]
        places: dict[str, Places] = base.memo.setdefault("places", {})
        found = places.get(token)
        if found is None:
            if len(places) >= KEPT_TERMS:
                places.clear()
            found = places[token] = places_of(base, token)
        self.lists, self.heads, self._held_by = found
        self._few: dict[int, int] | None = None

    def held_by(self) -> int:
        """Index rows that hold the token."""
        return self._held_by

    def own(self, row: int) -> int:
        """How often an index row's own text holds the token; 0 for NONE."""
        for segment, place in self.heads:
            if segment.low <= row < segment.high:
                frequency: int = segment.head_frequencies(place)[row - segment.low]
                if frequency:
                    return frequency
        if self._held_by <= FEW:
            if self._few is None:
                self._few = {row: often for pair in self.lists for row, often in zip(*pair, strict=True)}
            return self._few.get(row, 0)
        if row >= 0:
            for rows, frequencies in self.lists:
                at = bisect_left(rows, row)
                if at < len(rows) and rows[at] == row:
                    return frequencies[at]
        return 0


def places_of(base: IndexReader, token: str) -> Places:
    """(lists, heads, index rows that hold it) of a token."""
    lists: list[tuple[memoryview, Sequence[int]]] = []
    heads: list[tuple[Segment, int]] = []
    word = token.encode()
    for segment in base.segments:
        number = segment.find(word)
        if number >= 0:
            head = segment.head(number)
            if head is None:
                lists.append(segment.postings(number))
            else:
                heads.append((segment, head[0]))
    held_by = sum(len(rows) for rows, _ in lists) + sum(segment.head_df(place) for segment, place in heads)
    return lists, heads, held_by


class Query:
    """The distinct tokens of a query in order of first appearance, over one tail and its index.

    `average`: avgdl; `ideal`: sum of the terms' weights.
    """

    __slots__ = ("_around", "_sizes", "average", "base", "following", "ideal", "neighbour", "previous", "tail", "terms")

    def __init__(self, base: IndexReader, tail: Tail, tokens: Iterable[str], neighbour: float) -> None:
        self.base, self.tail, self.neighbour = base, tail, neighbour
        self.terms = [Term(base, token, count) for token, count in ranking.count_tokens(tokens).items()]
        self.average = ranking.average_length(tail.lengths, tail.neighbour_lengths, tail.count, neighbour)
        self.ideal = 0.0
        for term in self.terms:
            later = tail.scanner.frequencies(term.token) if tail.scanner is not None else []
            term.later = [*later, 0]
            df = term.held_by() + len(later) - later.count(0)
            if tail.hidden:
                df -= sum(1 for row in tail.hidden if term.own(row))
            term.weight = term.count * ranking.idf(df, tail.count)
            self.ideal += term.weight
        column = base.sections.column
        self.previous, self.following = column("prev") or (), column("next") or ()
        self._sizes, self._around = column("dl") or (), column("ndl") or ()

    def norms(self) -> Callable[[int], float]:
        """norm(d) of an index row whose neighbours are the index's."""
        sizes, around, neighbour = self._sizes, self._around, self.neighbour
        fixed = ranking.length_norm(0.0, self.average)
        scale = ranking.K1 * ranking.B / self.average if self.average else 0.0
        return lambda row: fixed + scale * (sizes[row] + neighbour * around[row])

    def least_norm(self) -> float:
        """No index row has a smaller norm(d)."""
        return ranking.length_norm(self.base.shortest, self.average)

    def around(self, place: int) -> tuple[int, int]:
        """The neighbours of a record, whatever the neighbour weight."""
        found = self.tail.around.get(place)
        if found is not None:
            return found
        return self.previous[place], self.following[place]

    def score(self, place: int) -> float:
        """Exact bm25 of any live record, rounded."""
        before, after = self.around(place) if self.neighbour else (NONE, NONE)
        tail, neighbour, first = self.tail, self.neighbour, self.base.count
        length = tail.length(place) + neighbour * (tail.length(before) + tail.length(after))
        norm = ranking.length_norm(length, self.average)
        total = 0.0
        for term in self.terms:
            own, later = term.own, term.later
            here, prior, following = [own(at) if at < first else later[at - first] for at in (place, before, after)]
            smoothed = here + neighbour * (prior + following)
            if smoothed:
                total += ranking.term_score(term.weight, smoothed, norm)
        return ranking.rounded_score(total)

    def beside(self, places: Iterable[int], least: float) -> list[tuple[float, int]]:
        """(`score`, place) of those places whose score is above 0 and may reach `least`.

        Most tail records hold only words that do not reach it together (MaxScore), and have no index neighbour.
        """
        first, lengths, neighbour = self.base.count, self.tail.record_lengths, self.neighbour
        around, gain = self.tail.around, ranking.K1 + 1.0
        terms = [(term.weight, term.later) for term in self.terms]
        near, found = self._may_reach(least), []
        for place in places:
            if place not in near:
                continue
            before, after = around[place] if neighbour else (NONE, NONE)
            if place < first or 0 <= before < first or 0 <= after < first:
                score = self.score(place)
            else:
                at, before, after = place - first, max(before - first, NONE), max(after - first, NONE)
                norm = ranking.length_norm(lengths[at] + neighbour * (lengths[before] + lengths[after]), self.average)
                total = 0.0
                for weight, later in terms:
                    smoothed = later[at] + neighbour * (later[before] + later[after])
                    if smoothed:  # ranking.term_score, in place
                        total += weight * (smoothed * gain / (smoothed + norm))
                score = ranking.rounded_score(total)
            if score > 0:
                found.append((score, place))
        return found

    def _may_reach(self, least: float) -> set[int]:
        """The tail records, and index rows whose neighbours changed, that may reach a score; perhaps other places."""
        first = self.base.count
        changed = self.tail.changed_rows()
        rows = {at for row in changed for at in (row, *self.around(row)) if 0 <= at < first}
        near: set[int] = set()
        most = 0.0
        for term in sorted(self.terms, key=lambda term: term.weight):
            most += term.weight * (ranking.K1 + 1.0)
            if most < least - ROUNDING:
                continue  # a record needs another word too
            held = list(compress(range(first, first + len(term.later)), term.later))
            held += [row for row in rows if term.own(row)]
            near.update(held, *map(self.around, held))
        return near
