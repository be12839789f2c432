"""The best of many scores, in plain Python. Loaded by one-shot search.

A list of scores is looked at through the maxima of its blocks, so that most of it is passed over at the speed of `max`.
"""

from __future__ import annotations

from clawmem_core.search.ranking import POOL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PART = 64  # scores of which the best is looked at before each


def best_of(scored: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """The best POOL of (score, row), best first, ties by row."""
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:POOL]


def near_best(scores: Sequence[float], error: float) -> list[int]:
    """Places of all scores that may be among the best POOL, each being off by at most `error`."""
    if len(scores) <= POOL:
        return list(range(len(scores)))
    bar = sorted(scores, reverse=True)[POOL - 1] - 2 * error
    return [at for at, score in enumerate(scores) if score >= bar]


def block_size(count: int) -> int:
    """Scores of a block whose maximum is looked at first."""
    return 16 if count < 1 << 14 else 32 if count < 1 << 16 else 128


def best_places(scores: list[int], wanted: int) -> tuple[list[int], int]:
    """Places, ascending, of the `wanted` highest scores (ties: lower places), and the lowest score among them."""
    if len(scores) <= wanted:
        return list(range(len(scores))), min(scores, default=0)
    size = block_size(len(scores))
    peaks = [max(scores[at : at + size]) for at in range(0, len(scores), size)]
    bar = sorted(peaks, reverse=True)[wanted - 1] if len(peaks) >= wanted else min(scores)
    found = _above(scores, bar, peaks, size)
    found.sort(key=lambda at: (-scores[at], at))
    del found[wanted:]
    least = scores[found[-1]]
    found.sort()
    return found, least


def above(scores: list[int], bar: int) -> list[int]:
    """Places, ascending, of the scores of at least `bar`."""
    size = block_size(len(scores))
    return _above(scores, bar, [max(scores[at : at + size]) for at in range(0, len(scores), size)], size)


def _above(scores: list[int], bar: int, peaks: list[int], size: int) -> list[int]:
    found = []
    for block, peak in enumerate(peaks):
        if peak >= bar:
            start = block * size
            found += [at for at, score in enumerate(scores[start : start + size], start) if score >= bar]
    return found


def bar_of(scores: list[float], wanted: int) -> float:
    """The `wanted`-th highest score, or one that is not above it; -inf where there are fewer."""
    if len(scores) < wanted:
        return float("-inf")
    size = max(1, min(128, len(scores) // (4 * wanted)))
    peaks = [max(scores[at : at + size]) for at in range(0, len(scores), size)] if size > 1 else scores
    return sorted(peaks, reverse=True)[wanted - 1]


class Running:
    """Rows whose whole-number score is at most `slack` below the `wanted`-th best, gathered block by block."""

    __slots__ = ("_found", "_limit", "_prune", "slack", "wanted")

    def __init__(self, wanted: int, slack: int) -> None:
        self.wanted, self.slack = wanted, slack
        self._found: list[tuple[int, int]] = []  # (-score, row)
        self._limit: int | None = None
        self._prune = 2 * wanted

    def add(self, scores: list[int], start: int) -> None:
        """Scores of the rows from `start` on."""
        if self._limit is None and len(scores) >= self.wanted:
            self._limit = sorted(scores, reverse=True)[self.wanted - 1] - self.slack
        limit = self._limit
        if limit is None:
            self._found += [(-score, row) for row, score in enumerate(scores, start)]
            self._cut()
            return
        for low in range(0, len(scores), PART):
            part = scores[low : low + PART]
            if max(part) >= limit:
                self._found += [(-score, row) for row, score in enumerate(part, start + low) if score >= limit]
        if len(self._found) > self._prune:
            self._cut()

    def add_some(self, scores: list[int], rows: list[int]) -> None:
        """Scores of these rows."""
        limit = self._limit
        if limit is None or (scores and max(scores) >= limit):
            kept = [(-score, row) for score, row in zip(scores, rows, strict=True) if limit is None or score >= limit]
            self._found += kept
            if limit is None or len(self._found) > self._prune:
                self._cut()

    def _cut(self) -> None:
        if len(self._found) < self.wanted:
            return
        self._found.sort()
        self._limit = limit = -self._found[self.wanted - 1][0] - self.slack
        self._found = [pair for pair in self._found if -pair[0] >= limit]
        self._prune = max(2 * self.wanted, 2 * len(self._found))

    def rows(self, most: int) -> list[int]:
        """The rows, ascending; the best `most` of them where there are more."""
        self._cut()
        self._found.sort()
        return sorted(row for _, row in self._found[:most])
