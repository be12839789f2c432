"""The best of many scores, in plain Python. Loaded by one-shot search.

A list of scores is looked at through the maxima of its blocks, so that most of it is passed over at the speed of `max`.
"""

from __future__ import annotations

from clawmem_core.search.ranking import POOL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def best_of(scored: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """The best POOL of (score, row), best first, ties by row."""
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))[: POOL]


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
