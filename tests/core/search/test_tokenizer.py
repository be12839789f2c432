"""Tokens of texts: a table of committed pairs, and what holds for any text."""

from __future__ import annotations

import subprocess
import sys
import time
import unicodedata
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawmem_core.errors import InvalidInputError
from clawmem_core.search.stopwords import ENGLISH
from clawmem_core.search.tokenizer import MAX_WORD, Tokenizer, languages, parts, split, tokenizer

NFD = unicodedata.normalize("NFD", "Crème brûlée à Nîmes")

PAIRS = [
    # prose
    ("", ""),
    ("The quick brown foxes were jumping over lazy dogs.", "quick brown fox jump lazi dog"),
    ("Caroline went to the LGBTQ support group", "carolin went lgbtq support group"),
    ("Running, runner; runs!", "run runner run"),
    ("generously general generations", "generous general generat"),
    ("He skied, she skis, the skies", "ski ski sky"),
    ("dying lying tying", "die lie tie"),
    ("Mother-in-law's tongue", "mother law tongu"),
    # contractions and apostrophes
    ("don't", ""),
    ("Don’t you think she’ll go?", "think go"),
    ("we'd they've I'm can't won't isn't", ""),
    ("donʼt", ""),
    ("O'Brien's rock'n'roll", "o brien rock n roll"),
    ("the dogs' bowl", "dog bowl"),
    # stopwords and question words
    ("What is it?", ""),
    ("Who wrote that?", "wrote"),
    ("When did Melanie paint a sunrise?", "melani paint sunris"),
    ("to be or not to be", ""),
    # numbers, dates, times, money, versions
    ("2023-05-08", "2023 05 08"),
    ("8 May, 2023 at 1:56 pm", "8 may 2023 1 56 pm"),
    ("2024-01-01T00:00:00Z", "2024 01 01t00 00 00z"),
    ("3.14 and 1,000,000", "3 14 1 000 000"),
    ("$42.50 or 100%", "42 50 100"),
    ("v2.1.0-rc1", "v2 1 0 rc1"),
    ("call +49 30 1234567", "call 49 30 1234567"),
    ("١٢٣ १२३", "١٢٣ १२३"),
    ("x² ½ №5", "x2 1 2 no5"),
    # identifiers, paths, addresses
    ("snake_case", "snake_cas snake case"),
    ("parse_JSONFile", "parse_jsonfil pars json file"),
    ("getUserName()", "getusernam get user name"),
    ("HTTPServer", "httpserver http server"),
    ("utf8Decode", "utf8decod utf8 decod"),
    ("IDs, PhD, TVs and the USA", "id phd tvs usa"),
    ("MAX_RETRIES = 3", "max_retri max retri 3"),
    ("__init__ _private", "init privat"),
    ("_emphasis_ and ____", "emphasi"),
    ("is_valid", "is_valid valid"),
    ("src/clawmem_core/store.py", "src clawmem_cor clawmem core store py"),
    (r"C:\Users\ada\notes.txt", "c user ada note txt"),
    ("os.path.join", "os path join"),
    ("https://example.org/a?b=c#d", "https exampl org b c"),
    ("ada@example.org", "ada exampl org"),
    ("--top-k=5", "top k 5"),
    ("C++ C#", "c c"),
    ("<b>bold</b> &amp; **strong**", "b bold b amp strong"),
    # accents, case, compatibility forms
    ("CAFÉ Cafe\u0301 café", "café café café"),
    (NFD, "crème brûlée à nîmes"),
    ("Straße STRASSE", "strass strass"),
    ("ﬁne ﬂow", "fine flow"),
    ("Ｆｕｌｌ　Ｗｉｄｔｈ＿１", "full width_1 width 1"),
    ("ΣΊΣΥΦΟΣ σίσυφος", "σίσυφοσ σίσυφοσ"),
    ("soft\u00adhyphen", "softhyphen"),
    # scripts with marks and joiners
    ("हिन्दी में किताब", "हिन्दी में किताब"),
    ("தமிழ் மொழி", "தமிழ் மொழி"),
    ("می\u200cخواهم", "میخواهم"),
    ("שָׁלוֹם עולם", "שָׁלוֹם עולם"),
    ("Привет, МИР", "привет мир"),
    # scripts without spaces
    ("東京都", "東京 京都"),
    ("猫", "猫"),
    ("私は2020年に東京", "私は 2020 年に に東 東京"),
    ("カメラ ｶﾒﾗ", "カメ メラ カメ メラ"),
    ("한국어 공부", "한국 국어 공부"),
    ("ภาษาไทย", "ภา าษ ษา าไ ไท ทย"),
    # emoji and symbols
    ("party 🎉🎉 time!", "parti time"),
    ("👩‍💻 👍🏽 ❤️", ""),
    ("1️⃣ first", "1 first"),
    ("I ❤️ Rust → fast", "rust fast"),
    ("\u0301 lone mark", "lone mark"),
    ("nul\x00tab\tline\nend", "nul tab line end"),
]


