"""Live records that are no live rows of the index: what the log added, replaced, brought back. Loaded by one-shots.

A *place* names any live record: an index row r is r, tail record j is `base.count + j`, NONE is no record. Tail records
are read and scored one by one, so a search stays exact until a checkpoint puts them into the index.

Invariants: `hidden` are index rows that count no more; `around` gives the neighbours of every tail record and of every
index row whose neighbours changed, all other rows have those of the index; `count`, `lengths`, `neighbour_lengths` are
over all live records, so that N and the average length are exact.
"""

from __future__ import annotations

from _bisect import bisect_left, bisect_right

from clawmem_core.search import index_format as form
from clawmem_core.search.tokenizer import MAX_WORD, STOPWORD_MARK, split, tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clawmem_core.model import Record
    from clawmem_core.overlay import Overlay
    from clawmem_core.search.index_reader import IndexReader

    SessionKey = tuple[bytes, str]

NONE = -1
TOGETHER = 1000  # texts whose words are looked at together


class Tail:
    """The tail of one state of a store over its index."""

    __slots__ = (
        "around", "base", "count", "hidden", "keys", "lengths", "neighbour_lengths", "record_lengths", "records",
        "scanner",
    )  # fmt: skip

    def __init__(self, base: IndexReader, overlay: Overlay, scanner: Scanner) -> None:
        self.base, self.scanner = base, scanner
        self.records: list[Record] = []
        self.keys: list[SessionKey] = []
        self.record_lengths: list[int] = []
        self.hidden: set[int] = set()
        self.around: dict[int, tuple[int, int]] = {}
        self.count, self.lengths, self.neighbour_lengths = base.active, base.lengths, base.neighbour_lengths
        if not overlay.empty:
            self._lay(overlay)

    def _lay(self, overlay: Overlay) -> None:
        base = self.base
        self.records = overlay.live_records()
        self.keys = [(record.scope, record.session_id) for record in self.records]
        self.record_lengths = self.scanner.lengths(self.records)
        rows = (base.row_of(id) for id in overlay.hidden_ids())
        self.hidden = {row for row in rows if row >= 0 and not base.flags(row) & form.IS_DELETED}
        self._connect()
        self._add_up()

    # ------------------------------------------------------------ neighbours

    def _connect(self) -> None:
        """Fill `around`."""
        base = self.base
        added: dict[SessionKey, list[int]] = {}
        for at, key in enumerate(self.keys):
            if key[1]:
                added.setdefault(key, []).append(at)
            else:
                self.around[base.count + at] = (NONE, NONE)
        gone: dict[int, list[int]] = {}
        for row in self.hidden:
            gone.setdefault(base.session_code_of(row), []).append(row)
        for key, members in added.items():
            code = base.session_code(*key)
            rows = base.rows_of_code(code) if code >= 0 else ()
            self._connect_session(rows, members, gone.pop(code, ()))
        for code, missing in gone.items():
            if base.session_name(code):
                self._connect_session(base.rows_of_code(code), [], missing)

    def _connect_session(self, rows: Sequence[int], members: list[int], missing: Sequence[int]) -> None:
        """Neighbours within one session: its live index rows, its tail records (by id), its rows that are hidden."""
        base, first = self.base, self.base.count
        ids = [self.records[at].id for at in members]
        if not missing and (not rows or not ids or ids[0] > base.id_at(rows[-1])):
            places = [*rows[-2:], *(first + at for at in members)]
            for at in range(1 if len(rows) > 1 else 0, len(places)):
                near = places[at - 1] if at else NONE
                self.around[places[at]] = (near, places[at + 1] if at + 1 < len(places) else NONE)
            return

        def before(id: int) -> int:
            """The place of the live record just before `id` in this session."""
            at = bisect_left(rows, base.first_row(id))
            while at and rows[at - 1] in self.hidden:
                at -= 1
            row = rows[at - 1] if at else NONE
            found = bisect_left(ids, id)
            if found and (row < 0 or ids[found - 1] > base.id_at(row)):
                return first + members[found - 1]
            return row

        def after(id: int) -> int:
            """The place of the live record just after `id` in this session."""
            at = bisect_left(rows, base.first_row(id + 1))
            while at < len(rows) and rows[at] in self.hidden:
                at += 1
            row = rows[at] if at < len(rows) else NONE
            found = bisect_right(ids, id)
            if found < len(ids) and (row < 0 or ids[found] < base.id_at(row)):
                return first + members[found]
            return row

        touched: set[int] = set()
        for at, id in zip(members, ids, strict=True):
            pair = self.around[first + at] = before(id), after(id)
            touched.update(pair)
        for row in missing:
            touched.update((before(base.id_at(row)), after(base.id_at(row))))
        for row in touched:
            if 0 <= row < first:
                id = base.id_at(row)
                self.around[row] = before(id), after(id)

    def _add_up(self) -> None:
        """Counts and lengths of all live records from those of the index."""
        base = self.base
        value = base.sections.value
        self.count += len(self.records) - len(self.hidden)
        self.lengths += sum(self.record_lengths) - sum(value("dl", row, 0) for row in self.hidden)
        changed = self.hidden.union(place for place in self.around if place < base.count)
        self.neighbour_lengths -= sum(value("ndl", row, 0) for row in changed)
        length = self.length
        self.neighbour_lengths += sum(length(before) + length(after) for before, after in self.around.values())

    # ------------------------------------------------------------ reading

    def length(self, place: int) -> int:
        """Tokens of a record; 0 for NONE."""
        if place < 0:
            return 0
        if place < self.base.count:
            found: int = self.base.sections.value("dl", place, 0)
            return found
        return self.record_lengths[place - self.base.count]

    def id_of(self, place: int) -> int:
        """The id of a record."""
        first = self.base.count
        return self.base.id_at(place) if place < first else self.records[place - first].id

    def changed_rows(self) -> list[int]:
        """Index rows that are live, with other neighbours than in the index."""
        return [place for place in self.around if place < self.base.count]


