"""Search: from a request to a page of hits, the same whatever executor finds the candidates. Loaded by one-shots.

    filters -> vector and keyword arm -> pools -> union, exact scores -> fusion -> re-rank -> confidence -> cut

Index rows are searched by an executor; tail records (tail.py) and index rows whose neighbours the log changed are
scored one by one beside it. The ranking itself is ranking.py.

Invariants: a search writes nothing; equal states give equal pages, also when the index turns out to be damaged on the
way.
"""

from __future__ import annotations

from clawmem_core.model import SearchHit
from clawmem_core.search import ranking
from clawmem_core.search.filters import select
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.query import Query
from clawmem_core.search.request import SearchRequest, request_of
from clawmem_core.search.tail import Tail
from clawmem_core.search.tokenizer import tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from clawmem_core.search.index_reader import IndexReader
    from clawmem_core.view import View

BEYOND = 256  # records beyond the union from which numpy scores them

__all__ = ["SearchRequest", "request_of", "search"]


def search(view: View, request: SearchRequest) -> list[SearchHit]:
    """The page of a request.

    Where the index turns out to be damaged the reader heals and is asked again; UnusableIndex where it cannot.
    """
    if not request.k:
        return []
    base = view.base
    while True:
        epoch = base.epoch
        try:
            hits = Search(view, request).page()
        except UnusableIndex as reason:
            base.heal(reason)
            continue
        if base.epoch == epoch:
            return hits


