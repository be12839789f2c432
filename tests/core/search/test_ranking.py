"""The shared formulas against hand-worked numbers, and the fusion against the brute-force oracle."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.search import ranking
from clawmem_core.search.ranking import Weights, continue_below, fuse
from clawmem_core.search.tokenizer import tokenizer
from tests.oracle import Oracle, OracleHit, OracleQuery, OracleRecord

WORDS = ["oak", "elm", "fir", "yew", "the", "who", "is"]


@st.composite
def stores(draw: st.DrawFn) -> list[OracleRecord]:
    """Small stores with ties, twins, empty texts, records without vector or session, and boosts."""
    records = []
    for number in range(draw(st.integers(0, 14))):
        text = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=5)))
        values = draw(st.none() | st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=3, max_size=3))
        vector = None if values is None or not any(values) else np.array(values, dtype=np.float16)
        session = draw(st.sampled_from([None, "a", "b"]))
        activation = draw(st.sampled_from([0.0, 0.5, 1.0, 4.0]))
        records.append(OracleRecord(number * 2, text, vector, session, activation, draw(st.sampled_from([1.0, 0.3]))))
    return records


queries = st.builds(
    OracleQuery,
    text=st.lists(st.sampled_from([*WORDS, "ash"]), max_size=4).map(" ".join),
    vector=st.none() | st.sampled_from([(1.0, 0.0, 0.0), (0.3, -1.0, 0.2)]),
    allowed=st.sampled_from([lambda record: True, lambda record: record.id % 4 == 0, lambda record: False]),
    vector_weight=st.sampled_from([0.5, 0.4, 0.0]),
    keyword_weight=st.sampled_from([0.5, 0.6, 0.0]),
    neighbour_weight=st.sampled_from([0.5, 0.0]),
    prior_weight=st.sampled_from([0.6, 0.0]),
    pool=st.sampled_from([1, 2, 64]),
    fusion=st.sampled_from(["weighted", "rrf"]),
)


def plain_search(records: list[OracleRecord], query: OracleQuery) -> list[OracleHit]:
    """The specification once more, record by record in plain Python over the shared formulas."""
    tokens = tokenizer()
    weights = Weights(
        query.vector_weight, query.keyword_weight, query.neighbour_weight, query.prior_weight, query.fusion
    )
    counts = [Counter(tokens.document(record.text) + tokens.stopwords(record.text)) for record in records]
    lengths = [len(tokens.document(record.text)) for record in records]
    around = []
    for row, record in enumerate(records):
        same = [at for at, other in enumerate(records) if other.session == record.session is not None]
        around.append([at for at in same if at < row][-1:] + [at for at in same if at > row][:1])
    beside = [sum(lengths[at] for at in rows) for rows in around]
    average = ranking.average_length(sum(lengths), sum(beside), len(records), weights.neighbour)
    wanted = ranking.count_tokens(tokens.query(query.text) if query.keyword_weight else [])
    idfs = {
        token: repeats * ranking.idf(sum(token in own for own in counts), len(records))
        for token, repeats in wanted.items()
    }
    cosines: dict[int, float | None] = {}
    keywords: dict[int, float] = {}
    for row, record in enumerate(records):
        norm = ranking.length_norm(lengths[row] + weights.neighbour * beside[row], average)
        score = 0.0
        for token, weight in idfs.items():
            tf = counts[row][token] + weights.neighbour * sum(counts[at][token] for at in around[row])
            score += ranking.term_score(weight, tf, norm) if tf else 0.0
        keywords[row] = ranking.rounded_score(score)
        cosines[row] = None
        if query.vector is not None and query.vector_weight and record.vector is not None:
            asked = [float(np.float32(value)) for value in np.asarray(query.vector)]
            stored = [float(value) for value in np.asarray(record.vector)]
            dot = sum(a * b for a, b in zip(asked, stored, strict=True))
            size = math.sqrt(sum(a * a for a in asked)) * math.sqrt(sum(b * b for b in stored))
            cosines[row] = ranking.rounded_score(dot / size)
    allowed = [row for row, record in enumerate(records) if query.allowed(record)]
    near = sorted((row for row in allowed if cosines[row] is not None), key=lambda row: (-(cosines[row] or 0.0), row))
    hits = sorted((row for row in allowed if keywords[row] > 0), key=lambda row: (-keywords[row], row))
    union = set(near[: query.pool]) | set(hits[: query.pool])

    def ranked(rows: set[int]) -> list[tuple[int, float]]:
        return fuse(
            [
                (records[row].id, cosines[row], keywords[row],
                 ranking.boost(records[row].activation, records[row].factor), records[row].session)
                for row in sorted(rows)
            ],
            weights, vector=bool(near), keyword=bool(hits),
        )  # fmt: skip

    first = ranked(union)
    rest = ranked((set(near) | set(hits)) - union)
    ideal = sum(idfs.values())
    row_of = {record.id: row for row, record in enumerate(records)}
    return [
        OracleHit(id, score, ranking.similarity(cosines[row_of[id]], keywords[row_of[id]], ideal))
        for id, score in first + continue_below(first, rest)
    ]


@settings(max_examples=150, deadline=None)
@given(stores(), queries)
def test_fusion_equals_the_oracle(records: list[OracleRecord], query: OracleQuery) -> None:
    """Formulas and oracle, written apart from the same text, agree to the last digit."""
    assert Oracle(records).search(query) == plain_search(records, query)


@settings(max_examples=60, deadline=None)
@given(stores(), queries)
def test_the_oracle_is_ordered(records: list[OracleRecord], query: OracleQuery) -> None:
    """Scores fall, ties go to the lower id, nothing comes twice, only allowed records come."""
    hits = Oracle(records).search(query)
    assert sorted(hits, key=lambda hit: (-hit.score, hit.id)) == hits
    assert len({hit.id for hit in hits}) == len(hits)
    assert {hit.id for hit in hits} <= {record.id for record in records if query.allowed(record)}
    assert all(0 <= hit.similarity <= 1 for hit in hits)


def test_bm25_by_hand() -> None:
    """Three records, one session of two: every number worked out on paper."""
    records = [
        OracleRecord(0, "oak elm", session="s"),
        OracleRecord(1, "fir fir", session="s"),
        OracleRecord(2, "oak"),
    ]
    scores, ideal = Oracle(records).bm25(["oak", "oak"], 0.5)
    weight = 2 * math.log(1 + 1.5 / 2.5)
    average = (5 + 0.5 * 4) / 3
    expected = [
        weight * (tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / average)))
        for tf, length in ((1.0, 3.0), (0.5, 3.0), (1.0, 1.0))
    ]
    assert pytest.approx(expected, abs=1e-12) == scores
    assert pytest.approx(weight) == ideal


def test_a_sole_hit_is_a_full_match() -> None:
    """One candidate scores 1 with either arm, both, in a session or not."""
    for vector, keyword in ((True, False), (False, True), (True, True)):
        for session in (None, "s"):
            for fusion in ("weighted", "rrf"):
                given_one = [(7, 0.2, 3.0, 1.0, session)]
                assert [(7, 1.0)] == fuse(given_one, Weights(fusion=fusion), vector=vector, keyword=keyword)


def test_equal_scores_count_as_one() -> None:
    """Twins share the full score, in id order."""
    twins = [(9, 0.4, 2.0, 1.0, None), (3, 0.4, 2.0, 1.0, None)]
    assert [(3, 1.0), (9, 1.0)] == fuse(twins, Weights(), vector=True, keyword=True)


def test_no_vector_is_not_cosine_zero() -> None:
    """A record without vector gets nothing from that arm and does not move its range."""
    rows = [(0, 0.2, 0.0, 1.0, None), (1, 0.6, 0.0, 1.0, None), (2, None, 5.0, 1.0, None)]
    assert [(1, 0.5), (2, 0.5), (0, 0.0)] == fuse(rows, Weights(), vector=True, keyword=True)


def test_session_prior() -> None:
    """A weak record of a strong session passes a middling one of no session."""
    rows = [(0, 1.0, 0.0, 1.0, "s"), (1, 0.2, 0.0, 1.0, "s"), (2, 0.4, 0.0, 1.0, None), (3, 0.0, 0.0, 1.0, None)]
    order = fuse(rows, Weights(), vector=True, keyword=False)
    assert [(0, 1.0), (1, 0.5), (2, 0.4), (3, 0.0)] == order
    assert [0, 2, 1, 3] == [id for id, _ in fuse(rows, Weights(prior=0.0), vector=True, keyword=False)]


def test_activation_and_factor_multiply_before_the_prior() -> None:
    """sqrt(activation) * factor scales s; a record's session gains from the scaled value."""
    rows = [(0, 1.0, 0.0, ranking.boost(4.0, 0.5), None), (1, 1.0, 0.0, ranking.boost(0.25), None)]
    assert [(0, 1.0), (1, 0.5)] == fuse(rows, Weights(), vector=True, keyword=False)


