"""The incremental index equals a fresh one, and the public reference scores."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.search.bm25 import Bm25Index
from clawmem_core.search.tokenizer import tokenizer
from tests.oracle import Oracle, OracleRecord

DATA = Path(os.environ.get("CLAWMEM_EVAL_DATA", ""))
WORDS = st.sampled_from(["oak", "elm", "fir", "yew", "ash"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "update", "remove"]), st.integers(0, 5), st.lists(WORDS, max_size=6)), max_size=40
)


def fresh(held: dict[int, list[str]]) -> Bm25Index:
    """An index built in one go."""
    index = Bm25Index()
    for id, tokens in sorted(held.items()):
        index.add(id, tokens)
    return index


@settings(max_examples=100, deadline=None)
@given(STEPS, st.lists(WORDS, min_size=1, max_size=4))
def test_any_history_equals_a_fresh_build(steps: list[tuple[str, int, list[str]]], query: list[str]) -> None:
    """To the last bit, after any sequence of changes; a wrong id is refused and changes nothing."""
    index, held = Bm25Index(), dict[int, list[str]]()
    for step, id, tokens in steps:
        if (step == "add") == (id in held):
            with pytest.raises(KeyError):
                index.remove(id) if step == "remove" else getattr(index, step)(id, tokens)
            continue
        if step == "remove":
            index.remove(id)
            del held[id]
        else:
            getattr(index, step)(id, tokens)
            held[id] = tokens
    assert len(held) == len(index)
    assert fresh(held).scores(query) == index.scores(query)
    assert fresh(held).ideal(query) == index.ideal(query)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=8), st.lists(WORDS, min_size=1, max_size=4))
def test_it_equals_the_oracle(texts: list[list[str]], query: list[str]) -> None:
    """The brute-force scores without neighbours are the same numbers."""
    index = fresh(dict(enumerate(texts)))
    oracle = Oracle([OracleRecord(id, " ".join(words)) for id, words in enumerate(texts)], tokenizer("plain"))
    scores, ideal = oracle.bm25(query, 0.0)
    assert {id: float(score) for id, score in enumerate(scores) if score > 0} == index.scores(query)
    assert ideal == pytest.approx(index.ideal(query))


def test_by_hand() -> None:
    """One hit of average length: idf alone. A query word named twice counts twice."""
    index = fresh({1: ["oak", "elm"], 2: ["fir", "yew"]})
    assert {1: pytest.approx(math.log(2))} == index.scores(["oak"])
    assert {1: pytest.approx(2 * math.log(2))} == index.scores(["oak", "oak"])
    assert {} == index.scores(["ash"]) == Bm25Index().scores(["ash"])
    assert 1 in index and 3 not in index


def test_top_breaks_ties_by_id() -> None:
    """Equal scores come in id order, whatever the order of adding."""
    index = Bm25Index()
    for id in (5, 3, 9):
        index.add(id, ["oak"])
    assert [3, 5] == [id for id, _ in index.top(["oak"], 2)]
    assert [] == index.top(["oak"], 0)


@pytest.mark.skipif(not (DATA / "cranfield").is_dir(), reason="CLAWMEM_EVAL_DATA has no cranfield folder")
@pytest.mark.parametrize("reference", ["none", "stop_snow"])
def test_the_cranfield_references(reference: str) -> None:
    """The scores of both public reference files, to 1e-4."""
    folder = DATA / "cranfield"
    documents = [json.loads(line) for line in (folder / "docs.jsonl").read_text("utf-8").splitlines()]
    split = tokenizer().document if reference == "stop_snow" else lambda text: re.findall(r"\w+", text.lower())
    index = fresh({document["id"]: split(document["text"]) for document in documents})
    for line in (folder / f"bm25_ref_{reference}.jsonl").read_text("utf-8").splitlines():
        wanted = json.loads(line)
        scores = index.scores(wanted["tokens"])
        assert max(abs(scores[id] - score) for id, score in wanted["top"]) < 1e-4
        assert [id for id, _ in wanted["top"]] == [id for id, _ in index.top(wanted["tokens"], len(wanted["top"]))]
