"""The page of one search over arrays, where the log adds and changes no rows.

The commonest case of a long-lived process, so it makes as few calls as it can: one reading of stored vectors for both
pools, no Python object for a row that is not shown.

Invariant: what it answers is what engine.Search works out record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clawmem_core.model import Record, SearchHit
from clawmem_core.search import fusion, ranking
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.index_reader import KEPT_NAMES, IndexReader
from clawmem_core.search.numpy_executor import NumpyExecutor, words_of

if TYPE_CHECKING:
    from clawmem_core.search.engine import Search

Array = npt.NDArray[Any]


def page(search: Search, executor: NumpyExecutor) -> list[SearchHit]:
    """The hits of a search that asks for no more than its union holds."""
    found = ranked(search, executor, search.request.k)
    if search.request.explain:
        return [search.hit(*row) for row in found]
    memo = search.base.memo
    shown = memo.get("shown") or memo.setdefault("shown", Shown(search.base))
    changed, cosines, bm25 = search.overlay.activation, search.cosines, search.bm25
    ideal = search.query.ideal if search.query is not None else 0.0
    hits = []
    for id, score, row in found:
        record = shown.record(id, row)
        if changed:
            record.activation = changed.get(id, record.activation)
        hits.append(SearchHit(id, score, ranking.similarity(cosines.get(row), bm25.get(row, 0.0), ideal), record))
    return hits


def ranked(search: Search, executor: NumpyExecutor, limit: int) -> list[tuple[int, float, int]]:
    """(id, final score, row) of the first `limit` of the union, best first; their scores are put into the search."""
    vector, query = search.vector, search.query
    rows = near = worded = np.zeros(0, np.int64)
    if vector is not None:
        rows, search.plans["vector"] = executor.candidates(vector, search.selection)
        near = rows
    if query is not None:
        found, search.plans["keyword"], whole = executor.worded(query, search.selection)
        worded = _best(found, words_of(whole, found))
        rows = _union(near, worded)
    cosines = bm25 = None
    if vector is not None:
        cosines = executor.exact(vector, rows)
        if len(near) > ranking.POOL:
            kept = _union(_best(near, cosines[rows.searchsorted(near)]), worded)
            rows, cosines = kept, cosines[rows.searchsorted(kept)]
    if query is not None:
        bm25 = words_of(whole, rows)
    present = search.present = {"vector": len(near) > 0, "keyword": len(worded) > 0}
    if not len(rows):
        return []
    ids, boosts, sessions = _columns(search, rows)
    scores = fusion.fused(
        cosines if present["vector"] else None, bm25 if present["keyword"] else None, boosts, sessions, search.weights
    )
    first = fusion.best_first(scores, ids)[:limit]
    chosen = rows[first].tolist()
    if cosines is not None:
        search.cosines = {row: None if value != value else value
                          for row, value in zip(chosen, cosines[first].tolist(), strict=True)}  # fmt: skip
    if bm25 is not None:
        search.bm25 = dict(zip(chosen, bm25[first].tolist(), strict=True))
    return list(zip(ids[first].tolist(), scores[first].tolist(), chosen, strict=True))


def _columns(search: Search, rows: Array) -> tuple[Array, Array | None, Array]:
    """Ids, boosts (None: all 1) and session numbers (-1: none) of some rows."""
    column = search.base.sections.column
    names, weights, codes = column("id"), column("act"), column("session")
    ids = rows if names is None else np.asarray(names)[rows]
    boosts = None if weights is None else np.sqrt(np.asarray(weights)[rows].astype(np.float64))
    changed, factors = search.overlay.activation, search.request.factors
    if changed or factors:
        boosts = np.ones(len(rows)) if boosts is None else boosts
        for at, id in enumerate(ids.tolist()):
            if id in changed:
                boosts[at] = ranking.boost(changed[id])
            boosts[at] *= factors.get(id, 1.0)
    sessions = np.asarray(codes)[rows].astype(np.int64) if codes is not None else np.full(len(rows), -1)
    if search.base.nameless:
        sessions[sessions < search.base.nameless] = -1
    return ids, boosts, sessions


def _best(rows: Array, scores: Array) -> Array:
    """The best POOL of ascending rows by score, then row; ascending."""
    if len(rows) <= ranking.POOL:
        return rows
    return np.sort(rows[np.lexsort((rows, -scores))[: ranking.POOL]])


def _union(one: Array, other: Array) -> Array:
    """The distinct numbers of two ascending arrays, ascending."""
    both = np.concatenate([one, other])
    both.sort()
    first = np.empty(len(both), bool)
    first[:1] = True
    np.not_equal(both[1:], both[:-1], out=first[1:])
    return both[first]


class Shown:
    """What a page shows of rows, from whole columns, and strings that were decoded before."""

    def __init__(self, base: IndexReader) -> None:
        column = base.sections.column
        self.base = base
        self._ends = column("text.o")
        self._times, self._weights = column("time"), column("act")
        self._names: dict[tuple[str, int], str] = {}
        tables = (("chans", "chan"), ("ses", "session"), ("tags", "tag"))
        self._codes = [(table, column(name)) for table, name in tables]

    def record(self, id: int, row: int) -> Record:
        """The record of a row, as far as a hit shows it."""
        if self._ends is None or self._times is None:
            raise UnusableIndex("a section is missing")
        text = self.base.sections.values("text", self._ends[row], self._ends[row + 1])
        try:
            chunk = str(text, "utf-8")
        except UnicodeDecodeError:
            chunk = self.base.text(row)  # raises what fits
        names = [self._name(table, 0 if codes is None else codes[row]) for table, codes in self._codes]
        found = Record(id, chunk, self._times[row], *names)
        if self._weights is not None:
            found.activation = self._weights[row]
        return found

    def _name(self, table: str, code: int) -> str:
        found = self._names.get((table, code))
        if found is None:
            if len(self._names) >= KEPT_NAMES:
                self._names.clear()
            found = self._names[table, code] = self.base.string(table, code)
        return found
