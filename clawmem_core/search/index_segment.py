"""One posting segment of an index: which rows hold a word, and how often. Loaded by one-shot search."""

from __future__ import annotations

from _bisect import bisect_left

from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import UnusableIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawmem_core.search.index_sections import Sections

ESCAPE = 255


class Segment:
    """`low`, `high`: the rows its head tables cover. `average`: smoothed length its bounds were computed with."""

    __slots__ = ("_frequencies", "_heads", "average", "head_count", "high", "low", "number", "sections", "words")

    def __init__(self, sections: Sections, number: int) -> None:
        self.sections, self.number = sections, number
        meta = sections.column("segment", number)
        if meta is None or len(meta) != form.SEGMENT.size:
            raise UnusableIndex("section segment is missing")
        self.low, self.high, self.words, self.head_count, _, self.average = form.SEGMENT.unpack(meta)
        self._heads: dict[int, tuple[int, int]] | None = None
        self._frequencies: dict[int, memoryview] = {}

    def find(self, word: bytes) -> int:
        """The number of a word, or -1."""
        low, high = 0, self.words
        while low < high:
            middle = (low + high) // 2
            if self.sections.string("words", middle, self.number) < word:
                low = middle + 1
            else:
                high = middle
        return low if low < self.words and self.sections.string("words", low, self.number) == word else -1

    def head(self, term: int) -> tuple[int, int] | None:
        """(place in the head tables, rows that hold it) of a head term, or None."""
        if self._heads is None:
            pairs = self.sections.column("heads", self.number)
            flat = pairs.tolist() if pairs is not None else []
            self._heads = {
                term: (at, count) for at, (term, count) in enumerate(zip(flat[::2], flat[1::2], strict=True))
            }
        return self._heads.get(term)

    def head_df(self, place: int) -> int:
        """Rows that hold the head term at a place."""
        count: int = self.sections.values("heads", 2 * place + 1, 2 * place + 2, self.number)[0]
        return count

    def postings(self, term: int) -> tuple[memoryview, Sequence[int]]:
        """Rows, ascending, and frequencies of a term that is no head term."""
        start, stop = self.sections.values("starts", term, term + 2, self.number)
        rows = self.sections.values("rows", start, stop, self.number)
        frequencies = self.sections.values("tf", start, stop, self.number)
        if self.sections.section("tfx", self.number) is None or ESCAPE not in frequencies:
            return rows, frequencies
        exact = frequencies.tolist()
        large = self.sections.column("tfx", self.number)
        if large is not None:
            places = large[::2].tolist()
            for at in range(bisect_left(places, start), bisect_left(places, stop)):
                exact[places[at] - start] = large[2 * at + 1]
        return rows, exact

    def head_frequencies(self, place: int) -> memoryview:
        """Own frequencies of a head term over rows low..high, one byte a row."""
        found = self._frequencies.get(place)
        if found is None:
            size = self.high - self.low
            found = self.sections.values("htf", place * size, place * size + size, self.number)
            self._frequencies[place] = found
        return found

    def crossing(self) -> Sequence[int]:
        """Rows outside low..high with a neighbour inside."""
        return self.sections.column("cross", self.number) or ()

    def close(self) -> None:
        """Let go of the memory."""
        for view in self._frequencies.values():
            view.release()
