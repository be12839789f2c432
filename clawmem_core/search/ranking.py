"""What a search result is: the ranking in full, and the small formulas all executors share. Obeys the start-up budget.

This text is the specification. Executors may find candidates as they like; pages and scores must be the ones below.
All arithmetic is IEEE float64 in the order written, so that plain Python and numpy agree.

**Records.** Live records in ascending id order: not deleted, at the state the reader sees (log included). `allowed`
is the subset that passes the filters (source, session, tag, time, scope, ...). Filters choose candidates only; N, df,
lengths and neighbours always come from all live records.

**Neighbours.** `prev` and `next` of a record are the live records just before and after it, by id, with the same
scope and the same non-empty session id. A record without session id has none, and so have all records when context is
off.

**Keyword score** of a record for query tokens (`Tokenizer.query`), with n = neighbour weight, 0 when context is off:

    dl'(d)  = dl(d) + n * (dl(prev) + dl(next))           dl = len(Tokenizer.document(text)); a missing neighbour is 0
    avgdl   = (sum of dl + n * sum of (dl(prev) + dl(next))) / N      both sums over live records, exact integers
    tf'(t)  = tf(t, d) + n * (tf(t, prev) + tf(t, next))
    idf(t)  = ln(1 + (N - df + 0.5) / (df + 0.5))                     df = live records whose own text holds t
    norm(d) = k1 * ((1 - b) + b * (dl' / avgdl))                      dl' / avgdl is 0 when avgdl is 0
    bm25(d) = sum over distinct query tokens, in order of first appearance, of
              (count in query * idf) * (tf' * (k1 + 1) / (tf' + norm))              tokens with tf' = 0 add nothing

rounded to 12 digits. A stopword token (`=word`, only in queries made of nothing else) is scored alike: its tf and df
come from `Tokenizer.stopwords`, lengths stay those of `Tokenizer.document`. A *keyword hit* is an allowed record with
bm25 > 0; a neighbour's word is enough.

**Vector score.** cosine = dot(q, v) / (|q| * |v|), q the float32 values of the query and v the stored row, both
widened to float64, norms computed from these same values; rounded to 12 digits. Order of summation is free. A record
without vector has no cosine (None), which is not 0. A query vector of all zeros never gets here.

**Arms.** The vector arm is on when the query has a vector and its weight is above 0, the keyword arm when it has
tokens and its weight is above 0. An arm that is on is *present* when at least one allowed record has a cosine, or is
a keyword hit. With no arm present the page is empty.

**Candidates.** The pool of an arm: its first POOL records, by rounded score descending, then id ascending (vector:
allowed records with a cosine, however low; keyword: hits). POOL does not depend on k. U is the union of the pools.
For every record of U both scores are exact: a cosine if it has a vector, bm25 even when it is 0. Scores of an absent
arm don't matter.

**Fusion** over U (`fuse`):

    unit(x) = (x - min) / (max - min) over the values of that arm in U; 1 for every value when max = min;
              0 for a record that has no cosine (it takes no part in min and max)
    s       = (wv * unit(cosine) + wk * unit(bm25)) / (wv + wk)       an absent arm's weight is 0, its unit is not used
    s       = s * (sqrt(activation) * factor)                         factor 1 unless the caller gives one per record
    final   = (s + p * best) / (1 + p)     best = highest s in U within the same scope and session, p = session prior
              s                            for a record without session id, and for all when context is off

rounded to 10 digits. Order: final descending, then id ascending. A sole hit scores 1 in every mode, whatever arms
there are. With `fusion="rrf"` (library only) unit(x) is 61 / (60 + rank), rank from 1 within the arm's values in U by
score descending, then id; only cosines and hits have ranks, all others 0. It measures worse (docs/ranking.md).

**Beyond U**, for pages longer than U: the rest R is every other allowed record with a cosine (if the vector arm is
on) or that is a hit. R is fused by the same formula, as if it were the union, both arms present that are present for
U, and follows U in that order. Its scores are lowered by one constant where needed to lie below U's last
(`continue_below`); they may be negative. So the page of k is always the beginning of the page of k + n.

**Similarity** (`min_score`, confidence): the higher of the cosine and the BM25 share, between 0 and 1, where

    share = min(1, bm25 / sum over distinct query tokens of (count * idf))

tokens of no record included: 1 means "as good as a record of average length holding every query word once". It compares
queries, as the final score cannot. The part of an arm that is off is 0.

**After fusion** in this order: re-rank (over U), confidence and `min_score` (over U, then R), cut to k.

Rounding (`rounded_score`, `rounded_final`): multiply, round half to even, divide; numpy.round computes the same.
Scores below these digits are noise of the order of summation.

Sources: Robertson & Zaragoza 2009 (BM25, idf with 1 + as in Lucene), Cormack et al. 2009 (RRF); docs/ranking.md.
"""

from __future__ import annotations

from math import log, sqrt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    #: id, cosine or None, bm25, boost, session: any hashable that tells (scope, session) apart, None for no session
    Candidate = tuple[int, float | None, float, float, Hashable]

K1 = 1.2
B = 0.75
POOL = 64
VECTOR_WEIGHT = 0.5
KEYWORD_WEIGHT = 0.5
NEIGHBOUR_WEIGHT = 0.5
SESSION_PRIOR_WEIGHT = 0.6
RRF_K = 60

