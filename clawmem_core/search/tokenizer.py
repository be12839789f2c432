"""From text to index tokens, the same way for records and queries. Loaded by one-shot commands: imports nothing.

The steps, in order (tokenizers `english-1`, `plain-1`, `german-1`, ... of every Snowball language):

1. NFKC. Variation selectors, joiners and soft hyphens vanish (they change looks, not words).
2. A word is a run of letters, marks, digits and underscores. Everything else separates, apostrophes included: both
   halves of a contraction are stopwords ("don't" is `don` and `t`). A word starts with no mark and neither starts nor
   ends with an underscore; what is left empty is no word. Of a word longer than 128 characters the first 128 count.
3. Scripts written without spaces (Han, kana, Hangul, Thai, Lao, Myanmar, Khmer) give overlapping pairs of characters
   for each run; a run of one character stays.
4. A compound word (`snake_case`, `CamelCase`, `HTTPServer`) gives itself and then its parts. Paths and dotted names are
   already cut at their separators: searched whole they match by all their parts. Words in lower case, Title case,
   CAPITALS or with a capital last (`PhD`, `IDs`) have no parts, so ordinary prose gives exactly one token a word.
5. Case folding.
6. `english` drops stopwords (`stopwords.py`) and stems by Snowball English; other languages stem only; `plain` neither.

Stopwords are kept aside under names no word can have (`=the`): `document` and the length of a record never hold them,
`stopwords` lists them, and `query` falls back to them when a query has nothing else, so that "The Who" still finds.

Invariants: a tokenizer name with its version fixes every token (up to the Unicode version of the interpreter, which
matters for newly assigned characters only); `query(text) == document(text)` unless the latter is empty. Memory is
bounded whatever the input: the word cache by count and word length, normalisation by pieces (it is quadratic in runs of
combining marks).

Sources: Unicode UAX #15 (NFKC), UAX #29 (words, in spirit), Lucene's CJK bigrams, Snowball (Porter 2001).
"""

from __future__ import annotations

from itertools import chain, pairwise

from clawmem_core.errors import InvalidInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
DEFAULT = "english-1"
STOPWORD_MARK = "="
MAX_WORD = 128

_CACHED_WORDS = 1 << 16
_CACHED_WORD_LENGTH = 64
_LONGEST_WITH_FORMS = 16  # of a longer token the word may have been cut
_ENDINGS_OF_SHORT_STEMS = ("", "d", "s", "es", "ed", "eds", "edly", "edlys", "ing", "ings", "ingly", "inglys")
_PIECE = 256
_STREAM_SAFE = 32  # no real text has a longer run of combining marks (UAX #15, stream-safe format: 30)

_SMALL, _SPACE = "abcdefghijklmnopqrstuvwxyz", " "
#: letters, digits and underscores of ASCII stay, everything else separates
_ASCII = _SPACE * 48 + "0123456789" + _SPACE * 7 + _SMALL.upper() + _SPACE * 4 + "_" + _SPACE + _SMALL + _SPACE * 5
_IGNORED = frozenset(
    (0xAD, 0x34F, *range(0x180B, 0x1810), *range(0x200C, 0x2010), *range(0x2060, 0x2065), 0x20E3, 0xFEFF)
)
_VARIATION_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_APOSTROPHE_LETTER = 0x2BC
_UNSPACED = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0),  # Myanmar
    range(0x1780, 0x1800),  # Khmer
    range(0x3005, 0x3008),  # ideographic iteration marks and zero
    range(0x3040, 0x3130),  # hiragana, katakana, bopomofo
    range(0x31A0, 0x3200),  # bopomofo and katakana extensions
    range(0x3400, 0x4DC0),  # Han extension A
    range(0x4E00, 0xA000),  # Han
    range(0xAC00, 0xD7B0),  # Hangul syllables
    range(0xF900, 0xFB00),  # Han compatibility
    range(0x20000, 0x32000),  # Han extensions B and later
)


