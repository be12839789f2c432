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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawmem_core.model import Record
    from clawmem_core.overlay import Overlay
    from clawmem_core.search.index_reader import IndexReader
    from clawmem_core.search.text_scan import KeptScanner, QueryScanner

    SessionKey = tuple[bytes, str]

NONE = -1


class Tail:
    """The tail of one state of a store over its index."""

    __slots__ = (
        "_codes", "_last", "around", "base", "count", "hidden", "lengths", "neighbour_lengths", "record_lengths",
        "records", "scanner",
    )  # fmt: skip

    def __init__(self, base: IndexReader, overlay: Overlay, scanner: QueryScanner | KeptScanner | None) -> None:
        """`scanner`: of the texts beside the index; None where nothing changed."""
        self.base, self.scanner = base, scanner
        self.records: list[Record] = []
        self._codes: dict[SessionKey, int] = {}
        self._last = NONE  # greatest id of the index
        self.record_lengths: list[int] = [0]  # one more, for NONE
        self.hidden: set[int] = set()
        self.around: dict[int, tuple[int, int]] = {}
        self.count, self.lengths, self.neighbour_lengths = base.active, base.lengths, base.neighbour_lengths
        if not overlay.empty:
            self._lay(overlay)

    def _lay(self, overlay: Overlay) -> None:
        base = self.base
        self.records = overlay.live_records()
        if self.scanner is not None:
            self.record_lengths = [*self.scanner.lengths(self.records), 0]
        self._last = base.id_at(base.count - 1) if base.count else NONE
        rows = [base.row_of(id) for id in overlay.hidden_ids() if id <= self._last]
        self.hidden = {row for row in rows if row >= 0 and not base.flags(row) & form.IS_DELETED}
        self._connect()
        self._add_up()

    # ------------------------------------------------------------ neighbours

    def _connect(self) -> None:
        """Fill `around`."""
        base = self.base
        added: dict[SessionKey, list[int]] = {}
        for place, record in enumerate(self.records, base.count):
            if record.session_id:
                added.setdefault((record.scope, record.session_id), []).append(place)
            else:
                self.around[place] = (NONE, NONE)
        gone: dict[int, list[int]] = {}
        for row in self.hidden:
            gone.setdefault(base.session_code_of(row), []).append(row)
        self._codes = base.find_sessions(added.keys()) if added else {}
        for key, members in added.items():
            code = self._codes[key]
            rows = base.rows_of_code(code) if code >= 0 else ()
            self._connect_session(rows, members, gone.pop(code, ()))
        for code, missing in gone.items():
            if base.session_name(code):
                self._connect_session(base.rows_of_code(code), [], missing)

    def _connect_session(self, rows: Sequence[int], members: list[int], missing: Sequence[int]) -> None:
        """Neighbours within one session: its live index rows, its tail records (places, by id), its hidden rows."""
        base, first = self.base, self.base.count
        if not missing and (not rows or self._follows(members[0], rows[-1])):
            places = [*rows[-2:], *members]
            pairs = zip([NONE, *places[:-1]], [*places[1:], NONE], strict=True)
            known = list(zip(places, pairs, strict=True))
            self.around.update(known[1:] if len(rows) > 1 else known)  # what is before the first of two is not known
            return
        ids = [self.records[place - first].id for place in members]

        def before(id: int) -> int:
            """The place of the live record just before `id` in this session."""
            at = bisect_left(rows, base.first_row(id))
            while at and rows[at - 1] in self.hidden:
                at -= 1
            row = rows[at - 1] if at else NONE
            found = bisect_left(ids, id)
            if found and (row < 0 or ids[found - 1] > base.id_at(row)):
                return members[found - 1]
            return row

        def after(id: int) -> int:
            """The place of the live record just after `id` in this session."""
            at = bisect_left(rows, base.first_row(id + 1))
            while at < len(rows) and rows[at] in self.hidden:
                at += 1
            row = rows[at] if at < len(rows) else NONE
            found = bisect_right(ids, id)
            if found < len(ids) and (row < 0 or ids[found] < base.id_at(row)):
                return members[found]
            return row

        touched: set[int] = set()
        for place, id in zip(members, ids, strict=True):
            pair = self.around[place] = before(id), after(id)
            touched.update(pair)
        for row in missing:
            touched.update((before(base.id_at(row)), after(base.id_at(row))))
        for row in touched:
            if 0 <= row < first:
                id = base.id_at(row)
                self.around[row] = before(id), after(id)

    def _follows(self, place: int, row: int) -> bool:
        """Whether a tail record comes after an index row."""
        id = self.records[place - self.base.count].id
        return id > self._last or id > self.base.id_at(row)

    def _add_up(self) -> None:
        """Counts and lengths of all live records from those of the index."""
        base = self.base
        value = base.sections.value
        self.count += len(self.records) - len(self.hidden)
        self.lengths += sum(self.record_lengths) - sum(value("dl", row, 0) for row in self.hidden)
        changed = self.hidden.union(place for place in self.around if place < base.count)
        self.neighbour_lengths -= sum(value("ndl", row, 0) for row in changed)
        first, own, length = base.count, self.record_lengths, self.length
        total = self.neighbour_lengths
        for before, after in self.around.values():
            if before >= first and after >= first:
                total += own[before - first] + own[after - first]
            else:
                total += length(before) + length(after)
        self.neighbour_lengths = total

    # ------------------------------------------------------------ reading

    def length(self, place: int) -> int:
        """Tokens of a record; 0 for NONE."""
        if place < 0:
            return 0
        if place < self.base.count:
            found: int = self.base.sections.value("dl", place, 0)
            return found
        return self.record_lengths[place - self.base.count]

    def session_of(self, place: int) -> int | SessionKey | None:
        """What tells the session of a tail record apart: its number in the index, else its key; None for none."""
        record = self.records[place - self.base.count]
        if not record.session_id:
            return None
        key = record.scope, record.session_id
        code = self._codes[key]
        return code if code >= 0 else key

    def ids_of(self, places: Sequence[int]) -> list[int]:
        """The ids of some records."""
        first, records = self.base.count, self.records
        ids = iter(self.base.ids_of([place for place in places if place < first]))
        return [next(ids) if place < first else records[place - first].id for place in places]

    def changed_rows(self) -> list[int]:
        """Index rows that are live, with other neighbours than in the index."""
        return [place for place in self.around if place < self.base.count]
