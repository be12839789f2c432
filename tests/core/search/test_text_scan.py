"""text_scan.py: texts that no index holds are counted as the tokenizer would count them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawmem_core.model import Record
from clawmem_core.search import text_scan
from clawmem_core.search.tokenizer import DEFAULT, tokenizer

PIECES = (
    "play", "plays", "playing", "plaYing", "PLAY", "Playful", "playIng", "player_one", "_play_", "the", "The", "THE",
    "who", "it's", "don't", "HTTPServer", "userName", "x" * 200, "dying", "die", "mutability", "Ünïcode", "ſo",
    "Straße", "日本語", "ﬁne", "2024", "v2", "PhD", "IDs", "a", "I", "K", "e\u0301cole", "—", "’s", "İ",
)  # fmt: skip
WORDS = st.one_of(st.sampled_from(PIECES), st.text(max_size=6))
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from((" ", "", "-", "\n", "_"))), max_size=12).map(
    lambda pairs: "".join(word + gap for word, gap in pairs)
)


def expected(name: str, texts: list[str], wanted: list[str]) -> tuple[list[int], dict[str, list[int]]]:
    """Lengths of texts and their counts of the wanted tokens, by the tokenizer alone."""
    known = tokenizer(name)
    documents = [known.document(text) for text in texts]
    tokens = [document + known.stopwords(text) for document, text in zip(documents, texts, strict=True)]
    return list(map(len, documents)), {token: [found.count(token) for found in tokens] for token in wanted}


@given(st.lists(TEXTS, max_size=4), TEXTS)
@example(["plaYing The who"], "play")
@example(["The WHO, the who", "nobody"], "The Who")
@example(["x" * 200], "x" * 200)
@example(["ß" * 70, "s" * 140], "ß" * 70)
@example(["ß" * 64 + "x", "s" * 129], "ß" * 64)
@example(["be being beings", "to be or not to be"], "beings")
@example(["play\0plays played", "play"], "play")
@example(["a\0b"], "b")
@pytest.mark.parametrize("name", [DEFAULT, "german-1", "plain-1"])
def test_texts_looked_at_together_are_counted_as_one_by_one(name: str, texts: list[str], query: str) -> None:
    """Lengths are exact, and so are the counts of the query's tokens, whatever case or script the words are in."""
    wanted = tokenizer(name).query(query)
    records = [Record(at, text, 0.0) for at, text in enumerate(texts)]
    for scanner in (text_scan.QueryScanner(name, wanted), text_scan.KeptScanner(name, {})):
        found = scanner.lengths(records), {token: scanner.frequencies(token) for token in wanted}
        assert found == expected(name, texts, wanted)


def test_long_tails_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail longer than one look gives every length and frequency once and in order."""
    monkeypatch.setattr(text_scan, "TOGETHER", 3)
    scanner = text_scan.QueryScanner(DEFAULT, ["word"])
    for many in (8, 9):
        assert scanner.lengths([Record(at, "word " * at, 0.0) for at in range(many)]) == list(range(many))
        assert scanner.frequencies("word") == list(range(many))


def test_kept_counts_follow_a_replaced_text() -> None:
    """A text that was replaced since is counted again; the others are not."""
    known: dict[int, text_scan.Counted] = {}
    records = [Record(at, "word " * at, 0.0) for at in range(3)]
    assert text_scan.KeptScanner(DEFAULT, known).lengths(records) == [0, 1, 2]
    kept = known[1]
    records[2] = Record(2, "blue red text", 0.0)
    scanner = text_scan.KeptScanner(DEFAULT, known)
    assert scanner.lengths(records) == [0, 1, 3] and known[1] is kept
    assert scanner.frequencies("word") == [0, 1, 0]
