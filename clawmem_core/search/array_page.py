"""The page of one search over arrays, where the log adds and changes no rows.

The commonest case of a long-lived process, so it makes as few calls as it can: one reading of stored vectors for both
pools, no Python object for a row that is not shown.

Invariant: what it answers is what engine.Search works out record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clawmem_core.model import SearchHit
from clawmem_core.search import fusion, ranking
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.index_reader import KEPT_NAMES, IndexReader
from clawmem_core.search.numpy_executor import NumpyExecutor, words_of

if TYPE_CHECKING:
    from clawmem_core.search.engine import Search

Array = npt.NDArray[Any]
Ranked = tuple[int, float, int, float | None, float]  # id, final score, row, cosine or None, bm25

_NO_ROWS = np.zeros(0, np.int64)


def page(search: Search, executor: NumpyExecutor) -> list[SearchHit]:
    """The hits of a search that asks for no more than its union holds."""
    memo = search.base.memo
    columns = memo.get("columns") or memo.setdefault("columns", Columns(search.base))
    found = ranked(search, executor, columns, search.request.k)
    if search.request.explain:
        search.cosines = {row: cosine for _, _, row, cosine, _ in found}
        search.bm25 = {row: bm25 for _, _, row, _, bm25 in found}
        return [search.hit(id, score, row) for id, score, row, _, _ in found]
    changed, hit_of, similarity = search.overlay.activation, columns.hit, ranking.similarity
    ideal = search.query.ideal if search.query is not None else 0.0
    hits = [hit_of(id, score, similarity(cosine, bm25, ideal), row) for id, score, row, cosine, bm25 in found]
    if changed:
        for hit in hits:
            hit.activation = changed.get(hit.index, hit.activation)
    return hits


def ranked(search: Search, executor: NumpyExecutor, columns: Columns, limit: int) -> list[Ranked]:
    """The first `limit` of the union, best first."""
    vector, query, count = search.vector, search.query, search.base.count
    rows = near = worded = _NO_ROWS
    if vector is not None:
        rows, search.plans["vector"] = executor.candidates(vector, search.selection)
        near = rows
    if query is not None:
        worded, search.plans["keyword"], whole = executor.worded(query, search.selection)
        if len(worded) > ranking.POOL:
            worded = _best(worded, words_of(whole, worded))
        rows = _union(near, worded, count)
    cosines = bm25 = None
    if vector is not None:
        cosines = executor.exact(vector, rows)
        if len(near) > ranking.POOL:
            kept = _union(_best(near, cosines[rows.searchsorted(near)]), worded, count)
            rows, cosines = kept, cosines[rows.searchsorted(kept)]
    if query is not None:
        bm25 = words_of(whole, rows)
    present = search.present = {"vector": len(near) > 0, "keyword": len(worded) > 0}
    if not len(rows):
        return []
    ids = rows if columns.ids is None else columns.ids[rows]
    boosts, sessions = _boosts(search, columns, rows, ids), columns.sessions_of(rows)
    scores = fusion.fused(
        cosines if present["vector"] else None, bm25 if present["keyword"] else None, boosts, sessions, search.weights
    )
    first = (-scores).argsort(kind="stable")[:limit]  # rows, and with them ids, ascend
    chosen = rows[first].tolist()
    return list(
        zip(
            ids[first].tolist(),
            scores[first].tolist(),
            chosen,
            [None] * len(chosen) if cosines is None else [None if x != x else x for x in cosines[first].tolist()],
            [0.0] * len(chosen) if bm25 is None else bm25[first].tolist(),
            strict=True,
        )
    )


def _boosts(search: Search, columns: Columns, rows: Array, ids: Array) -> Array | None:
    """What the fused scores of some rows are multiplied by; None: all 1."""
    boosts = None if columns.weights is None else np.sqrt(columns.weights[rows].astype(np.float64))
    changed, factors = search.overlay.activation, search.request.factors
    if changed or factors:
        boosts = np.ones(len(rows)) if boosts is None else boosts
        for at, id in enumerate(ids.tolist()):
            if id in changed:
                boosts[at] = ranking.boost(changed[id])
            boosts[at] *= factors.get(id, 1.0)
    return boosts


def _best(rows: Array, scores: Array) -> Array:
    """The best POOL of ascending rows by score, then row; ascending."""
    return np.sort(rows[(-scores).argsort(kind="stable")[: ranking.POOL]])


def _union(one: Array, other: Array, count: int) -> Array:
    """The distinct ones of some rows of `count`, ascending."""
    among = np.zeros(count, np.bool_)
    among[one] = among[other] = True
    return among.nonzero()[0]


class Columns:
    """Columns of an index as a page reads them. `ids`: None where they are the rows; `weights`: None where all are 1.

    Strings that were decoded are kept.
    """

    def __init__(self, base: IndexReader) -> None:
        column = base.sections.column
        self.base = base
        self._ends, self._times = column("text.o"), column("time")
        ids, weights, sessions = column("id"), column("act"), column("session")
        self.ids = None if ids is None else np.asarray(ids)
        self.weights = None if weights is None else np.asarray(weights)
        self._sessions = None if sessions is None else np.asarray(sessions)
        every = bytes(base.count)  # a column that was left out is all 0
        self._channel_codes, self._channels = column("chan") or every, _Strings(base, "chans")
        self._session_codes, self._session_names = sessions or every, _Strings(base, "ses")
        self._tag_codes, self._tags = column("tag") or every, _Strings(base, "tags")

    def sessions_of(self, rows: Array) -> Array:
        """Session numbers of some rows, -1 for none."""
        if self._sessions is None:
            return np.full(len(rows), -1)
        sessions = self._sessions[rows].astype(np.int64)
        nameless = self.base.nameless
        if nameless:
            sessions[sessions < nameless] = -1
        return sessions

    def hit(self, id: int, score: float, similarity: float, row: int) -> SearchHit:
        """A row of the page, with the activation of the index."""
        if self._ends is None or self._times is None:
            raise UnusableIndex("a section is missing")
        text = self.base.sections.values("text", self._ends[row], self._ends[row + 1])
        try:
            chunk = str(text, "utf-8")
        except UnicodeDecodeError:
            chunk = self.base.text(row)  # raises what fits
        return SearchHit(
            id, score, similarity, chunk, self._times[row], self._channels[self._channel_codes[row]],
            self._session_names[self._session_codes[row]], self._tags[self._tag_codes[row]],
            1.0 if self.weights is None else float(self.weights[row]),
        )  # fmt: skip


class _Strings(dict[int, str]):
    """Strings of a table by number, decoded on first sight. Emptied when full."""

    __slots__ = ("_base", "_table")

    def __init__(self, base: IndexReader, table: str) -> None:
        super().__init__()
        self._base, self._table = base, table

    def __missing__(self, number: int) -> str:
        if len(self) >= KEPT_NAMES:
            self.clear()
        found = self[number] = self._base.string(self._table, number)
        return found