class Search:
    """One search over one view."""

    def __init__(self, view: View, request: SearchRequest) -> None:
        self.request = request
        self.base, self.overlay = view.base, view.overlay
        tokens = tokenizer(self.base.config["tokenizer"]).query(request.text)
        self.tail = self._tail(tokens)
        self.weights = ranking.Weights(
            request.vector_weight, request.keyword_weight, request.neighbour_weight, request.session_prior_weight,
            request.fusion,
        )  # fmt: skip
        self.executor = executor_for(view, request)
        self.selection = select(self.base, self.tail, request)
        on = request.vector is not None and request.vector_weight > 0
        self.vector = self.executor.vector(request.vector) if on else None
        self.query: Query | None = None
        if tokens and request.keyword_weight > 0:
            self.query = Query(self.base, self.tail, tokens, request.neighbour_weight)
        self.plans: dict[str, str] = {}
        self.present: dict[str, bool] = {}
        self.least = 0.0  # similarity of a hit
        self.score_row: Callable[[int], float] | None = None
        self.cosines: dict[int, float | None] = {}
        self.bm25: dict[int, float] = {}

    def _tail(self, tokens: Sequence[str]) -> Tail:
        """The tail; its words are kept with the index for a process that searches again."""
        base, overlay = self.base, self.overlay
        if overlay.empty:
            return Tail(base, overlay, None)
        from clawmem_core.search.text_scan import MOST_TOKENS, KeptScanner, QueryScanner

        name = base.config["tokenizer"]
        if not self.request.long_lived and len(set(tokens)) <= MOST_TOKENS:
            return Tail(base, overlay, QueryScanner(name, tokens))
        return Tail(base, overlay, KeptScanner(name, base.memo.setdefault("counted", {})))

    # ------------------------------------------------------------ arms

    def _vector_pool(self) -> list[int]:
        """Places of the best of the vector arm; their cosines are kept."""
        vector = self.vector
        if vector is None:
            return []
        scored, self.plans["vector"] = self.executor.vector_pool(vector, self.selection)
        records, first = self.tail.records, self.base.count
        having = [at for at in self.selection.tail if records[at].vector is not None]
        least = scored[-1][0] if len(scored) >= ranking.POOL else -1.0
        beside = self.executor.beside(vector, [records[at].vector for at in having], least)
        scored += [(cosine, first + having[at]) for cosine, at in beside]
        return self._pool(scored, self.cosines)

    def _keyword_pool(self) -> list[int]:
        """Places of the best of the keyword arm; their scores are kept."""
        query = self.query
        if query is None:
            return []
        changed = self.tail.changed_rows() if query.neighbour else []
        scored, self.plans["keyword"], self.score_row = self.executor.keyword_pool(query, self.selection, changed)
        beside = [*self.selection.having(changed), *(self.base.count + at for at in self.selection.tail)]
        scored += query.beside(beside, scored[-1][0] if len(scored) >= ranking.POOL else 0.0)
        return self._pool(scored, self.bm25)

    def _pool(self, scored: list[tuple[float, int]], scores: dict[int, Any]) -> list[int]:
        """The best POOL places by score, then id; index rows alone come in that order."""
        if not self.tail.around and not self.selection.tail:
            scores.update((place, score) for score, place in scored)
            return [place for _, place in scored]
        if len(scored) > ranking.POOL:
            bar = sorted((score for score, _ in scored), reverse=True)[ranking.POOL - 1]
            scored = [pair for pair in scored if pair[0] >= bar]
        ids = self.tail.ids_of([place for _, place in scored])
        best = sorted((-score, id, place) for (score, place), id in zip(scored, ids, strict=True))[: ranking.POOL]
        scores.update((place, -score) for score, _, place in best)
        return [place for _, _, place in best]

    # ------------------------------------------------------------ exact scores

    def _compare(self, places: Iterable[int]) -> None:
        """Work out the missing cosines of some records together."""
        if self.vector is None:
            return
        first, records, cosines = self.base.count, self.tail.records, self.cosines
        missing = [place for place in places if place not in cosines]
        rows = sorted(place for place in missing if place < first)
        cosines.update(zip(rows, self.executor.cosines(self.vector, rows), strict=True))
        later = {place: records[place - first].vector for place in missing if place >= first}
        cosines.update(dict.fromkeys(later))
        having = {place: stored for place, stored in later.items() if stored is not None}
        if having:
            found = self.executor.compare(self.vector, b"".join(having.values()))
            cosines.update(zip(having, found, strict=True))

    def _cosine_of(self, place: int) -> float | None:
        if self.vector is None:
            return None
        if place not in self.cosines:
            self._compare((place,))
        return self.cosines[place]

    def _bm25_of(self, place: int) -> float:
        if self.query is None:
            return 0.0
        found = self.bm25.get(place)
        if found is None:
            own = self.score_row is not None and place < self.base.count and place not in self.tail.around
            found = self.bm25[place] = self.score_row(place) if own and self.score_row else self.query.score(place)
        return found

    def _fused(self, places: Iterable[int]) -> tuple[list[tuple[int, float]], dict[int, int]]:
        """(id, final score) of some records as one union, best first; and their places by id."""
        first, base, tail = self.base.count, self.base, self.tail
        rows = [place for place in places if place < first]
        later = [place for place in places if place >= first]
        order = rows + later
        self._compare(order)
        ids = tail.ids_of(order)
        activations = base.activations_of(rows) + [tail.records[place - first].activation for place in later]
        if self.overlay.activation:
            changed = self.overlay.activation
            activations = [changed.get(id, weight) for id, weight in zip(ids, activations, strict=True)]
        factors, boost, nameless = self.request.factors, ranking.boost, self.base.nameless
        boosts = [
            1.0 if weight == 1.0 and not factors else boost(weight, factors.get(id, 1.0))
            for id, weight in zip(ids, activations, strict=True)
        ]
        sessions: list[Any] = [code if code >= nameless else None for code in base.session_codes_of(rows)]
        sessions += map(tail.session_of, later)
        cosines = [self.cosines.get(place) for place in order]
        bm25 = [self._bm25_of(place) for place in order]
        candidates = list(zip(ids, cosines, bm25, boosts, sessions, strict=True))
        return self.executor.fuse(candidates, self.weights, **self.present), dict(zip(ids, order, strict=True))

    # ------------------------------------------------------------ the page

    def page(self) -> list[SearchHit]:
        """The hits of the request, best first."""
        request = self.request
        if self._by_arrays():
            from clawmem_core.search import array_page

            return array_page.page(self, self.executor)
        vector_pool, keyword_pool = self._vector_pool(), self._keyword_pool()
        self.present = {"vector": bool(vector_pool), "keyword": bool(keyword_pool)}
        union = list(dict.fromkeys(vector_pool + keyword_pool))
        ranked, places = self._fused(union)
        if request.rerank is None and request.confidence is None and request.min_score is None:
            hits = [self.hit(id, score, places[id]) for id, score in ranked[: request.k]]
        else:
            hits = self._chosen([self.hit(id, score, places[id]) for id, score in ranked])
        if len(hits) < request.k and self._more(vector_pool, keyword_pool, len(hits)):
            hits += self._rest(union, ranked[-1:], len(hits))
        return hits[: request.k]

    def _by_arrays(self) -> bool:
        """Whether the page is the beginning of a union of index rows, nothing else, and arrays are at hand."""
        request, tail = self.request, self.tail
        return (
            self.executor.name != "pure"
            and not tail.records
            and not tail.around
            and request.k <= ranking.POOL  # a longer page may go beyond the union
            and request.fusion == "weighted"
            and request.rerank is request.confidence is request.min_score is None
        )

    def _chosen(self, hits: list[SearchHit]) -> list[SearchHit]:
        """Re-ranked, without weak matches."""
        request = self.request
        if request.rerank is not None:
            from clawmem_core import clock
            from clawmem_core.search.rerank import rerank

            reranked = rerank(hits, clock.now(), request.rerank)
            hits = [hit for hit, _ in reranked]
            for hit, parts in reranked:
                hit.score = parts.score
        self.least = request.min_score or 0.0
        limit = None
        if request.confidence is not None:
            best = max((hit.similarity for hit in hits), default=0.0)
            self.least = max(self.least, request.confidence.min_score, best - request.confidence.min_gap)
            limit = request.confidence.max_results
        if limit is not None:
            request.k = min(request.k, limit)
        return [hit for hit in hits if hit.similarity >= self.least]

    def _more(self, vector_pool: list[int], keyword_pool: list[int], found: int) -> bool:
        """Whether records beyond the union may fill the page: a pool was full, and its last is not too weak."""
        if not any(len(pool) >= ranking.POOL for pool in (vector_pool, keyword_pool)):
            return False
        cosine = self.cosines[vector_pool[-1]] if vector_pool else None
        bm25 = self.bm25[keyword_pool[-1]] if keyword_pool else 0.0
        ideal = self.query.ideal if self.query is not None else 0.0
        return found < self.request.k and ranking.similarity(cosine, bm25, ideal) >= self.least

    def _rest(self, union: Collection[int], last: list[tuple[int, float]], found: int) -> list[SearchHit]:
        """Hits beyond the union, as many as the page still takes. `last`: id and score of the union's last."""
        inside = set(union)
        places = [*self.selection.rows, *(self.base.count + at for at in self.selection.tail)]
        places = [place for place in places if place not in inside]
        if len(places) > BEYOND:
            self._use_arrays()
        self._compare(places)
        rest = [place for place in places if self._cosine_of(place) is not None or self._bm25_of(place) > 0]
        fused, by_id = self._fused(rest)
        hits: list[SearchHit] = []
        for id, score in ranking.continue_below(last, fused):
            if self._similarity(by_id[id]) >= self.least:
                hits.append(self.hit(id, score, by_id[id]))
                if found + len(hits) >= self.request.k:
                    break
        return hits

    def _use_arrays(self) -> None:
        """Score what is still to be scored with numpy."""
        self.executor = _numpy(self.base)
        if self.vector is not None and self.request.vector is not None:
            self.vector = self.executor.vector(self.request.vector)
        if self.query is not None:
            self.score_row = self.executor.keyword_pool(self.query, self.selection, ())[2]

    def _similarity(self, place: int) -> float:
        ideal = self.query.ideal if self.query is not None else 0.0
        return ranking.similarity(self._cosine_of(place), self._bm25_of(place), ideal)

    def hit(self, id: int, score: float, place: int) -> SearchHit:
        """A row of the page."""
        first = self.base.count
        record = self.tail.records[place - first] if place >= first else self._shown(place, id)
        hit = SearchHit(
            id, score, self._similarity(place), record.chunk, record.timestamp, record.source_channel,
            record.session_id, record.tags, record.activation,
        )  # fmt: skip
        if self.request.explain:
            hit.explain = {
                "plan": dict(self.plans), "executor": self.executor.name,
                "cosine": self._cosine_of(place), "bm25": self._bm25_of(place),
                "activation": record.activation, "records": self.base.count + len(self.tail.records),
                "passing": self.selection.count + len(self.selection.tail), "pending": len(self.tail.records),
                "present": dict(self.present),
            }  # fmt: skip
        return hit

    def _shown(self, row: int, id: int) -> Any:
        """The record of an index row, as far as a hit shows it."""
        record = self.base.shown(row)
        record.activation = self.overlay.activation.get(id, record.activation)
        return record