class Tokenizer:
    """One versioned tokenizer with its word cache. Get one from `tokenizer`; share it freely within a process."""

    __slots__ = ("_unstemmed", "_words", "name")

    def __init__(self, language: str) -> None:
        self.name = f"{language}-{VERSION}"
        self._words = _WordCache(language)
        self._unstemmed: dict[str, tuple[str, ...]] = {}

    def document(self, text: str) -> list[str]:
        """Index tokens of a record's text in order, repeats kept. Their number is the record's length."""
        return list(chain.from_iterable(map(self._words.__getitem__, split(text))))

    def word(self, word: str) -> tuple[str, ...]:
        """Index tokens of one word as `split` gives it."""
        return self._words[word]

    def words(self, words: list[str]) -> list[tuple[str, ...]]:
        """The same of some thousand words, in a third of the time."""
        return self._words.together(words)

    def unstemmed(self, text: str) -> list[str]:
        """The words whose `stems` are `document(text)`, and the text's stopwords."""
        known, found = self._unstemmed, list[str]()
        for word in split(text):
            words = known.get(word)
            if words is None:
                words = self._words.unstemmed(word)
                folded = word.casefold()
                if folded in self._words.dropped:
                    words = *words, folded
                if len(word) <= _CACHED_WORD_LENGTH:
                    if len(known) >= _CACHED_WORDS:
                        known.clear()
                    known[word] = words
            found += words
        return found

    def stems(self, words: list[str]) -> list[str]:
        """The token of each word of `unstemmed` that is no stopword."""
        return self._words.stems(words)

    def stopwords(self, text: str) -> list[str]:
        """The stopwords of a text, repeats kept, each as `=word`; empty for tokenizers without a stopword list."""
        dropped = self._words.dropped
        if not dropped:
            return []
        return [STOPWORD_MARK + word for word in map(str.casefold, split(text)) if word in dropped]

    def query(self, text: str) -> list[str]:
        """Tokens a query is scored by, repeats kept: `document(text)`, or `stopwords(text)` when that is empty."""
        return self.document(text) or self.stopwords(text)

    @property
    def dropped(self) -> frozenset[str]:
        """Case-folded stopwords that documents drop; empty without a stopword list."""
        return self._words.dropped

    def prefixes(self, token: str) -> tuple[str, ...]:
        """Every single case-folded word without parts that gives `token` starts with one of these.

        A scanner of unindexed text asks for them before it pays for stemming. Snowball English changes at most the last
        letter of a stem, and only to i, e, l or y (`mutability` gives `mutabl`), but `dying` gives `die`; checked with
        2.4 million words. Other languages get no promise.
        """
        if self.name != DEFAULT:
            return ("",)
        if token.endswith("ie"):
            return token[:-1], token[:-2] + "y"
        return (token[:-1] if token[-1] in "iely" else token,)

    def forms(self, token: str) -> list[str]:
        """Every simple word that may give `token`, where they are few; else none, and `prefixes` must do.

        In a stem like `go`, `ski`, `tree` or `sql` no vowel is followed by a consonant. Snowball English takes from
        words that begin with such a stem no suffix that must lie in R1 (it would leave more), so only those of steps
        1a to 1c and the listed exceptions lead to it.
        """
        closed = any(one in "aeiouy" and other not in "aeiou" for one, other in pairwise(token))
        if self.name != DEFAULT or closed or len(token) > _LONGEST_WITH_FORMS:
            return []
        bases = [token]
        if token.endswith("i"):
            bases.append(f"{token[:-1]}y")
        elif token.endswith("ie"):
            bases.append(f"{token[:-2]}y")
        found = [base + ending for base in bases for ending in _ENDINGS_OF_SHORT_STEMS]
        if token.endswith("y"):
            found.append(f"{token[:-1]}ies")
        return found

    @property
    def endings(self) -> str:
        """Letters one of which every simple word ends with that is not its own stem; "" for no promise.

        The suffixes of Snowball English end with them, and so do the words that it lists as exceptions.
        """
        return "cdegilmnrsty" if self.name == DEFAULT else ""


