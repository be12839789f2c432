"""Which live records a search may return, decided before anything is ranked. Loaded by one-shot search.

Options narrow one another; the values of one option are alternatives; an empty option is no filter. Source and session
match exactly, a tag matches a comma-separated part of a record's tags, blanks around it aside, `since` is inclusive,
`until` exclusive. Without `allowed` or `scope` a search sees ordinary records only, never the texts of events.

Invariant: deleted rows and rows the log hides are never selected.
"""

from __future__ import annotations

from _bisect import bisect_left

from clawmem_core.search import index_format as form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from clawmem_core.model import Record
    from clawmem_core.search.index_reader import IndexReader
    from clawmem_core.search.request import SearchRequest
    from clawmem_core.search.tail import Tail


class Selection:
    """The records that pass. `mask`: one byte a row, 1 passes; None: every row. `tail`: indices of tail records.

    `count`: index rows that pass.
    """

    __slots__ = ("_rows", "count", "mask", "tail", "total")

    def __init__(self, mask: bytes | None, total: int, tail: Sequence[int]) -> None:
        self.mask, self.total, self.tail = mask, total, tail
        self.count = total if mask is None else mask.count(1)
        self._rows: Sequence[int] | None = None

    @property
    def rows(self) -> Sequence[int]:
        """The index rows that pass, ascending."""
        if self._rows is None:
            self._rows = range(self.total) if self.mask is None else positions(self.mask)
        return self._rows

    def without(self, rows: Iterable[int]) -> Selection:
        """The same without some index rows."""
        mask = bytearray(self.mask) if self.mask is not None else bytearray(b"\1") * self.total
        for row in rows:
            mask[row] = 0
        return Selection(bytes(mask), self.total, self.tail)

    def having(self, rows: Iterable[int]) -> list[int]:
        """Those of some index rows that pass."""
        mask = self.mask
        return list(rows) if mask is None else [row for row in rows if mask[row]]


def positions(mask: bytes) -> list[int]:
    """Where the ones of a mask are."""
    found = []
    at = mask.find(1)
    while at >= 0:
        found.append(at)
        at = mask.find(1, at + 1)
    return found


def select(base: IndexReader, tail: Tail, request: SearchRequest) -> Selection:
    """The records a request may return."""
    masks = list(_masks(base, request))
    gone = base.sections.column("flags")
    if gone is not None and base.active < base.count:
        masks.append(_of_codes(gone, lambda flags: not flags & form.IS_DELETED))
    mask = _both(masks, base.count)
    later: Sequence[int] = range(len(tail.records))
    for test in _tests(request) if later else ():
        later = [at for at in later if test(tail.records[at])]
    selection = Selection(mask, base.count, later)
    return selection.without(tail.hidden) if tail.hidden else selection


def _both(masks: Sequence[bytes], count: int) -> bytes | None:
    """Where all masks are 1; None for no mask."""
    if not masks:
        return None
    whole = int.from_bytes(masks[0], "little")
    for mask in masks[1:]:
        whole &= int.from_bytes(mask, "little")
    return whole.to_bytes(count, "little")


def _masks(base: IndexReader, request: SearchRequest) -> Iterable[bytes]:
    """One mask for each option that is set."""
    if request.allowed is not None:
        yield _of_rows(base, (base.row_of(id) for id in request.allowed))
    if request.scope is not None or (request.allowed is None and not request.all_scopes):
        scopes = base.sections.column("scope")
        wanted = base.scope_code(request.scope or b"")
        if scopes is not None:
            yield _of_codes(scopes, lambda code: code == wanted)
        elif wanted:
            yield bytes(base.count)
    if request.sources:
        yield _of_names(base, "chan", "chans", frozenset(request.sources).__contains__)
    if request.tags:
        yield _of_names(base, "tag", "tags", tag_test(request.tags))
    if request.sessions:
        yield _of_rows(base, _session_rows(base, request.sessions))
    if request.exclude_sessions:
        excluded = _of_rows(base, _session_rows(base, request.exclude_sessions))
        yield excluded.translate(bytes((1, 0)) + bytes(254))
    if request.since is not None or request.until is not None:
        yield _of_times(base, request.since, request.until)


def _of_rows(base: IndexReader, rows: Iterable[int]) -> bytes:
    mask = bytearray(base.count)
    for row in rows:
        if row >= 0:
            mask[row] = 1
    return bytes(mask)


def _session_rows(base: IndexReader, names: Collection[str]) -> Iterable[int]:
    """Live rows of the sessions with these ids, of every scope."""
    for name in names:
        for code in base.session_codes(name):
            yield from base.rows_of_code(code)


def _of_codes(codes: memoryview, passes: Callable[[int], bool]) -> bytes:
    """Rows whose code passes."""
    if codes.itemsize == 1:
        return bytes(codes).translate(bytes(passes(code) for code in range(256)))
    known: dict[int, bool] = {}
    values = codes.tolist()
    for code in set(values):
        known[code] = passes(code)
    return bytes(map(known.__getitem__, values))


def _of_names(base: IndexReader, column: str, table: str, passes: Callable[[str], bool]) -> bytes:
    """Rows whose string, one of a table, passes."""
    strings = base.sections.length(f"{table}.o") - 1
    good = [passes(base.string(table, code)) for code in range(strings)]
    codes = base.sections.column(column)
    if codes is None:
        return bytes((good[0] if good else False,)) * base.count
    return _of_codes(codes, lambda code: code < strings and good[code])


def _of_times(base: IndexReader, since: float | None, until: float | None) -> bytes:
    """Rows within [since, until)."""
    times = base.sections.column("time")
    if times is None:
        return b""
    if base.ascending_times:
        start = 0 if since is None else bisect_left(times, since)
        stop = len(times) if until is None else bisect_left(times, until)
        stop = max(start, stop)
        return bytes(start) + b"\1" * (stop - start) + bytes(len(times) - stop)
    low = float("-inf") if since is None else since
    high = float("inf") if until is None else until
    return bytes([low <= time < high for time in times.tolist()])


def tag_test(wanted: Collection[str]) -> Callable[[str], bool]:
    """Whether one of the comma-separated parts of a text is among the wanted tags, blanks around them aside."""
    trimmed = frozenset(tag.strip() for tag in wanted)

    def passes(tags: str) -> bool:
        return any(part.strip() in trimmed for part in tags.split(","))

    return passes


def _tests(request: SearchRequest) -> Iterable[Callable[[Record], bool]]:
    """The same conditions, one for each option that is set, for one record."""
    allowed, scope = request.allowed, request.scope or b""
    sources, sessions, excluded = map(frozenset, (request.sources, request.sessions, request.exclude_sessions))
    if allowed is not None:
        yield lambda record: record.id in allowed
    if request.scope is not None or (allowed is None and not request.all_scopes):
        yield lambda record: record.scope == scope
    if sources:
        yield lambda record: record.source_channel in sources
    if request.tags:
        tagged = tag_test(request.tags)
        yield lambda record: tagged(record.tags)
    if sessions:
        yield lambda record: record.session_id in sessions
    if excluded:
        yield lambda record: record.session_id not in excluded
    if request.since is not None or request.until is not None:
        low = float("-inf") if request.since is None else request.since
        high = float("inf") if request.until is None else request.until
        yield lambda record: low <= record.timestamp < high