def executor_for(view: View, request: SearchRequest) -> Any:
    """The executor that answers a request; kept with the index it works on."""
    base = view.base
    name = request.executor
    if name == "auto":
        name = "ann" if request.long_lived else "pure"
    if name == "ann":
        return _ann(base, view.paths.ann, always=request.executor == "ann")
    return _pure(base) if name == "pure" else _numpy(base)


def _ann(base: IndexReader, path: str, always: bool) -> Any:
    """The executor that may use a graph, if hnswlib is there."""
    if "ann" not in base.memo:
        try:
            from clawmem_core.search.ann import AnnExecutor
        except ImportError:
            return _numpy(base)
        base.memo["ann"] = AnnExecutor(base, path, always=always)
    return base.memo["ann"]


def _pure(base: IndexReader) -> Any:
    """The executor without numpy, if simsimd is there."""
    if "pure" not in base.memo:
        try:
            from clawmem_core.search.pure import PureExecutor
        except ImportError:
            return _numpy(base)
        base.memo["pure"] = PureExecutor(base)
    return base.memo["pure"]


def _numpy(base: IndexReader) -> Any:
    if "numpy" not in base.memo:
        from clawmem_core.search.numpy_executor import NumpyExecutor

        base.memo["numpy"] = NumpyExecutor(base)
    return base.memo["numpy"]
