"""Confidence: decided on raw similarity, silent about nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from clawmem_core.search.confidence import ConfidenceConfig, confident


def hits(*similarities: float) -> list[SimpleNamespace]:
    """Hits in page order; their final scores look perfect on purpose."""
    return [SimpleNamespace(similarity=similarity, score=1.0) for similarity in similarities]


def kept(config: ConfidenceConfig | None, *similarities: float) -> list[float]:
    """Similarities that pass."""
    return [hit.similarity for hit in confident(hits(*similarities), config)]


def test_a_hopeless_query_finds_nothing() -> None:
    """However good the final score of the best miss."""
    assert [] == kept(None, 0.2, 0.29, 0.1)
    assert [] == kept(None)


def test_limits_are_inclusive_and_order_stays() -> None:
    """A hit at the limit passes; the best need not be first."""
    config = ConfidenceConfig(min_score=0.25, min_gap=0.5)
    assert [0.5, 0.75, 0.25] == kept(config, 0.5, 0.75, 0.25, 0.2)


def test_the_gap_is_to_the_best() -> None:
    """Far behind the best is out, infinity takes all."""
    assert [1.0, 0.5] == kept(ConfidenceConfig(0.0, 0.5), 1.0, 0.5, 0.49)
    assert [1.0, 0.5, 0.0] == kept(ConfidenceConfig(0.0, float("inf")), 1.0, 0.5, 0.0)


def test_no_silent_cut() -> None:
    """By default as many pass as were asked for; a limit of its own cuts."""
    assert 40 == len(kept(None, *[0.9] * 40))
    assert [0.9, 0.8] == kept(ConfidenceConfig(max_results=2), 0.9, 0.8, 0.7)
    assert [] == kept(ConfidenceConfig(max_results=0), 0.9)


@pytest.mark.parametrize("limits", [{"min_score": -0.1}, {"min_gap": float("nan")}, {"max_results": -1}])
def test_limits_that_mean_nothing(limits: dict[str, float]) -> None:
    """Refused when made."""
    with pytest.raises(ValueError, match="0 or more"):
        ConfidenceConfig(**limits)  # type: ignore[arg-type]
