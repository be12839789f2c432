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

TOGETHER = 128  # texts whose words are looked at together: they stay in the cache of the processor
MOST_TOKENS = 250  # tokens a QueryScanner can be asked for

_OTHER, _STOPWORD, _FIRST = 0, 1, 2  # codes of words; those from _FIRST on are asked for
_END = 255  # what a text ends with
_CODES = bytes(range(_END))
_MARK = b"\0"  # the same among words
_GAP = b" \0 "

_SMALL, _SPACE = b"abcdefghijklmnopqrstuvwxyz", b" "
#: small letters, digits and the mark stay, capitals become small, everything else separates
_WORDS = _MARK + _SPACE * 47 + b"0123456789" + _SPACE * 7 + _SMALL + _SPACE * 6 + _SMALL + _SPACE * 133
#: what tells compound words: small letters and digits are `a`, capitals `A`, everything else separates
_KINDS = _SPACE * 48 + b"a" * 10 + _SPACE * 7 + b"A" * 26 + _SPACE * 6 + b"a" * 26 + _SPACE * 133


class QueryScanner:
    """Looks for the tokens of one query.

    A text becomes a row of codes, one byte a word. Words that can give none of the tokens (`Tokenizer.forms`,
    `prefixes`, `endings`) are never stemmed, the others once and together.
    """

    __slots__ = ("_codes", "_endings", "_found", "_prefixes", "_stop_codes", "_words", "tokenizer")

    def __init__(self, name: str, tokens: Collection[str]) -> None:
        """`tokens`: at most MOST_TOKENS different ones."""
        self.tokenizer = known = tokenizer(name)
        self._codes = {token: code for code, token in enumerate(dict.fromkeys(tokens), _FIRST)}
        self._words = {word.encode(): _STOPWORD for word in known.dropped}
        self._words[_MARK] = _END
        self._endings = known.endings.encode()
        self._found = b""  # codes of the words of all texts, _END after each text
        prefixes: set[str] = set()
        stop_codes = [_STOPWORD]
        for token, code in self._codes.items():
            if token.startswith(STOPWORD_MARK):
                self._words[token[1:].encode()] = code
                stop_codes.append(code)
            elif forms := known.forms(token):
                stems = zip(forms, known.stems(forms), strict=True)
                found = [word for word, stem in stems if stem == token and word not in known.dropped]
                self._words.update((word.encode(), code) for word in found)
            else:
                prefixes.update(known.prefixes(token))
        self._prefixes, self._stop_codes = [prefix.encode() for prefix in prefixes], bytes(stop_codes)

    def lengths(self, records: Sequence[Record]) -> list[int]:
        """Tokens of the texts of some records; `frequencies` are those of these records from now on."""
        texts = [record.chunk for record in records]
        self._found = b"".join([self._look(texts[at : at + TOGETHER]) for at in range(0, len(texts), TOGETHER)])
        return list(map(len, _texts(self._found.translate(None, self._stop_codes))))

    def frequencies(self, token: str) -> list[int]:
        """How often each text holds one of the tokens, a stopword being `=word`."""
        code = self._codes[token]
        if code not in self._found:
            return [0] * self._found.count(_END)
        others = _CODES.replace(bytes((code,)), b"")
        return list(map(len, _texts(self._found.translate(None, others))))

    def _look(self, texts: Sequence[str]) -> bytes:
        """The codes of the words of some texts."""
        joined = "\0".join(texts)
        if _is_plain(joined) and "\0" not in "".join(texts):
            words = b" " + _plain_words(joined).replace(_MARK, _GAP) + _GAP
            likely = self._likely(words)
            if max(map(len, likely), default=0) <= MAX_WORD:
                return self._codes_of(words, likely)
        words = b" " + _GAP.join(map(self._unstemmed, texts)) + _GAP
        return self._codes_of(words, self._likely(words))

    def _unstemmed(self, text: str) -> bytes:
        """The words of a text as they are before they are stemmed, between spaces."""
        if "\0" not in text and _is_plain(text):
            words = _plain_words(text)
            if max(map(len, words.split()), default=0) <= MAX_WORD:
                return words
        return " ".join(self.tokenizer.unstemmed(text)).encode()

    def _codes_of(self, words: bytes, likely: Iterable[bytes]) -> bytes:
        """The codes of words that need not be cut, marks among them; `likely`: those that may give a token."""
        known, codes = self._words, self._codes
        fresh = [word for word in likely if word not in known]
        stems = self.tokenizer.stems([word.decode() for word in fresh])
        known.update(zip(fresh, [codes.get(stem, _OTHER) for stem in stems], strict=True))
        return bytes(map(known.get, words.split(), repeat(_OTHER)))

    def _likely(self, words: bytes) -> set[bytes]:
        """Different words of some, among them all that give one of the tokens."""
        if b"" in self._prefixes:
            return set(words.split())
        found, endings = set(self._prefixes), self._endings
        for prefix in self._prefixes:
            rests = words.split(b" " + prefix)[1:]
            likely = [rest.partition(b" ")[0] for rest in rests if rest > b"!"]  # less: the word is the prefix
            most = MAX_WORD - len(prefix)  # of a longer word the end does not count
            found.update([prefix + rest for rest in likely if not endings or rest[-1] in endings or len(rest) > most])
        return found


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


def _plain_words(text: str) -> bytes:
    """The words of a plain text in small letters, between spaces."""
    return text.encode().translate(_WORDS)


def _texts(codes: bytes) -> list[bytes]:
    """The codes of each text."""
    return codes.split(bytes((_END,)))[:-1]