def test_a_full_weight_on_one_arm() -> None:
    """Weights need not sum to 1; an arm of weight 0 has no say; no arm gives no page."""
    rows = [(0, 1.0, 0.0, 1.0, None), (1, 0.0, 9.0, 1.0, None)]
    assert [(0, 1.0), (1, 0.0)] == fuse(rows, Weights(3.0, 0.0), vector=True, keyword=True)
    assert [] == fuse(rows, Weights(), vector=False, keyword=False)


def test_scores_go_on_below() -> None:
    """The rest keeps its order and lies strictly under the last of the union."""
    after = continue_below([(0, 0.9), (1, 0.4)], [(5, 0.7), (6, 0.1)])
    assert [(5, 0.3999999999), (6, -0.2000000001)] == after
    assert [(5, 0.1)] == continue_below([(0, 0.4)], [(5, 0.1)])
    assert [(5, 0.1)] == continue_below([], [(5, 0.1)])


@given(st.floats(-1e3, 1e3))
def test_rounding_is_numpys(value: float) -> None:
    """Plain Python and numpy round to the same bits."""
    assert float(np.round(value, 12)) == ranking.rounded_score(value)
    assert float(np.round(value, 10)) == ranking.rounded_final(value)


def test_similarity_is_absolute() -> None:
    """The higher of cosine and BM25 share, between 0 and 1."""
    assert 0.7 == ranking.similarity(0.7, 1.0, 4.0)
    assert 0.25 == ranking.similarity(-0.3, 1.0, 4.0)
    assert 1.0 == ranking.similarity(None, 9.0, 4.0)
    assert 0.0 == ranking.similarity(None, 0.0, 0.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(WORDS)), max_size=10))
def test_order_across_sessions_does_not_matter(turns: list[tuple[str, str]]) -> None:
    """Records of a session keep their order; how sessions interleave changes no score."""
    texts = [(session, f"{word} number{at}") for at, (session, word) in enumerate(turns)]
    grouped = sorted(texts, key=lambda turn: turn[0])
    pages = []
    for order in (texts, grouped):
        oracle = Oracle([OracleRecord(at, text, session=session) for at, (session, text) in enumerate(order)])
        hits = oracle.search(OracleQuery("oak elm elm"))
        pages.append(sorted((order[hit.id], hit.score) for hit in hits))
    assert pages[0] == pages[1]
