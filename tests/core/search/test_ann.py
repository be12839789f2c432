"""The graph: candidates only, never a shorter page, and no byte of a damaged file in native code."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

hnswlib = pytest.importorskip("hnswlib")

from clawmem_core.search import ann, ann_file, planner  # noqa: E402
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


def test_recall_on_clusters() -> None:
    """Of the ten nearest in tight clusters the graph finds at least 95 of 100 (defect F10)."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(40, 16))
    vectors = np.repeat(centres, 75, axis=0) + rng.normal(0, 0.05, (3000, 16))
    rng.shuffle(vectors)
    records = [record(id, "", vector.tolist()) for id, vector in enumerate(vectors)]
    graph = ann.build(AnnExecutor(reader_of(records, 16)))
    queries = centres + rng.normal(0, 0.05, centres.shape)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = np.argsort(-(queries @ units.T), axis=1)[:, :10]
    graph.set_ef(64)
    found = graph.knn_query(queries.astype(np.float32), k=10)[0]
    hits = sum(len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True))
    assert hits >= 0.95 * exact.size


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


def test_vectors_that_allow_no_graph_are_scanned_for_good() -> None:
    """One vector too short for single precision: every search answers as a scan does, and the index is not blamed."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(300, 8))
    vectors[7] *= 1e-20
    records = [record(id, "", vector.tolist(), float16=False) for id, vector in enumerate(vectors)]
    view = PlainView(reader_of(records, 8, float16=False))
    for _ in range(3):
        request = SearchRequest(rng.normal(size=8).tolist(), "", 10)
        pages = []
        for request.executor in ("ann", "numpy"):
            pages.append([(hit.index, hit.score) for hit in search(view, request)])  # type: ignore[arg-type]
        assert pages[0] == pages[1] and len(pages[0]) == 10
    assert view.base.epoch == 0


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


def _forged(whole: bytes, state: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file with right checksums whose state was changed."""
    state = {name: value.copy() if hasattr(value, "copy") else value for name, value in state.items()}
    change(state)
    return b"".join(ann_file.encode(whole[16:32], state))


def _set(name: str, at: int, value: int, kind: str = "") -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        values = state[name].view(kind) if kind else state[name]
        values[at] = value

    return change


FORGERIES: list[Callable[[dict[str, Any]], None]] = [
    *(
        lambda state, name=name, by=by: state.update({name: state[name] + by})  # type: ignore[misc]
        for name in ("max_elements", "cur_element_count", "size_data_per_element", "label_offset", "offset_data", "dim",
                     "offset_level0", "max_level", "enterpoint_node", "max_M", "max_M0", "M", "size_links_per_element")
        for by in (1, -1, 1 << 40)
    ),
    lambda state: state.update(ef_construction=0),
    lambda state: state.update(has_deletions=True),
    _set("data_level0", 0, 1 << 16, "<u4"),  # length of a list of links
    _set("data_level0", 0, 10_000, "<u2"),
    _set("data_level0", 1, 10_000, "<u4"),  # a link
    _set("link_lists", 1, 10_000, "<u4"),
    _set("link_lists", 0, 60_000, "<u4"),
    _set("element_levels", 3, 50),
    _set("element_levels", 3, -1),
    _set("label_lookup_external", 0, 1 << 50),
    _set("label_lookup_internal", 0, 1 << 30),
    lambda state: state.update(link_lists=state["link_lists"][:-4]),
    lambda state: state.update(data_level0=state["data_level0"][:-4]),
    lambda state: state.update(element_levels=state["element_levels"][:-1]),
]  # fmt: skip


@pytest.mark.parametrize("change", FORGERIES)
def test_a_forged_graph_never_reaches_native_code(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Right checksums over sizes, links and labels that would have hnswlib read where nothing is."""
    case = Case(1, 200, 0, 8)
    base, path = case.view.base, tmp_path / "m.h5.ann"
    graph = ann.build(AnnExecutor(base))
    ann.save(str(path), base, graph)
    (state,) = graph.__getstate__()
    whole = path.read_bytes()
    assert whole == _forged(whole, state, lambda _: None)
    path.write_bytes(_forged(whole, state, change))
    assert ann.load(str(path), base) is None


def test_a_link_to_an_element_below_its_level_is_refused(tmp_path: Path) -> None:
    """Its list on that level does not exist."""
    case = Case(1, 200, 0, 8)
    base, path = case.view.base, tmp_path / "m.h5.ann"
    graph = ann.build(AnnExecutor(base))
    ann.save(str(path), base, graph)
    (state,) = graph.__getstate__()
    ground = int(np.flatnonzero(state["element_levels"] == 0)[0])
    path.write_bytes(_forged(path.read_bytes(), state, _set("link_lists", 1, ground, "<u4")))
    assert ann.load(str(path), base) is None
