"""The graph: candidates only, never a shorter page, and no byte of a damaged file in native code."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

hnswlib = pytest.importorskip("hnswlib")

from clawmem_core.search import ann, planner  # noqa: E402
from clawmem_core.search.ann import AnnExecutor  # noqa: E402
from clawmem_core.search.engine import SearchRequest, search  # noqa: E402
from clawmem_core.storage import ops  # noqa: E402
from tests.core.search.index_stores import reader_of, record  # noqa: E402
from tests.core.search.search_cases import Case, PlainView  # noqa: E402


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs in small stores."""
    monkeypatch.setattr(ann, "LEAST_ROWS", 100)
    monkeypatch.setattr(planner, "GATHER_ARRAYS", 20)


@pytest.mark.parametrize("seed", range(3))
def test_pages_are_those_of_the_oracle(seed: int) -> None:
    """On stores so small that the graph finds all of the best, with filters and a log."""
    case = Case(seed, 300, 10 * seed, 8)
    for _ in range(15):
        request = case.request()
        request.executor = "ann"
        case.check(request)


def test_deletes_never_shorten_a_page() -> None:
    """The nearest 150 of 400 hidden by the log: the page is full of the next ones."""
    rng = np.random.default_rng(1)
    records = [record(id, "", [1.0, id / 400, *rng.normal(0, 1e-3, 6)]) for id in range(400)]
    view = PlainView(reader_of(records, 8))
    view.overlay.apply([(ops.DELETE, 0, tuple(range(150)))])
    request = SearchRequest([1.0, 0.0, 0, 0, 0, 0, 0, 0], "", 10)
    request.executor, request.explain = "ann", True
    hits = search(view, request)  # type: ignore[arg-type]
    request.executor = "numpy"
    assert [hit.index for hit in search(view, request)] == [hit.index for hit in hits]  # type: ignore[arg-type]
    assert len(hits) == 10 and min(hit.index for hit in hits) >= 150


def test_a_saved_graph_is_loaded_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    """Same neighbours after loading; after any cut or flip, or for another checkpoint, nothing."""
    case = Case(1, 200, 0, 8)
    base, path = case.view.base, str(tmp_path / "m.h5.ann")
    graph = ann.build(AnnExecutor(base))
    ann.save(path, base, graph)
    loaded = ann.load(path, base)
    query = np.ones((1, 8), np.float32)
    assert graph.knn_query(query, k=20)[0].tolist() == loaded.knn_query(query, k=20)[0].tolist()
    whole = Path(path).read_bytes()
    chance = random.Random(1)
    for turn in range(60):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        Path(path).write_bytes(whole[: chance.randrange(len(whole))] if turn % 2 else damaged)
        assert ann.load(path, base) is None
    Path(path).write_bytes(whole)
    base.checkpoint_id = b"another one here"
    assert ann.load(path, base) is None
    assert ann.load(path + "x", base) is None