def tokenizer(name: str = DEFAULT) -> Tokenizer:
    """The tokenizer of a versioned name (`english-1`) or of its newest version (`english`).

    Raises InvalidInputError for a language Snowball does not know or a version this release does not have.
    """
    known = _LOADED.get(name)
    if known is None:
        language, dash, version = name.partition("-")
        supported = language in ("english", "plain") or language in languages()
        if not supported or (dash and version != str(VERSION)):
            raise InvalidInputError(
                field="tokenizer", detail=f"{name!r} is unknown; known are {', '.join(languages())}, version {VERSION}"
            )
        known = _LOADED.setdefault(f"{language}-{VERSION}", Tokenizer(language))
        _LOADED[name] = known
    return known


def languages() -> list[str]:
    """Names a tokenizer can have, without the version: english, plain, then Snowball's other languages by name."""
    import Stemmer

    return ["english", "plain", *sorted(set(Stemmer.algorithms()) - {"english"})]


def split(text: str) -> list[str]:
    """Words of a text in their own case (steps 1 and 2, except for what only shows within a word)."""
    if text.isascii():
        return text.translate(_ASCII).split()
    return _normalised(text).translate(_SEPARATORS).split()


_LOADED: dict[str, Tokenizer] = {}


class _WordCache(dict[str, tuple[str, ...]]):
    """Word in its own case -> its tokens, computed on first sight. Emptied when full, long words never kept."""

    __slots__ = ("_language", "_stem", "dropped")

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language
        self._stem: Callable[[list[str]], list[str]] | None = None
        self.dropped: frozenset[str] = frozenset()
        if language == "english":
            from clawmem_core.search.stopwords import ENGLISH

            self.dropped = ENGLISH

    def __missing__(self, word: str) -> tuple[str, ...]:
        tokens = tuple(self.stems(list(self.unstemmed(word))))
        if len(word) <= _CACHED_WORD_LENGTH:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[word] = tokens
        return tokens

    def unstemmed(self, word: str) -> tuple[str, ...]:
        """Steps 3 to 5 and the stopwords of step 6, for a word as `split` gives it."""
        if _is_simple(word):
            return () if word in self.dropped else (word[:MAX_WORD],)
        return tuple(chain.from_iterable(map(self._run_words, runs(word))))

    def together(self, words: list[str]) -> list[tuple[str, ...]]:
        """The tokens of each word; those in plain lower case are stemmed in one call."""
        simple = [word for word in words if word not in self and len(word) <= _CACHED_WORD_LENGTH and _is_simple(word)]
        simple = [word for word in simple if word not in self.dropped]
        if len(self) + len(simple) > _CACHED_WORDS:
            self.clear()
        self.update(zip(simple, zip(self.stems(simple), strict=True), strict=True))
        return list(map(self.__getitem__, words))

    def _run_words(self, run: str) -> list[str]:
        if _UNSPACED_CHARS[run[0]]:
            return [first + second for first, second in pairwise(run)] or [run]
        whole = _trimmed(run)
        folded = [_folded(word) for word in (whole, *parts(whole))]
        return [word for word in folded if word and word not in self.dropped]

    def stems(self, words: list[str]) -> list[str]:
        """The stem of each folded word; the word itself in a tokenizer that does not stem, and in unspaced scripts."""
        if self._language == "plain":
            return words
        if self._stem is None:
            import Stemmer

            self._stem = Stemmer.Stemmer(self._language, 0).stemWords
        return self._stem(words)


def _is_simple(word: str) -> bool:
    """Whether a word is in small ASCII letters and has no parts, as most are."""
    return word.isascii() and word.islower() and "_" not in word