@pytest.mark.parametrize(("text", "tokens"), PAIRS, ids=[ascii(text)[:30] for text, _ in PAIRS])
def test_pairs(text: str, tokens: str) -> None:
    """The committed pairs of english-1."""
    assert tokens.split() == tokenizer("english-1").document(text)


def test_there_are_sixty_pairs() -> None:
    """The table stays as large as promised."""
    assert len({text for text, _ in PAIRS}) >= 60


def test_plain_neither_drops_nor_stems() -> None:
    """plain-1 keeps stopwords and endings and still knows compounds."""
    assert ["the", "dogs", "don", "t", "run_fast", "run", "fast"] == tokenizer("plain").document(
        "The dogs don't run_fast"
    )


def test_other_languages_stem_without_stopwords() -> None:
    """A Snowball language by name."""
    assert ["die", "haus", "und", "gart"] == tokenizer("german-1").document("Die Häuser und Gärten")


def test_names_are_versioned() -> None:
    """A name without version is the newest one; unknown languages and versions are refused with what is known."""
    assert "english-1" == tokenizer("english").name == tokenizer().name
    assert tokenizer("english") is tokenizer("english-1")
    for name in ("klingon-1", "english-2", "english-", "", "plain-01"):
        with pytest.raises(InvalidInputError, match="english, plain"):
            tokenizer(name)
    assert languages()[:2] == ["english", "plain"]


def test_a_query_of_stopwords_keeps_them() -> None:
    """They come back marked, exactly as `stopwords` lists them for a record."""
    english = tokenizer()
    assert ["=the", "=who"] == english.query("The Who")
    assert ["=who", "=the"] == english.stopwords("Who likes THE band?")
    assert ["band"] == english.query("the band")
    assert [] == tokenizer("plain").stopwords("the who")


def test_contractions_drop_by_their_halves() -> None:
    """Every apostrophe form made of listed halves vanishes, with either apostrophe."""
    for head in ("i", "you", "he", "she", "it", "we", "they", "who", "what", "that", "there", "here", "let"):
        for tail in ("d", "ll", "m", "re", "s", "ve"):
            assert [] == tokenizer().document(f"{head}'{tail} {head}’{tail}".upper())


@given(st.text(max_size=60))
@example("İstanbul ŉ ǅ ͅ")
def test_any_text_gives_clean_tokens(text: str) -> None:
    """Tokens are never empty, hold no separator and are what their own text gives; queries agree with records."""
    plain = tokenizer("plain")
    tokens = plain.document(text)
    for token in tokens:
        assert token
        assert split(token) == [token]
        assert len(token) <= 4 * MAX_WORD
    assert tokens == plain.query(text)
    english = tokenizer()
    assert english.query(text) == (english.document(text) or english.stopwords(text))


@given(st.text(max_size=60))
def test_form_and_case_do_not_matter(text: str) -> None:
    """NFC and NFD of a text give the same tokens, and so do all-small and all-capital words without parts."""
    english = tokenizer()
    assert english.document(unicodedata.normalize("NFC", text)) == english.document(unicodedata.normalize("NFD", text))


@given(st.from_regex(r"[a-z]{1,10}(ing|ying|ed|ly|s|ies|ational|ization|ability|fulness|ement|y|e)?", fullmatch=True))
@example("skies")
@example("dying")
@example("only")
@example("mutability")
@example("hoping")
def test_the_prefix_test_never_loses_a_word(word: str) -> None:
    """A word starts with one of the prefixes of the stem it really has."""
    english = tokenizer()
    for token in english.document(word):
        assert word.startswith(english.prefixes(token))


def test_the_prefix_test_excludes() -> None:
    """It rules out words of another beginning, for English only."""
    assert ("melan",) == tokenizer().prefixes("melani")
    assert ("garden",) == tokenizer().prefixes("garden")
    assert ("di", "dy") == tokenizer().prefixes("die")
    assert ("",) == tokenizer("german").prefixes("garten")


def is_known_form(word: str) -> bool:
    """Whether a word is among the forms of its stem, or that has none."""
    english = tokenizer()
    (stem,) = english.stems([word])
    forms = english.forms(stem)
    return not forms or word in forms


