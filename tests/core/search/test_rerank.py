"""Re-ranking: relevance leads, the other parts only tip."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.search.rerank import (
    AUTHORITY,
    DAY,
    UNKNOWN_AUTHORITY,
    ReRankConfig,
    activation_share,
    authority_of,
    recency_of,
    rerank,
)

NOW = 1_700_000_000.0


def hit(score: float, age: float = 0.0, channel: str = "chat", activation: float = 1.0) -> SimpleNamespace:
    """A hit as re-ranking sees it; `age` in days."""
    return SimpleNamespace(score=score, timestamp=NOW - age * DAY, source_channel=channel, activation=activation)


def test_relevance_leads() -> None:
    """A full match that is old, unknown and inactive beats a fresh, corrected, boosted record of 0.7 relevance."""
    full, other = hit(1.0, age=4000, channel="?", activation=0.0), hit(0.7, channel="correction", activation=4.0)
    assert [full, other] == [found for found, _ in rerank([other, full], NOW)]


@pytest.mark.parametrize(
    ("better", "worse"),
    [(hit(0.5), hit(0.5, age=60)), (hit(0.5, channel="correction"), hit(0.5)), (hit(0.5, activation=2.0), hit(0.5))],
    ids=["recency", "authority", "activation"],
)
def test_each_part_tips_a_tie(better: SimpleNamespace, worse: SimpleNamespace) -> None:
    """Of two equally relevant records the newer, better sourced, more active one comes first."""
    assert better is rerank([worse, better], NOW)[0][0]


def test_recency_halves() -> None:
    """After one half-life 0.5, after two 0.25; the future counts as now."""
    assert [1.0, 0.5, 0.25] == [recency_of(NOW - age * DAY, NOW, 30 * DAY) for age in (0, 30, 60)]
    assert 1.0 == recency_of(NOW + 5, NOW, DAY)
    assert 0.0 == recency_of(-1e300, NOW, DAY)


@pytest.mark.parametrize(
    "channel",
    ["cli", "chat", "conversation", "correction", "user_correction", "system", "openclaw", "hermes", "custom", "api",
     "migrated", "ephemeral", "ephemeral::key", "notes/MEMORY.md", "MEMORY.md::Heading", " Chat "],
)  # fmt: skip
def test_channels_the_toolchain_writes_are_known(channel: str) -> None:
    """None of them falls to the value of unknown ones."""
    assert authority_of(channel) > UNKNOWN_AUTHORITY


def test_authority_order() -> None:
    """Corrections above what was said, that above what programs made, that above the unknown."""
    order = [authority_of(channel) for channel in ("user_correction", "conversation", "system", "somewhere")]
    assert sorted(order, reverse=True) == order and len(set(order)) == 4
    assert max(AUTHORITY.values()) == 1.0


@given(st.floats(0, 1e30), st.floats(0, 1e30))
def test_activation_is_bounded_and_grows(first: float, second: float) -> None:
    """Any boost stays below or at 1 and never reverses the order."""
    low, high = sorted((first, second))
    assert 0 <= activation_share(low) <= activation_share(high) <= 1


def test_scores_stay_in_the_unit_interval_and_hits_untouched() -> None:
    """Fused scores above 1 (activation) and below 0 (beyond the pool) are brought in; equal ones keep their order."""
    hits = [hit(2.0), hit(1.0), hit(1.0), hit(-0.5)]
    found = rerank(hits, NOW)
    assert hits == [found_hit for found_hit, _ in found]
    assert [2.0, 1.0, 1.0, -0.5] == [found_hit.score for found_hit in hits]
    assert all(0 <= parts.score <= 1 for _, parts in found)
    assert [1.0, 0.5, 0.5, 0.0] == [parts.relevance for _, parts in found]
    assert [] == rerank([], NOW)


@pytest.mark.parametrize(
    "settings", [{"relevance": 0.0}, {"recency": -1.0}, {"half_life": 0.0}, {"authority": float("nan")}]
)
def test_settings_that_make_no_ranking(settings: dict[str, float]) -> None:
    """Refused when made."""
    with pytest.raises(ValueError, match="at least 0"):
        ReRankConfig(**settings)
