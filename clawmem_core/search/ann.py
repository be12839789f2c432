"""hnswlib's graph over the rows of an index, for processes that search often; kept in `<store>.ann` on request.

A graph proposes candidates, the stored vectors decide. It is loaded from `.ann` where that is of this checkpoint,
otherwise built once scanning has cost as much time as building takes. One-shots never load it.

Invariants: nothing of `.ann` reaches native code before ann_file.py has checked it; rows that are deleted, hidden by
the log or filtered out never shorten a page: where the graph proposes too few, rows are scanned.
"""

from __future__ import annotations

from typing import Any

import hnswlib
import numpy as np
import numpy.typing as npt

from clawmem_core import clock
from clawmem_core.search import ann_file, planner, ranking
from clawmem_core.search.filters import Selection
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.numpy_executor import NumpyExecutor
from clawmem_core.storage.atomic import AtomicFile

Array = npt.NDArray[Any]

LEAST_ROWS = 4096  # below, scanning is as fast
EF = 128  # of a search: recall@10 of 0.983 at 100,000 clustered vectors, against 0.96 at 64
SECONDS_A_ROW = 2e-4  # what adding one row to a graph takes, about
WIDEST = 4096  # most neighbours asked for at once


class NoGraph(UnusableIndex):
    """The vectors of an index allow no graph."""


class AnnExecutor(NumpyExecutor):
    """Executor that asks a graph for the candidates of the vector arm."""

    name = "ann"

    def __init__(self, base: IndexReader, path: str = "", *, always: bool = False) -> None:
        """`path`: where a graph may lie; `always`: build one at once if it does not."""
        super().__init__(base)
        self._graph: Any = None
        self._spent = 0.0
        self._path = path
        self._wanted = always

    def candidates(self, vector: Array, selection: Selection) -> tuple[Array, str]:
        """Selected rows with a vector, ascending, that may be among the best POOL; and the plan."""
        graph = self._ready()
        if graph is not None:
            rows = self._proposed(graph, vector, selection)
            if rows is not None:
                return rows, planner.INDEX
        began = clock.monotonic()
        found = super().candidates(vector, selection)
        self._spent += clock.monotonic() - began
        return found

    def _ready(self) -> Any:
        base = self.base
        if self._graph is None and base.vectors >= LEAST_ROWS:
            if self._path:
                self._graph = load(self._path, base)
                self._path = ""
            if self._graph is None and (self._wanted or self._spent > SECONDS_A_ROW * base.vectors):
                try:
                    self._graph = build(self)
                except NoGraph:
                    self._wanted, self._spent = False, float("-inf")  # scan for good
        return self._graph

    def _proposed(self, graph: Any, vector: Array, selection: Selection) -> Array | None:
        """Candidate rows, ascending; None where the graph is no good for this selection."""
        passing = self.passing(selection)
        wanted = ranking.POOL
        if passing is not None:
            count = int(np.count_nonzero(passing))
            if count <= planner.GATHER_ARRAYS or count * 2 < self.base.vectors:
                return None
            wanted = min(2 * wanted * self.base.vectors // count, WIDEST)
        graph.set_ef(max(ef_of(self.base), wanted))
        labels, _ = graph.knn_query(vector[None, :], k=min(wanted, graph.get_current_count()), num_threads=1)
        rows = np.sort(labels[0].astype(np.int64))
        if passing is not None:
            rows = rows[passing[rows]]
        return rows if len(rows) >= ranking.POOL else None


def ef_of(base: IndexReader) -> int:
    """How many neighbours a search keeps: the store's setting, or EF."""
    return int(base.config["hnsw_ef_search"]) or EF


def build(executor: NumpyExecutor) -> Any:
    """A graph over the live rows with vectors; labels are rows. Raises NoGraph."""
    base = executor.base
    passing = executor.passing(Selection(None, base.count, ()))
    rows = np.arange(base.count) if passing is None else np.flatnonzero(passing)
    graph = hnswlib.Index("cosine", base.dim)
    config = base.config
    graph.init_index(len(rows), M=config["hnsw_m"], ef_construction=config["hnsw_ef_construction"], random_seed=100)
    for start in range(0, len(rows), 8192):
        some = rows[start : start + 8192]
        units = executor.vectors.units(some)
        if units is None:
            raise NoGraph("vectors too large or too small for a graph")
        graph.add_items(units, some)
    return graph


def write(path: str, base: IndexReader, like: Any = None) -> int:
    """Build and save the graph of an index; returns its number of vectors. Raises StorageError, UnusableIndex."""
    graph = build(NumpyExecutor(base))
    save(path, base, graph, like)
    return int(graph.get_current_count())


def save(path: str, base: IndexReader, graph: Any, like: Any = None) -> None:
    """Write a graph. Raises StorageError."""
    (state,) = graph.__getstate__()
    with AtomicFile(path, like) as file:
        for part in ann_file.encode(base.checkpoint_id, state):
            file.write(part)
        file.commit()


def load(path: str, base: IndexReader) -> Any:
    """The graph of this checkpoint at `path`, or None where there is none that is whole."""
    try:
        checkpoint_id, count, body = ann_file.read(path)
        if checkpoint_id != base.checkpoint_id:
            return None
        state = ann_file.state_of(count, body, base.dim, base.count)
    except UnusableIndex:
        return None
    graph = hnswlib.Index.__new__(hnswlib.Index)
    graph.__setstate__((state,))
    return graph
