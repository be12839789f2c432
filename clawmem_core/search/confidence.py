"""Leaving out weak matches, by raw similarity. Opt-in, pure.

Invariant: decided on `similarity` (ranking.py), never on the final score: the best hit of a hopeless query has a high
final score by construction. Order and scores are untouched, and nothing but the stated limits removes a hit.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol, TypeVar

    class SimilarHit(Protocol):
        """What the filter reads of a hit."""

        similarity: float

    Hit = TypeVar("Hit", bound=SimilarHit)


class ConfidenceConfig:
    """Limits. Raises ValueError for limits that are negative or not a number.

    `min_score`: least similarity of a hit; if the best hit is below it there is no result. `min_gap`: how far a hit may
    lie behind the best one (the ancestor's name for the greatest gap allowed; infinity for no limit). `max_results`:
    most hits; None for no limit of its own, so that the page is as long as was asked for.

    The defaults are measured (docs/ranking.md): with all-MiniLM-L6-v2 they keep every question about the conversation
    and reject 99 % of those about something else. An embedder whose cosines are all high needs a higher `min_score`.
    """

    __slots__ = ("max_results", "min_gap", "min_score")

    def __init__(self, min_score: float = 0.3, min_gap: float = 0.5, max_results: int | None = None) -> None:
        if not (min_score >= 0 and min_gap >= 0 and (max_results is None or max_results >= 0)):
            raise ValueError("confidence limits are 0 or more")
        self.min_score, self.min_gap, self.max_results = min_score, min_gap, max_results


def confident(hits: Iterable[Hit], config: ConfidenceConfig | None = None) -> list[Hit]:
    """The hits that are similar enough, in their order. Give it the whole ranked union, cut to a page afterwards.

    `--min-score X` alone is `ConfidenceConfig(min_score=X, min_gap=inf)`.
    """
    chosen = config or ConfidenceConfig()
    given = list(hits)
    best = max((hit.similarity for hit in given), default=0.0)
    kept = [hit for hit in given if hit.similarity >= chosen.min_score and best - hit.similarity <= chosen.min_gap]
    return kept if chosen.max_results is None else kept[: chosen.max_results]
