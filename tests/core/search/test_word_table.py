"""The word table against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.search import word_table
from clawmem_core.search.word_table import WordTable


class Words(dict[str, int]):
    """Word -> number in order of first appearance; `asked` counts the questions."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def ask(self, words: list[str]) -> list[int]:
        """The numbers of words."""
        self.asked += len(words)
        return [self.setdefault(word, len(self)) for word in words]


def check(texts: list[str]) -> Words:
    """Every text gives the numbers of its words; returns what was asked."""
    words = Words()
    table = WordTable(words.ask)
    for text in texts:
        found = table.numbers(text.encode()).tolist()
        assert [words[word] for word in text.split(" ") if word] == found
    return words


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("ab_0 ", max_size=60), max_size=8))
def test_numbers_are_those_of_a_dictionary(texts: list[str]) -> None:
    """Words of every length, at the edges of a text, between several spaces."""
    check(texts)


def test_words_that_differ_late_or_by_length_differ() -> None:
    """Up to, at and beyond the length the table holds."""
    words = [letter * size for size in (1, 7, 8, 9, 15, 16, 17, 40) for letter in "ab"]
    words += [word + "c" for word in words] + ["c" + word for word in words]
    check([" ".join(words), " ".join(reversed(words))])


def test_a_known_word_is_not_asked_for_again() -> None:
    """The table grows with them."""
    many = " ".join(f"w{number}" for number in range(20_000))
    words = Words()
    table = WordTable(words.ask)
    table.numbers(many.encode())
    assert 20_000 == words.asked
    table.numbers(many.encode())
    assert words.asked < 20_100  # a word that found no free place near its own may be asked for


def test_words_that_collide_keep_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if all of them belong in one place."""
    monkeypatch.setattr(WordTable, "_places", lambda self, low, high: np.zeros(len(low), np.int64))
    many = " ".join(f"w{number}" for number in range(100))
    words = check([many, many, f"new {many}"])
    assert 101 == len(words)
    assert words.asked > 2 * (100 - word_table._ROUNDS)


def test_a_text_of_few_words_asks_for_them_early() -> None:
    """What the first unknown words taught is used for the rest of the same text."""
    assert check([" ".join(["one", "two", "three"] * 10_000)]).asked <= word_table._ASKED
