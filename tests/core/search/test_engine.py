"""Whole searches against the brute-force oracle."""

from __future__ import annotations

import pytest

from clawmem_core.search import index_format, index_postings, planner
from tests.core.search.search_cases import Case

EXECUTORS = ["pure", "numpy"]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("dim", [1, 3, 4, 8, 384])
@pytest.mark.parametrize("count", [0, 1, 60, 300])
def test_pages_equal_the_oracle(executor: str, dim: int, count: int) -> None:
    """Checkpointed rows alone: same ids, same scores, for any query and filter."""
    case = Case(dim * 1000 + count, count, 0, dim, float16=dim != 8)
    for _ in range(12):
        request = case.request()
        request.executor = executor
        case.check(request)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("seed", range(12))
def test_pages_with_a_log_equal_the_oracle(executor: str, seed: int) -> None:
    """Inserts, replacements, deletions, undeletions, boosts and purges since the checkpoint are searched exactly."""
    case = Case(seed, (0, 40, 200)[seed % 3], 30, 4)
    for _ in range(8):
        for _ in range(3):
            case.change()
        request = case.request()
        request.executor = executor
        request.long_lived = seed % 2 == 0
        case.check(request)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that large stores use, in small ones: several segments, head tables, scans instead of gathering."""
    monkeypatch.setattr(index_format, "HEAD_FROM", 40)
    monkeypatch.setattr(index_format, "HEAD_TERMS", 5)
    monkeypatch.setattr(index_postings, "READ", 25)
    monkeypatch.setattr(index_postings, "SEGMENT_ROWS", 150)
    monkeypatch.setattr(planner, "GATHER_WORDS", 8)
    monkeypatch.setattr(planner, "GATHER_VECTORS", 8)
    monkeypatch.setattr(planner, "GATHER_ARRAYS", 8)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("count", "dim"), [(60, 3), (149, 8), (500, 8), (900, 4), (2500, 16), (2500, 1)])
def test_large_store_paths_equal_the_oracle(executor: str, count: int, dim: int) -> None:
    """Segments, head tables with bounds, int8 scans, with and without a log."""
    case = Case(count + dim, count, 0, dim)
    for turn in range(14):
        if turn >= 5:
            for _ in range(6):
                case.change()
        request = case.request()
        request.executor = executor
        case.check(request)