def test_forms_of_short_stems_are_all() -> None:
    """Some 40,000 short words, and the exceptions that Snowball lists, are forms of their stems if these have any."""
    short = ["".join(letters) for size in range(1, 5) for letters in product("aeiouybdglnrst", repeat=size)]
    listed = ["skis", "skies", "sky", "dying", "lying", "tying", "idly", "gently", "ugly", "early", "only", "singly"]
    assert [word for word in short + listed if not is_known_form(word)] == []
    assert tokenizer().forms("go") and tokenizer().forms("sql") and not tokenizer().forms("garden")
    assert not tokenizer("german").forms("go") and not tokenizer().forms("x" * 17)


@given(st.from_regex(r"[a-z0-9é]{1,4}[aeiouy]{0,2}(ed|ing|ied|ies|y)?(ly)?s?(ational|er|able)?", fullmatch=True))
def test_words_of_short_stems_are_forms(word: str) -> None:
    """So is any longer word."""
    assert is_known_form(word)


@given(st.from_regex(r"[a-z0-9éß]{1,10}(ing|ed|s|ational|ization|fulness|ement|ogist|i)?[a-z0-9éß]?", fullmatch=True))
@example("skis")
@example("gently")
@example("logist")
def test_words_with_no_such_ending_are_their_own_stem(word: str) -> None:
    """A word ends with one of the letters, or stemming leaves it alone; other languages promise nothing."""
    english = tokenizer()
    assert word[-1] in english.endings or english.stems([word]) == [word]
    assert tokenizer("german").endings == tokenizer("plain").endings == ""


@pytest.mark.parametrize("text", ["각" * 700, "がぱ" * 500, "é" * 100 + " " + "ö" * 900, "x" * 255 + "ﾊﾟ" * 300])
def test_long_texts_normalise_as_whole(text: str) -> None:
    """The pieces long texts are normalised in never part what belongs together."""
    plain = tokenizer("plain")
    whole = unicodedata.normalize("NFKC", text)
    assert plain.document(whole) == plain.document(text) == plain.document(unicodedata.normalize("NFD", text))


def test_ordinary_words_have_no_parts() -> None:
    """Small, Title and CAPITAL words, and those with a capital last."""
    for word in ("word", "Word", "WORD", "PhD", "IDs", "A", "iX", "2nd", "B2B"):
        assert [] == parts(word)


def test_hostile_texts_stay_fast() -> None:
    """A million characters of the worst kinds are cut, not ground through."""
    worst = ["a" * 10**6, "_a" * 500_000, "aB" * 500_000, "\u0315\u0316" * 500_000, "é_" * 500_000, "猫" * 200_000]
    began = time.perf_counter()
    for text in worst:
        tokenizer().document(text)
    assert time.perf_counter() - began < 10


def test_the_cache_is_bounded() -> None:
    """Many different words do not accumulate without limit, and give the same tokens after it was emptied."""
    plain = tokenizer("plain")
    for start in range(0, 140_000, 1000):
        plain.document(" ".join(f"w{number}" for number in range(start, start + 1000)))
    assert len(plain._words) <= 1 << 16
    assert ["w1"] == plain.document("w1")


@given(
    st.lists(
        st.one_of(st.text("aA_1sé猫 ", max_size=6), st.sampled_from(["the", "The", "running", "x" * 129])), max_size=9
    )
)
@pytest.mark.parametrize("language", ["english", "plain", "german"])
def test_words_together_give_what_each_gives(language: str, texts: list[str]) -> None:
    """Simple words, compounds, stopwords, repeats, other scripts and long ones side by side."""
    words = [word for text in texts for word in split(text)]
    alone, together = Tokenizer(language), Tokenizer(language)
    assert [alone.word(word) for word in words] == together.words(words)
    assert [alone.word(word) for word in words] == together.words(words)


def test_words_together_do_not_fill_the_cache() -> None:
    """It is emptied before it gets too large."""
    plain = Tokenizer("plain")
    for start in range(0, 140_000, 4000):
        plain.words([f"w{number}" for number in range(start, start + 4000)])
        assert len(plain._words) <= 1 << 16


def test_stopwords_are_words() -> None:
    """Each entry is one case-folded word, so that it can ever match."""
    assert 149 == len(ENGLISH)
    assert all(split(word) == [word.casefold()] for word in ENGLISH)


def test_importing_it_costs_nothing() -> None:
    """A one-shot command loads the tokenizer without any of the slow modules."""
    slow = "re typing enum collections functools numpy json contextlib dataclasses"
    code = (
        "import sys; before = set(sys.modules); import clawmem_core.search.tokenizer as t;"
        f"t.tokenizer().document('Näh it'); print(sorted(set('{slow}'.split()) & (set(sys.modules) - before)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == shown.stdout.strip()