class Scanner:
    """Lengths and token counts of texts that no index holds. Keeps what it found for as long as it lives.

    A one-shot search (`wanted`: the query's tokens) needs all lengths but only the frequencies of those tokens: words
    that cannot give any of them (`Tokenizer.prefixes`) are never stemmed, the others once and together.
    """

    __slots__ = ("_counts", "_prefixes", "_wanted", "_words", "tokenizer")

    def __init__(self, name: str, wanted: Iterable[str] | None) -> None:
        self.tokenizer = tokenizer(name)
        self._wanted = frozenset(wanted) if wanted is not None else None
        stems = [token for token in self._wanted or () if not token.startswith(STOPWORD_MARK)]
        #: each word that gives a wanted stem starts with one of them
        self._prefixes = tuple([start for stem in stems for start in self.tokenizer.prefixes(stem)])
        self._words = frozenset(token[1:] for token in self._wanted or () if token.startswith(STOPWORD_MARK))
        self._counts: dict[int, tuple[str, int, dict[str, int]]] = {}  # id -> text, its length, its counts

    def lengths(self, records: Sequence[Record]) -> list[int]:
        """Tokens of the texts of some records."""
        known = self._counts
        fresh = [record for record in records if record.id not in known or known[record.id][0] is not record.chunk]
        for start in range(0, len(fresh), TOGETHER):
            some = fresh[start : start + TOGETHER]
            if self._wanted is None:
                measured = [self._measure(record.chunk) for record in some]
            else:
                measured = self._measure_together([record.chunk for record in some])
            for record, (length, counts) in zip(some, measured, strict=True):
                known[record.id] = record.chunk, length, counts
        return [known[record.id][1] for record in records]

    def counts(self, record: Record) -> dict[str, int]:
        """How often each token, stopwords included, is in a measured record's text; perhaps only for wanted ones."""
        return self._counts[record.id][2]

    def _measure(self, text: str) -> tuple[int, dict[str, int]]:
        """Length and all counts of a text."""
        counts: dict[str, int] = {}
        document = self.tokenizer.document(text)
        for token in (*document, *self.tokenizer.stopwords(text)):
            counts[token] = counts.get(token, 0) + 1
        return len(document), counts

    def _measure_together(self, texts: Iterable[str]) -> list[tuple[int, dict[str, int]]]:
        """Length and wanted counts of each text. Most words are one token, or none if a stopword; others are marked."""
        texts_words = list(map(split, texts))
        marked = self._marked(set().union(*texts_words))
        dropped, is_marked = self.tokenizer.dropped, marked.__contains__
        is_special = dropped.union(marked).__contains__
        measured = []
        for words in texts_words:
            special = list(filter(is_special, words))
            length = len(words) - len(special)
            counts: dict[str, int] = {}
            for word in filter(is_marked, special):
                own, tokens = marked[word]
                length += own
                for token in tokens:
                    counts[token] = counts.get(token, 0) + 1
            measured.append((length, counts))
        return measured

    def _marked(self, words: set[str]) -> dict[str, tuple[int, Sequence[str]]]:
        """How many tokens, and which wanted ones, a word of `split` gives; without those that give one, not wanted,
        and stopwords in small letters.
        """
        dropped, prefixes = self.tokenizer.dropped, self._prefixes
        odd: list[str] = []
        text = " ".join(words)
        if not _simple(text) or max(map(len, words), default=0) > MAX_WORD:
            odd = [word for word in words if not _simple(word) or len(word) > MAX_WORD]
        marked: dict[str, tuple[int, Sequence[str]]] = {}
        for word in odd:
            own, found = self._look_at(word)
            if own != 1 or found:
                marked[word] = own, found
        likely = [word for word in words if word.startswith(prefixes)]
        likely = [word for word in likely if _simple(word) and len(word) <= MAX_WORD and word not in dropped]
        wanted = self._wanted or ()
        stems = zip(likely, self.tokenizer.stems(likely), strict=True)
        marked.update((word, (1, (token,))) for word, token in stems if token in wanted)
        marked.update((word, (0, (STOPWORD_MARK + word,))) for word in self._words)
        return marked

    def _look_at(self, word: str) -> tuple[int, Sequence[str]]:
        """How many tokens, and which wanted ones, a word in any case or script gives."""
        folded = word.casefold()
        dropped, exact = self.tokenizer.dropped, self._words
        whole = word[1:] == folded[1:] or word.isupper()  # Title case and CAPITALS have no parts
        sure = whole and _simple(folded) and len(word) <= MAX_WORD
        if sure and not folded.startswith(self._prefixes) and folded not in exact:
            return int(folded not in dropped), ()
        tokens = self.tokenizer.word(word)
        found = [token for token in tokens if token in (self._wanted or ())]
        if folded in exact:
            found.append(STOPWORD_MARK + folded)
        return len(tokens), found


def _simple(text: str) -> bool:
    """Whether the words of a text are in small ASCII letters and have no parts."""
    return text.isascii() and "_" not in text and text == text.lower()
