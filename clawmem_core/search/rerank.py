"""Re-ranking by what a caller cares about besides the match: recency, source authority, activation. Opt-in, pure.

Invariants: relevance leads: with the default weights a full match that is old, of unknown source and inactive still
beats any record of up to 0.7 of its relevance. Every part lies in [0, 1] and so does the new score. Equal scores keep
their order. `AUTHORITY` is the only table that knows channels; every channel the toolchain itself writes is in it (a
test checks).
"""

from __future__ import annotations

from math import pow

from clawmem_core.search.ranking import rounded_final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol, TypeVar

    class RankedHit(Protocol):
        """What re-ranking reads of a hit."""

        score: float
        timestamp: float
        source_channel: str
        activation: float

    Hit = TypeVar("Hit", bound=RankedHit)

DAY = 86_400.0

#: channel -> authority. First hand above second hand: corrections, what people and agents said, what programs produced.
AUTHORITY = {
    "user_correction": 1.0,
    "correction": 1.0,
    "conversation": 0.7,
    "chat": 0.7,
    "cli": 0.7,
    "openclaw": 0.7,
    "hermes": 0.7,
    "custom": 0.7,
    "api": 0.4,
    "migrated": 0.4,
    "ephemeral": 0.4,
    "markdown": 0.4,
    "system": 0.4,
}
UNKNOWN_AUTHORITY = 0.2


class ReRankConfig:
    """Weights of the four parts (each >= 0, relevance > 0) and the age in seconds that halves recency.

    Raises ValueError for values that make no ranking.
    """

    __slots__ = ("activation", "authority", "half_life", "recency", "relevance")

    def __init__(
        self,
        relevance: float = 1.0,
        recency: float = 0.1,
        authority: float = 0.1,
        activation: float = 0.1,
        half_life: float = 30 * DAY,
    ) -> None:
        weights = (relevance, recency, authority, activation)
        if not (relevance > 0 and half_life > 0 and all(0 <= weight < float("inf") for weight in weights)):
            raise ValueError("re-ranking needs weights of at least 0, relevance and half_life above 0")
        self.relevance, self.recency, self.authority, self.activation = weights
        self.half_life = half_life


class ReRanked:
    """A hit's new score in [0, 1] and its four parts."""

    __slots__ = ("activation", "authority", "recency", "relevance", "score")

    def __init__(self, score: float, relevance: float, recency: float, authority: float, activation: float) -> None:
        self.score, self.relevance, self.recency = score, relevance, recency
        self.authority, self.activation = authority, activation


def rerank(hits: Iterable[Hit], now: float, config: ReRankConfig | None = None) -> list[tuple[Hit, ReRanked]]:
    """The hits in their new order, best first, each with its new score; the hits themselves are not changed.

    `now`: seconds since the epoch. Relevance is the hit's score, measured against the best one where that exceeds 1.
    """
    chosen = config or ReRankConfig()
    given: Sequence[Hit] = list(hits)
    best = max((1.0, *(hit.score for hit in given)))
    total = chosen.relevance + chosen.recency + chosen.authority + chosen.activation
    found = []
    for hit in given:
        relevance = max(0.0, hit.score / best)
        recency = recency_of(hit.timestamp, now, chosen.half_life)
        authority = authority_of(hit.source_channel)
        activation = activation_share(hit.activation)
        score = chosen.relevance * relevance + chosen.recency * recency
        score = (score + chosen.authority * authority + chosen.activation * activation) / total
        found.append((hit, ReRanked(rounded_final(score), relevance, recency, authority, activation)))
    found.sort(key=lambda pair: -pair[1].score)
    return found


def recency_of(timestamp: float, now: float, half_life: float) -> float:
    """2 ** (-age / half_life); 1 for times not yet come."""
    age = max(0.0, now - timestamp)
    return pow(0.5, age / half_life)


def authority_of(channel: str) -> float:
    """Authority of a source channel in [0, 1]. Case and outer spaces don't matter.

    `ephemeral::key` counts as ephemeral; a Markdown file's path, with or without `::heading`, as markdown.
    """
    name = channel.strip().casefold().partition("::")[0]
    if name.endswith(".md"):
        name = "markdown"
    return AUTHORITY.get(name, UNKNOWN_AUTHORITY)


def activation_share(activation: float) -> float:
    """An activation weight of 0 and more mapped to [0, 1): 0 -> 0, 1 -> 0.5, 4 -> 0.8."""
    return 1.0 - 1.0 / (1.0 + activation)  # rounding never turns the order around, as it does that of a / (1 + a)
