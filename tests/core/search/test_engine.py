"""Whole searches against the brute-force oracle."""

from __future__ import annotations

import contextlib
import math
import random
from pathlib import Path

import pytest

from clawmem_core.model import Record
from clawmem_core.search import index_format, index_postings, numpy_executor, planner
from clawmem_core.search.confidence import ConfidenceConfig
from clawmem_core.search.engine import SearchRequest, search
from clawmem_core.search.index_reader import IndexReader, UnusableIndex
from clawmem_core.search.rerank import ReRankConfig
from clawmem_core.storage import fs, ops
from tests.core.search.index_stores import columns_of, reader_of, record, write_store
from tests.core.search.search_cases import Case, PlainView

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


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("seed", range(4))
def test_pages_with_a_long_log_equal_the_oracle(executor: str, seed: int) -> None:
    """More records beside the index than a pool holds: those left out early could not have reached it."""
    case = Case(seed, (0, 70, 150, 400)[seed], 500, 8)
    for _ in range(10):
        request = case.request()
        request.executor = executor
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
    monkeypatch.setattr(numpy_executor, "BLOCKED", 300)


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


def store_of(count: int) -> tuple[PlainView, list[Record]]:
    """A store where record i is the i-th nearest to the query (1, 0) and all share a word."""
    records = [
        record(id, f"tea number{id}", [math.cos(id / count), math.sin(id / count)], session=f"s{id % 7}")
        for id in range(count)
    ]
    return PlainView(reader_of(records, 2)), records


def page(view: PlainView, request: SearchRequest) -> list[tuple[int, float]]:
    """Ids and scores."""
    return [(hit.index, hit.score) for hit in search(view, request)]  # type: ignore[arg-type]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_deleted_records_never_shorten_a_page(executor: str) -> None:
    """5,000 records, the best 20 of 30 deleted, k = 10: the ten live ones that come next."""
    view, _ = store_of(5000)
    view.overlay.apply([(ops.DELETE, 0, tuple(range(20)))])
    request = SearchRequest((1.0, 0.0), "", 10)
    request.neighbour_weight = request.session_prior_weight = 0.0
    request.executor = executor
    assert list(range(20, 30)) == [id for id, _ in page(view, request)]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_filter_that_matches_three_records_gives_those_three(executor: str) -> None:
    """In exact order, whatever lies nearer to the query."""
    view, _ = store_of(5000)
    for id in (4321, 17, 2500):
        view.overlay.apply([(ops.RECORD, 0, record(id, "tea", [1.0, id / 1e4], tags="wanted, x"))])
    request = SearchRequest((1.0, 0.0), "", 10)
    request.tags, request.executor = ["wanted"], executor
    request.session_prior_weight = 0.0
    assert [17, 2500, 4321] == [id for id, _ in page(view, request)]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("seed", range(3))
def test_k_rows_are_the_beginning_of_more(executor: str, seed: int) -> None:
    """The page of k is a prefix of the page of k + n."""
    case = Case(seed, 250, 20, 4)
    for _ in range(4):
        request = case.request()
        request.executor, request.k = executor, 400
        whole = page(case.view, request)
        for k in (1, 2, 7, 63, 64, 65, 130):
            request.k = k
            assert whole[:k] == page(case.view, request)


def test_no_rows_are_asked_for() -> None:
    """k = 0 is an empty page."""
    view, _ = store_of(3)
    assert [] == page(view, SearchRequest((1.0, 0.0), "tea", 0))


def test_a_checkpoint_changes_no_page() -> None:
    """Records give the same page from the log as from an index, and after reopening."""
    case = Case(5, 150, 60, 4)
    live = sorted(case.records.values(), key=lambda entry: entry.id)
    checkpointed = PlainView(reader_of(live, 4))
    for _ in range(10):
        request = case.request()
        assert page(case.view, request) == page(checkpointed, request)


def test_a_hopeless_query_finds_nothing_with_confidence() -> None:
    """The best of many misses is no hit; a sole exact match is a full one."""
    view, _ = store_of(200)
    request = SearchRequest((-1.0, -1.0), "unheard", 5)
    request.confidence = ConfidenceConfig()
    assert [] == page(view, request)
    request = SearchRequest(None, "number17", 5)
    request.session_prior_weight = request.neighbour_weight = 0.0
    assert [(17, 1.0)] == page(view, request)


def test_min_score_looks_beyond_the_union() -> None:
    """All records similar enough are found, however many, and no others."""
    view, _ = store_of(300)
    request = SearchRequest((1.0, 0.0), "", 1000)
    request.min_score = 0.95
    expected = [id for id in range(300) if round(math.cos(id / 300), 3) >= 0.95]
    assert len(expected) > 64
    assert expected == sorted(id for id, _ in page(view, request))


def test_rerank_and_explain() -> None:
    """Re-ranking puts the recent record first; explain says how it was found."""
    view, _ = store_of(3)
    view.overlay.apply([(ops.RECORD, 0, record(9, "tea", [1.0, 0.01], timestamp=4e9, source_channel="correction"))])
    request = SearchRequest((1.0, 0.0), "tea", 4)
    request.rerank, request.explain = ReRankConfig(recency=5.0), True
    first = search(view, request)[0]  # type: ignore[arg-type]
    assert first.index == 9 and first.explain is not None
    assert {"plan", "executor", "cosine", "bm25"} <= first.explain.keys()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_damage_never_changes_a_page(executor: str, tmp_path: Path, small_limits: None) -> None:
    """50 cuts, flips and swaps each: refused when opened, or the same page, healed on the way where needed."""
    case = Case(3, 300, 0, 4)
    (tmp_path / "other").mkdir()
    store, index = write_store(tmp_path, columns_of(list(case.records.values()), 4))
    other = columns_of(list(Case(4, 300, 0, 4).records.values()), 4)
    other.store_id = other.checkpoint_id = b"another store's."
    _, swapped = write_store(tmp_path / "other", other)
    whole, foreign = Path(index).read_bytes(), Path(swapped).read_bytes()
    request = SearchRequest((1.0, 0.5, 0.25, 0.125), "tea mail café", 10)
    request.executor, request.all_scopes = executor, True
    expected = page(case.view, request)
    chance = random.Random(executor)
    fd, healed = fs.open_file(store), 0
    for turn in range(150):
        at = chance.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[at] ^= 1 << chance.randrange(8)
        Path(index).write_bytes((whole[:at], flipped, foreign[: len(foreign) - turn // 50])[turn % 3])
        with contextlib.suppress(UnusableIndex), contextlib.closing(IndexReader.open(index, fd)) as reader:
            reader.rebuild = lambda: whole
            try:
                found = page(PlainView(reader), request)
            except UnusableIndex as reason:
                pytest.fail(f"not healed: {reason}")
            assert expected == found
            healed += reader.epoch
    fs.close(fd)
    assert healed > 5
