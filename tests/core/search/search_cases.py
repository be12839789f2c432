"""Random stores, logs and queries, and what the oracle says of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from clawmem_core.model import Record, SearchHit
from clawmem_core.overlay import Overlay
from clawmem_core.search.engine import SearchRequest, search
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.storage import ops
from clawmem_core.storage.paths import StorePaths
from tests.core.search.index_stores import reader_of, record
from tests.oracle import Oracle, OracleQuery, OracleRecord

WORDS = ["tea", "teas", "mail", "run", "running", "ran", "café", "snake_case", "userName", "the", "who", "日本語", "x1"]
SCOPES = (b"", b"", b"", b"\1" * 32, b"\2" * 32)


class PlainView:
    """What a search needs of a view."""

    def __init__(self, base: IndexReader) -> None:
        self.base, self.overlay = base, Overlay(base)
        self.paths = StorePaths("nowhere.h5")

    def config(self) -> dict[str, Any]:
        """The store's settings."""
        return dict(self.base.config)


def text_of(chance: random.Random, words: Sequence[str] = WORDS) -> str:
    """A text with common and rare words."""
    count = chance.choice((0, 1, 3, 8, 20))
    return " ".join(words[min(int(chance.expovariate(0.35)), len(words) - 1)] for _ in range(count))


def any_record(chance: random.Random, id: int, dim: int, float16: bool = True) -> Record:
    """A record of any kind."""
    vector = [chance.gauss(0, 1) for _ in range(dim)]
    if chance.random() < 0.15:
        vector = [1.0] * dim  # the same direction more than once
    return record(
        id,
        text_of(chance),
        None if chance.random() < 0.15 else vector,
        session=chance.choice(("", "a", "b", "c", f"s{id // 7}")),
        scope=chance.choice(SCOPES),
        float16=float16,
        tags=chance.choice(("", "x", "x , y", "z,y", "xy")),
        source_channel=chance.choice(("cli", "chat", "")),
        timestamp=float(chance.randrange(100)),
        deleted=chance.random() < 0.1,
        activation=chance.choice((1.0, 1.0, 0.25, 2.0)),
    )