SCORE_DIGITS = 12
FINAL_DIGITS = 10
_SCORE_SCALE = 10.0**SCORE_DIGITS
_FINAL_SCALE = 10.0**FINAL_DIGITS


class Weights:
    """Weights of one search. `neighbour` and `prior` are 0 when context is off. `fusion`: "weighted" or "rrf"."""

    __slots__ = ("fusion", "keyword", "neighbour", "prior", "vector")

    def __init__(
        self,
        vector: float = VECTOR_WEIGHT,
        keyword: float = KEYWORD_WEIGHT,
        neighbour: float = NEIGHBOUR_WEIGHT,
        prior: float = SESSION_PRIOR_WEIGHT,
        fusion: str = "weighted",
    ) -> None:
        self.vector, self.keyword, self.neighbour, self.prior, self.fusion = vector, keyword, neighbour, prior, fusion


def rounded_score(value: float) -> float:
    """A cosine or BM25 score rounded to SCORE_DIGITS."""
    return round(value * _SCORE_SCALE) / _SCORE_SCALE


def rounded_final(value: float) -> float:
    """A final score or similarity rounded to FINAL_DIGITS."""
    return round(value * _FINAL_SCALE) / _FINAL_SCALE


def idf(df: int, count: int) -> float:
    """Inverse document frequency of a token held by `df` of `count` records; above 0 for 0 <= df <= count."""
    return log(1.0 + (count - df + 0.5) / (df + 0.5))


def average_length(lengths: int, neighbour_lengths: int, count: int, neighbour: float) -> float:
    """avgdl from the two exact sums over all live records; 0.0 for no records."""
    return (lengths + neighbour * neighbour_lengths) / count if count else 0.0


def length_norm(length: float, average: float) -> float:
    """norm(d) of the module text for a smoothed length dl'."""
    return K1 * ((1.0 - B) + B * (length / average if average else 0.0))


def term_score(weight: float, frequency: float, norm: float) -> float:
    """One token's share of bm25: `weight` is count * idf, `frequency` the smoothed tf' above 0."""
    return weight * (frequency * (K1 + 1.0) / (frequency + norm))


def count_tokens(tokens: Iterable[str]) -> dict[str, int]:
    """Distinct tokens with their counts, in order of first appearance."""
    counts: dict[str, int] = {}
    for token in tokens:
        counts[token] = counts.get(token, 0) + 1
    return counts


def boost(activation: float, factor: float = 1.0) -> float:
    """What s is multiplied by. Raises ValueError for a negative activation."""
    return sqrt(activation) * factor


def similarity(cosine: float | None, bm25: float, ideal: float) -> float:
    """Raw similarity in [0, 1]; `ideal` is the sum of count * idf over the query's distinct tokens, 0.0 for none."""
    share = bm25 / ideal if ideal else 0.0
    return rounded_final(min(1.0, max(0.0, share, cosine or 0.0)))


def fuse(candidates: Sequence[Candidate], weights: Weights, *, vector: bool, keyword: bool) -> list[tuple[int, float]]:
    """(id, final score) of every candidate, best first. `vector`, `keyword`: whether that arm is present."""
    scale = _by_rank if weights.fusion == "rrf" else _min_max
    vector_weight = weights.vector if vector else 0.0
    keyword_weight = weights.keyword if keyword else 0.0
    total = vector_weight + keyword_weight
    if not total:
        return []
    cosines = scale([(row[0], row[1]) for row in candidates]) if vector else [0.0] * len(candidates)
    keywords = [0.0] * len(candidates)
    if keyword:
        hits_only = weights.fusion == "rrf"
        keywords = scale([(row[0], row[2] if row[2] or not hits_only else None) for row in candidates])
    scores = [
        (vector_weight * cosine + keyword_weight * bm25) / total * row[3]
        for row, cosine, bm25 in zip(candidates, cosines, keywords, strict=True)
    ]
    prior = weights.prior
    if prior:
        best: dict[Hashable, float] = {}
        for row, score in zip(candidates, scores, strict=True):
            if row[4] is not None and score > best.get(row[4], -1.0):
                best[row[4]] = score
        scores = [
            score if row[4] is None else (score + prior * best[row[4]]) / (1.0 + prior)
            for row, score in zip(candidates, scores, strict=True)
        ]
    return sorted(
        ((row[0], rounded_final(score)) for row, score in zip(candidates, scores, strict=True)),
        key=lambda hit: (-hit[1], hit[0]),
    )


def continue_below(ranked: Sequence[tuple[int, float]], rest: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """`rest` (best first) with its scores lowered to lie below the last of `ranked`; the order stays."""
    if not ranked or not rest or rest[0][1] < ranked[-1][1]:
        return list(rest)
    step = rest[0][1] - ranked[-1][1] + 1.0 / _FINAL_SCALE
    return [(id, rounded_final(score - step)) for id, score in rest]


def _min_max(values: Sequence[tuple[int, float | None]]) -> list[float]:
    known = [value for _, value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    if low == high:
        return [0.0 if value is None else 1.0 for _, value in values]
    span = high - low
    return [0.0 if value is None else (value - low) / span for _, value in values]


def _by_rank(values: Sequence[tuple[int, float | None]]) -> list[float]:
    order = sorted((-value, id) for id, value in values if value is not None)
    units = {id: (RRF_K + 1.0) / (RRF_K + rank) for rank, (_, id) in enumerate(order, 1)}
    return [units.get(id, 0.0) for id, _ in values]
