"""Lengths of texts that no index holds, and how often they hold a query's tokens. Loaded by one-shots.

A scanner is given all texts beside the index and then asked for tokens. `QueryScanner` serves one query of a one-shot
search, which needs all lengths but only the frequencies of its own tokens; `KeptScanner` serves a process that searches
again.

Invariant: both answer as `Tokenizer.document` and `Tokenizer.stopwords` of each text would.
"""

from __future__ import annotations

from itertools import repeat

from clawmem_core.search.tokenizer import MAX_WORD, STOPWORD_MARK, tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from clawmem_core.model import Record

    Counted = tuple[str, int, dict[str, int]]

TOGETHER = 1000  # texts whose words are looked at together
MOST_TOKENS = 250  # tokens a QueryScanner can be asked for

_OTHER, _STOPWORD, _FIRST = 0, 1, 2  # codes of words; those from _FIRST on are asked for
_END = 255
_MARK = "\0"  # between two texts
_GAP = f" {_MARK} "

#: small letters, digits and the mark stay, capitals become small, everything else separates
_WORDS = bytes(ord(chr(code).lower()) if chr(code).isalnum() or not code else 32 for code in range(128)) + bytes(128)
#: what tells compound words: small letters and digits are `a`, capitals `A`, everything else separates
_KINDS = bytes(65 if 65 <= code <= 90 else 97 if chr(code).isalnum() else 32 for code in range(128)) + bytes(128)


class QueryScanner:
    """Looks for the tokens of one query.

    A text becomes a row of codes, one byte a word. Words that can give none of the tokens (`Tokenizer.prefixes`) are
    never stemmed, the others once and together.
    """

    __slots__ = ("_codes", "_rows", "_stop_codes", "tokenizer")

    def __init__(self, name: str, tokens: Collection[str]) -> None:
        """`tokens`: at most MOST_TOKENS different ones."""
        self.tokenizer = tokenizer(name)
        self._codes = {token: code for code, token in enumerate(dict.fromkeys(tokens), _FIRST)}
        stopwords = [code for token, code in self._codes.items() if token.startswith(STOPWORD_MARK)]
        self._stop_codes = (_STOPWORD, *stopwords)
        self._rows: list[bytes] = []

    def lengths(self, records: Sequence[Record]) -> list[int]:
        """Tokens of the texts of some records; `frequencies` are those of these records from now on."""
        texts = [record.chunk for record in records]
        self._rows = []
        for start in range(0, len(texts), TOGETHER):
            self._rows += self._look(texts[start : start + TOGETHER])
        found = list(map(len, self._rows))
        for code in self._stop_codes:
            found = [length - row.count(code) for length, row in zip(found, self._rows, strict=True)]
        return found

    def frequencies(self, token: str) -> list[int]:
        """How often each text holds one of the tokens, a stopword being `=word`."""
        code = self._codes[token]
        return [row.count(code) for row in self._rows]

    def _look(self, texts: Sequence[str]) -> list[bytes]:
        """The codes of the words of each text."""
        words = _GAP.join(texts)
        if words.count(_MARK) == len(texts) - 1 and _is_plain(words):
            words = _plain_words(words)
        else:
            words = _GAP.join(map(self._words, texts))
        words = f" {words} "
        codes = self._codes_of_words(words)
        codes[_MARK] = _END
        return bytes(map(codes.get, words.split(), repeat(_OTHER))).split(bytes((_END,)))

    def _words(self, text: str) -> str:
        """The words of a text as they are before they are stemmed, between spaces."""
        if _MARK not in text and _is_plain(text):
            return _plain_words(text)
        return " ".join(self.tokenizer.unstemmed(text))

    def _codes_of_words(self, words: str) -> dict[str, int]:
        """The codes of all stopwords and of all words that give one of the tokens."""
        wanted, dropped = self._codes, self.tokenizer.dropped
        codes = dict.fromkeys(dropped, _STOPWORD)
        prefixes: set[str] = set()
        for token, code in wanted.items():
            if token.startswith(STOPWORD_MARK):
                codes[token[1:]] = code
            else:
                prefixes.update(self.tokenizer.prefixes(token))
        likely = [word for word in _starting(words, prefixes) if word not in dropped]
        stems = self.tokenizer.stems([word[:MAX_WORD] for word in likely])
        codes.update((word, wanted[stem]) for word, stem in zip(likely, stems, strict=True) if stem in wanted)
        return codes


class KeptScanner:
    """Counts all tokens of a text and keeps them.

    `known`: what searches before this one found, by record id: text, its length, its counts.
    """

    __slots__ = ("_known", "_records", "tokenizer")

    def __init__(self, name: str, known: dict[int, Counted]) -> None:
        self.tokenizer, self._known = tokenizer(name), known
        self._records: Sequence[Record] = ()

    def lengths(self, records: Sequence[Record]) -> list[int]:
        """As in QueryScanner."""
        known, self._records = self._known, records
        for record in records:
            if record.id not in known or known[record.id][0] is not record.chunk:
                known[record.id] = record.chunk, *self._count(record.chunk)
        return [known[record.id][1] for record in records]

    def frequencies(self, token: str) -> list[int]:
        """As in QueryScanner, of any token."""
        known = self._known
        return [known[record.id][2].get(token, 0) for record in self._records]

    def _count(self, text: str) -> tuple[int, dict[str, int]]:
        """Length and all counts of a text."""
        counts: dict[str, int] = {}
        document = self.tokenizer.document(text)
        for token in (*document, *self.tokenizer.stopwords(text)):
            counts[token] = counts.get(token, 0) + 1
        return len(document), counts


def _is_plain(text: str) -> bool:
    """Whether a text is ASCII and, by its capitals, without compound words; False for some that have none."""
    if not text.isascii() or "_" in text:
        return False
    if text == text.lower():
        return True
    kinds = text.encode().translate(_KINDS)
    return b"aA" not in kinds and b"AAaa" not in kinds


def _plain_words(text: str) -> str:
    """The words of a plain text in small letters, separated."""
    return text.encode().translate(_WORDS).decode()


def _starting(words: str, prefixes: Iterable[str]) -> set[str]:
    """The different words among some in one text that start with one of the prefixes."""
    found: set[str] = set()
    for prefix in prefixes:
        if not prefix:
            return set(words.split()) - {_MARK}
        found.add(prefix)
        rests = words.replace(f" {prefix} ", "  ").split(f" {prefix}")  # the prefix itself is often the commonest
        found.update([prefix + rest.partition(" ")[0] for rest in rests[1:]])
    return found