class Case:
    """A store of `count` rows with `pending` operations over it."""

    def __init__(self, seed: int, count: int, pending: int, dim: int, **settings: Any) -> None:
        self.chance = chance = random.Random(seed)
        self.dim, self.float16 = dim, settings.get("float16", True)
        self.records: dict[int, Record] = {}
        id = 0
        for _ in range(count):
            id += chance.choice((1, 1, 1, 2))
            self.records[id] = any_record(chance, id, dim, self.float16)
        self.next = id + 1
        self.view = PlainView(reader_of(list(self.records.values()), dim, **settings))
        for _ in range(pending):
            self.change()

    def change(self) -> None:
        """One more operation in the log, and in the model."""
        chance, ids = self.chance, sorted(self.records)
        op = chance.choice((ops.RECORD, ops.RECORD, "replace", ops.DELETE, ops.UNDELETE, ops.ACTIVATION, ops.PURGE))
        if op == ops.RECORD or not ids:
            entry = any_record(chance, self.next, self.dim, self.float16)
            self.next += 1
            self._apply(ops.RECORD, copy_of(entry))
            self.records[entry.id] = entry
        elif op == "replace":
            entry = any_record(chance, chance.choice(ids), self.dim, self.float16)
            self._apply(ops.RECORD, copy_of(entry))
            self.records[entry.id] = entry
        elif op in (ops.DELETE, ops.UNDELETE):
            wanted = [id for id in ids if self.records[id].deleted == (op == ops.UNDELETE)]
            if wanted:
                id = chance.choice(wanted)
                self._apply(op, (id,))
                self.records[id].deleted = op == ops.DELETE
        elif op == ops.ACTIVATION:
            id = chance.choice(ids)
            self._apply(op, ((id, 0.5),))
            self.records[id].activation = 0.5
        elif chance.random() < 0.2:
            id = chance.choice(ids)
            self._apply(ops.PURGE, (id,))
            del self.records[id]

    def _apply(self, op: Any, value: Any) -> None:
        self.view.overlay.apply([(op, 0, value)])

    def request(self) -> SearchRequest:
        """A query of any kind."""
        chance = self.chance
        vector: Any = None
        if chance.random() < 0.8:
            vector = np.array([chance.gauss(0, 1) for _ in range(self.dim)], "<f4").astype(float).tolist()
        text = "" if vector and chance.random() < 0.2 else text_of(chance) or "tea"
        if chance.random() < 0.1:
            text = "the who"
        request = SearchRequest(vector, text, chance.choice((1, 5, 10, 64, 1000)))
        request.vector_weight, request.keyword_weight = chance.choice(((0.5, 0.5), (0.4, 0.6), (0.0, 1.0), (1.0, 0.0)))
        if chance.random() < 0.2:
            request.neighbour_weight = request.session_prior_weight = 0.0
        if chance.random() < 0.1:
            request.neighbour_weight = 0.3
        if chance.random() < 0.1:
            request.fusion = "rrf"
        if chance.random() < 0.2:
            request.sources = chance.choice((["cli"], ["cli", "none"], ["nobody"]))
        if chance.random() < 0.2:
            request.sessions = chance.choice((["a"], ["a", "s3"], ["none"]))
        if chance.random() < 0.1:
            request.exclude_sessions = ["a", "b"]
        if chance.random() < 0.2:
            request.tags = chance.choice((["x"], ["y", " z "]))
        if chance.random() < 0.2:
            request.since, request.until = chance.choice(((10.0, None), (None, 50.0), (20.0, 70.0)))
        if chance.random() < 0.1:
            request.all_scopes = True
        elif chance.random() < 0.2:
            request.scope = SCOPES[-1]
            request.allowed = {id for id in self.records if chance.random() < 0.5}
            request.factors = {id: 0.5 for id in request.allowed if id % 3}
        return request

    def expected(self, request: SearchRequest) -> list[tuple[int, float, float]]:
        """(id, score, similarity) of the page by brute force."""
        dtype = "<f2" if self.float16 else "<f4"
        live = [
            OracleRecord(
                entry.id, entry.chunk, None if entry.vector is None else np.frombuffer(entry.vector, dtype),
                (entry.scope, entry.session_id) if entry.session_id else None, entry.activation,
                request.factors.get(entry.id, 1.0),
            )
            for entry in self.records.values() if not entry.deleted
        ]  # fmt: skip
        query = OracleQuery(
            request.text, request.vector, lambda row: self._passes(request, self.records[row.id]),
            request.vector_weight, request.keyword_weight, request.neighbour_weight, request.session_prior_weight,
            fusion=request.fusion,
        )  # fmt: skip
        return [(hit.id, hit.score, hit.similarity) for hit in Oracle(live).search(query)[: request.k]]

    @staticmethod
    def _passes(request: SearchRequest, entry: Record) -> bool:
        parts = {part.strip() for part in entry.tags.split(",")}
        if request.allowed is None and not request.all_scopes and entry.scope:
            return False
        if request.allowed is not None and entry.id not in request.allowed:
            return False
        if request.scope is not None and entry.scope != request.scope:
            return False
        return (
            (not request.sources or entry.source_channel in request.sources)
            and (not request.sessions or entry.session_id in request.sessions)
            and entry.session_id not in request.exclude_sessions
            and (not request.tags or bool(parts & {tag.strip() for tag in request.tags}))
            and (request.since is None or entry.timestamp >= request.since)
            and (request.until is None or entry.timestamp < request.until)
        )

    def check(self, request: SearchRequest) -> list[SearchHit]:
        """The page, after comparing it with the oracle's."""
        hits = search(self.view, request)  # type: ignore[arg-type]
        expected = self.expected(request)
        assert [id for id, _, _ in expected] == [hit.index for hit in hits]
        assert np.allclose([score for _, score, _ in expected], [hit.score for hit in hits], rtol=0, atol=1e-6)
        assert np.allclose([like for _, _, like in expected], [hit.similarity for hit in hits], rtol=0, atol=1e-6)
        assert [self.records[hit.index].chunk for hit in hits] == [hit.chunk for hit in hits]
        return hits


def copy_of(entry: Record) -> Record:
    """An independent record."""
    found = Record(entry.id, entry.chunk, entry.timestamp)
    for name in Record.__slots__:
        setattr(found, name, getattr(entry, name))
    return found
