"""The ranking by brute force, from texts and vectors only: what every executor must return.

Written from the specification in clawmem_core/search/ranking.py with numpy over all records, without an index and
without the formulas of that module, so that the two can be compared.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clawmem_core.search.tokenizer import Tokenizer, tokenizer

Floats = NDArray[np.float64]


@dataclass
class OracleRecord:
    """A live record. `vector`: its stored float16 or float32 values or None. `session`: (scope, session) or None."""

    id: int
    text: str
    vector: ArrayLike | None = None
    session: Hashable = None
    activation: float = 1.0
    factor: float = 1.0


@dataclass
class OracleQuery:
    """A search. `allowed`: which records pass the filters. `vector`: numbers, rounded to float32 as the door does."""

    text: str = ""
    vector: ArrayLike | None = None
    allowed: Callable[[OracleRecord], bool] = field(default=lambda record: True)
    vector_weight: float = 0.5
    keyword_weight: float = 0.5
    neighbour_weight: float = 0.5
    prior_weight: float = 0.6
    pool: int = 64
    fusion: str = "weighted"


@dataclass(frozen=True)
class OracleHit:
    """One row of the full ranking."""

    id: int
    score: float
    similarity: float


class Oracle:
    """All live records of one store. Tokens and neighbours are worked out once, scores for every query anew."""

    def __init__(self, records: Sequence[OracleRecord], tokens: Tokenizer | None = None) -> None:
        self.records = sorted(records, key=lambda record: record.id)
        self.tokens = tokens or tokenizer()
        self.terms = [Counter(self.tokens.document(record.text)) for record in self.records]
        self.stopwords = [Counter(self.tokens.stopwords(record.text)) for record in self.records]
        self.lengths = np.array([sum(terms.values()) for terms in self.terms], dtype=np.int64)
        count = len(self.records)
        self.previous: list[int | None] = [None] * count
        self.following: list[int | None] = [None] * count
        sessions: dict[Hashable, list[int]] = defaultdict(list)
        for row, record in enumerate(self.records):
            if record.session is not None:
                sessions[record.session].append(row)
        for rows in sessions.values():
            for before, after in pairwise(rows):
                self.following[before] = after
                self.previous[after] = before

    def search(self, query: OracleQuery) -> list[OracleHit]:
        """The full ranking of every candidate, best first."""
        allowed = np.array([query.allowed(record) for record in self.records], dtype=bool)
        tokens = self.tokens.query(query.text)
        vector_on = query.vector is not None and query.vector_weight > 0
        keyword_on = bool(tokens) and query.keyword_weight > 0
        cosine = self.cosine(query.vector) if vector_on else np.full(len(self.records), np.nan)
        bm25, ideal = self.bm25(tokens, query.neighbour_weight) if keyword_on else (np.zeros(len(self.records)), 0.0)
        has_cosine = allowed & ~np.isnan(cosine)
        is_hit = allowed & (bm25 > 0)
        present = bool(has_cosine.any()), bool(is_hit.any())
        pools = _best(cosine, has_cosine, query.pool), _best(bm25, is_hit, query.pool)
        union = np.array(sorted({int(row) for pool in pools for row in pool}), dtype=np.int64)
        rest = np.setdiff1d(np.flatnonzero(has_cosine | is_hit), union)
        ranked = self.fused(union, cosine, bm25, present, query)
        after = self.fused(rest, cosine, bm25, present, query)
        if ranked and after and after[0][1] >= ranked[-1][1]:
            step = after[0][1] - ranked[-1][1] + 1e-10
            after = [(row, float(np.round(score - step, 10))) for row, score in after]
        raw = np.clip(np.fmax(np.nan_to_num(cosine), bm25 / ideal if ideal else 0.0), 0.0, 1.0)
        return [OracleHit(self.records[row].id, score, float(np.round(raw[row], 10))) for row, score in ranked + after]

    def cosine(self, query: ArrayLike | None) -> Floats:
        """Cosine of every record, NaN for those without a vector."""
        wanted = np.asarray(query, dtype=np.float32).astype(np.float64)
        values = np.full(len(self.records), np.nan)
        rows = [row for row, record in enumerate(self.records) if record.vector is not None]
        if rows:
            stored = np.array([self.records[row].vector for row in rows]).astype(np.float64)
            norms = np.sqrt((stored * stored).sum(axis=1)) * np.sqrt((wanted * wanted).sum())
            values[rows] = np.round(stored @ wanted / norms, 12)
        return values

    def bm25(self, tokens: Sequence[str], neighbour: float) -> tuple[Floats, float]:
        """Keyword score of every record and the sum a record of average length with every token once would get."""
        count = len(self.records)
        if not count:
            return np.zeros(0), 0.0
        around = self._around(self.lengths)
        lengths = self.lengths + neighbour * around
        average = (int(self.lengths.sum()) + neighbour * int(around.sum())) / count
        norm = 1.2 * ((1 - 0.75) + 0.75 * (lengths / average if average else np.zeros(count)))
        scores, ideal = np.zeros(count), 0.0
        for token, repeats in Counter(tokens).items():
            counts = zip(self.terms, self.stopwords, strict=True)
            own = np.array([terms[token] + stops[token] for terms, stops in counts])
            df = int((own > 0).sum())
            weight = repeats * math.log(1 + (count - df + 0.5) / (df + 0.5))
            ideal += weight
            frequency = own + neighbour * self._around(own)
            with np.errstate(invalid="ignore"):
                scores += np.where(frequency > 0, weight * (frequency * 2.2 / (frequency + norm)), 0.0)
        return np.round(scores, 12), ideal

    def fused(
        self, rows: NDArray[np.int64], cosine: Floats, bm25: Floats, present: tuple[bool, bool], query: OracleQuery
    ) -> list[tuple[int, float]]:
        """(row, final score) of these rows as one union, best first."""
        if not len(rows) or not any(present):
            return []
        unit = _by_rank if query.fusion == "rrf" else _min_max
        keywords = np.where(bm25[rows] > 0, bm25[rows], np.nan) if query.fusion == "rrf" else bm25[rows]
        vector_weight, keyword_weight = query.vector_weight * present[0], query.keyword_weight * present[1]
        parts = np.zeros(len(rows))
        if present[0]:
            parts = parts + vector_weight * unit(cosine[rows])
        if present[1]:
            parts = parts + keyword_weight * unit(keywords)
        records = [self.records[row] for row in rows]
        boosts = np.array([math.sqrt(record.activation) * record.factor for record in records])
        scores = parts / (vector_weight + keyword_weight) * boosts
        best: dict[Hashable, float] = {}
        for record, score in zip(records, scores, strict=True):
            best[record.session] = max(best.get(record.session, -1.0), float(score))
        final = [
            float(score)
            if record.session is None or not query.prior_weight
            else (float(score) + query.prior_weight * best[record.session]) / (1 + query.prior_weight)
            for record, score in zip(records, scores, strict=True)
        ]
        rounded = np.round(np.array(final), 10)
        return [(int(rows[at]), float(rounded[at])) for at in np.argsort(-rounded, kind="stable")]

    def _around(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum of a value over a record's two neighbours."""
        padded = np.append(values, 0)
        return np.asarray(
            padded[[-1 if row is None else row for row in self.previous]]
            + padded[[-1 if row is None else row for row in self.following]]
        )


def _best(scores: Floats, among: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """The first `count` rows of `among` by score descending, then row."""
    rows = np.flatnonzero(among)
    return rows[np.argsort(-scores[rows], kind="stable")][:count]


def _min_max(values: Floats) -> Floats:
    known = values[~np.isnan(values)]
    if not len(known) or known.min() == known.max():
        return np.where(np.isnan(values), 0.0, 1.0)
    return np.where(np.isnan(values), 0.0, (values - known.min()) / (known.max() - known.min()))


def _by_rank(values: Floats) -> Floats:
    order = np.argsort(-values, kind="stable")  # NaN sorts last
    ranks = np.empty(len(values))
    ranks[order] = np.arange(1, len(values) + 1)
    return np.where(np.isnan(values), 0.0, 61.0 / (60.0 + ranks))