class _Separators(dict[int, int | None]):
    """Translation table of non-ASCII text, filled on demand: words stay, separators become spaces, the rest goes."""

    def __missing__(self, code: int) -> int | None:
        import unicodedata

        char = chr(code)
        kept: int | None = 32
        if code in _IGNORED or any(code in selectors for selectors in _VARIATION_SELECTORS):
            kept = None
        elif code == 95 or (unicodedata.category(char)[0] in "LMN" and code != _APOSTROPHE_LETTER):
            kept = code
        if len(self) < _CACHED_WORDS:
            self[code] = kept
        return kept


class _UnspacedChars(dict[str, bool]):
    """Character -> whether its script is written without spaces, filled on demand."""

    def __missing__(self, char: str) -> bool:
        code = ord(char)
        unspaced = code >= 0x0E00 and any(code in block for block in _UNSPACED)
        if len(self) < _CACHED_WORDS:
            self[char] = unspaced
        return unspaced


_SEPARATORS = _Separators()
_UNSPACED_CHARS = _UnspacedChars()


def _normalised(text: str) -> str:
    """NFKC, long texts in pieces."""
    from unicodedata import normalize

    if len(text) <= _PIECE:
        return normalize("NFKC", text)
    pieces = []
    start = 0
    while start < len(text):
        end = _cut(text, start, start + _PIECE) if start + _PIECE < len(text) else len(text)
        pieces.append(normalize("NFKC", text[start:end]))
        start = end
    return "".join(pieces)


def _cut(text: str, start: int, end: int) -> int:
    """Where to end a piece: before a space, or between characters that do not act on each other, or at `end`."""
    from unicodedata import combining, normalize

    space = text.rfind(" ", start + 1, end)
    if space > start:
        return space
    for at in range(end, end - _STREAM_SAFE, -1):
        before, after = text[at - 1], text[at]
        apart = normalize("NFKC", before) + normalize("NFKC", after)
        if not combining(after) and normalize("NFKC", before + after) == apart:
            return at
    return end


def _folded(word: str) -> str:
    """Case folding that ends in NFKC again (the folding of a few letters leaves it)."""
    if word.isascii():
        return word.lower()
    from unicodedata import normalize

    return normalize("NFKC", word.casefold())


def _trimmed(run: str) -> str:
    """A run without leading marks and outer underscores, cut to MAX_WORD."""
    run = run[:MAX_WORD].strip("_")
    if run.isascii():
        return run
    from unicodedata import category

    start = 0
    while start < len(run) and (run[start] == "_" or category(run[start])[0] == "M"):
        start += 1
    return run[start:]


def runs(word: str) -> list[str]:
    """A word cut where it changes between a script written without spaces and any other."""
    if word.isascii():
        return [word]
    unspaced = list(map(_UNSPACED_CHARS.__getitem__, word))
    if True not in unspaced:
        return [word]
    found: list[str] = []
    start = 0
    for at in range(1, len(word)):
        if unspaced[at] != unspaced[at - 1]:
            found.append(word[start:at])
            start = at
    found.append(word[start:])
    return found


def parts(word: str) -> list[str]:
    """The parts of a compound word in its own case; empty for a simple word.

    A part begins after underscores, at a capital that follows a small letter or digit and is itself followed by a
    letter or digit (`userName`), and at the last capital of several when two small letters follow (`HTTPServer`).
    """
    found: list[str] = []
    for piece in word.split("_"):
        start = 0
        if not (piece.islower() or piece.isupper()):
            for at in range(1, len(piece) - 1):
                if piece[at].isupper() and (
                    not piece[at - 1].isupper() or (piece[at + 1].islower() and piece[at + 2 : at + 3].islower())
                ):
                    found.append(piece[start:at])
                    start = at
        if piece[start:]:
            found.append(piece[start:])
    return found if len(found) > 1 else []
