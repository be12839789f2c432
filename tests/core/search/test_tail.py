"""tail.py: texts that no index holds are counted as the tokenizer would count them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawmem_core.model import Record
from clawmem_core.search import tail
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


def expected(name: str, text: str, wanted: list[str]) -> tuple[int, dict[str, int]]:
    """Length and counts of the wanted tokens by the tokenizer alone."""
    known = tokenizer(name)
    document = known.document(text)
    tokens = [*document, *known.stopwords(text)]
    return len(document), {token: tokens.count(token) for token in set(tokens) & set(wanted)}


@given(st.lists(TEXTS, max_size=4), TEXTS)
@example(["plaYing The who"], "play")
@example(["The WHO, the who", "nobody"], "The Who")
@pytest.mark.parametrize("name", [DEFAULT, "german-1", "plain-1"])
def test_texts_looked_at_together_are_counted_as_one_by_one(name: str, texts: list[str], query: str) -> None:
    """Lengths are exact, and so are the counts of the query's tokens, whatever case or script the words are in."""
    wanted = tokenizer(name).query(query)
    scanner = tail.Scanner(name, wanted)
    records = [Record(at, text, 0.0) for at, text in enumerate(texts)]
    lengths = scanner.lengths(records)
    for record, length in zip(records, lengths, strict=True):
        assert (length, scanner.counts(record)) == expected(name, record.chunk, wanted)


def test_long_tails_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail longer than one look gives every length once and in order; a replaced text is looked at again."""
    monkeypatch.setattr(tail, "TOGETHER", 3)
    records = [Record(at, "word " * at, 0.0) for at in range(8)]
    scanner = tail.Scanner(DEFAULT, ["word"])
    assert scanner.lengths(records) == list(range(8))
    records[5] = Record(5, "blue text", 0.0)
    assert scanner.lengths(records)[5] == 2
    assert scanner.counts(records[5]) == {} and scanner.counts(records[7]) == {"word": 7}
