"""Look-ups in an index that concern no single row: scopes, sessions, graph, events. Loaded by one-shot commands."""

from __future__ import annotations

from _bisect import bisect_left

from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import UnusableIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any, Concatenate, ParamSpec, TypeVar

    from clawmem_core.search.index_sections import Sections
    from clawmem_core.storage.row_ops import Alias, Entity, EventRow, Relation, Session, ValueRow

    P = ParamSpec("P")
    R = TypeVar("R")
    T = TypeVar("T", bound="IndexTables")

NAMES_READ = 64  # names are rather read one after the other than searched for, up to so many for each wanted


def healing(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """A method that is complete in itself: where a check fails in it, it is answered again from a fresh index."""

    def answered(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except UnusableIndex as reason:
            self.heal(reason)
            return method(self, *args, **kwargs)

    answered.__doc__ = method.__doc__
    return answered


class IndexTables:
    """The part of an IndexReader described above."""

    sections: Sections
    _nameless: int
    if TYPE_CHECKING:

        def _name(self, table: str, code: int) -> str: ...
        def scope_key(self, code: int) -> bytes: ...

    def heal(self, reason: UnusableIndex) -> None:
        """Go on with a fresh index. Raises `reason` where there is no way to get one."""
        raise reason

    # ------------------------------------------------------------ scopes, sessions

    @healing
    def scope_code(self, scope: bytes) -> int:
        """The number of a scope key; 0 for b"", -1 for one no row has."""
        if not scope:
            return 0
        keys = bytes(self.sections.blob("scopes"))
        at = keys.find(scope)
        while at >= 0 and at % 32:
            at = keys.find(scope, at + 1)
        return at // 32 + 1 if at >= 0 else -1

    @property
    def nameless(self) -> int:
        """Numbers of (scope, session) below this one are of records without session."""
        if self._nameless < 0:
            self._nameless = self.session_codes("").stop
        return self._nameless

    @healing
    def session_codes(self, name: str) -> range:
        """The numbers of all (scope, session) with this session id."""
        return range(self._first_session(name, 0), self._first_session(name, 1))

    def _first_session(self, wanted: str, after: int) -> int:
        low, high = 0, self.sections.length("sesoff") - 1
        while low < high:
            middle = (low + high) // 2
            found = self._name("ses", middle)  # in the order of their UTF-8, which is that of the texts
            if found < wanted or (after and found == wanted):
                low = middle + 1
            else:
                high = middle
        return low

    @healing
    def session_code(self, scope: bytes, name: str) -> int:
        """The number of (scope, session), or -1."""
        wanted = self.scope_code(scope)
        codes = range(self._first_session(name, 0), self.sections.length("sesoff") - 1) if wanted >= 0 else ()
        for code in codes:
            if self._name("ses", code) != name:
                break
            if self.sections.value("sescope", code, 0) == wanted:
                return code
        return -1

    def find_sessions(self, keys: Collection[tuple[bytes, str]]) -> dict[tuple[bytes, str], int]:
        """The number of each (scope, session), or -1."""
        count = self.sections.length("sesoff") - 1
        if count > NAMES_READ * len(keys):
            return {key: self.session_code(*key) for key in keys}
        return self._search_sessions(keys)

    @healing
    def _search_sessions(self, keys: Collection[tuple[bytes, str]]) -> dict[tuple[bytes, str], int]:
        """`find_sessions` with all names at hand."""
        offsets, data = self.sections.column("ses.o") or (), bytes(self.sections.blob("ses"))
        codes = range(len(offsets) - 1)

        def name(code: int) -> bytes:
            return data[offsets[code] : offsets[code + 1]]

        found = dict.fromkeys(keys, -1)
        for scope, session in keys:
            wanted, code = session.encode(), bisect_left(codes, session.encode(), key=name)
            while code < len(codes) and name(code) == wanted:
                if self.scope_key(self.sections.value("sescope", code, 0)) == scope:
                    found[scope, session] = code
                    break
                code += 1
        return found

    @healing
    def rows_of_code(self, code: int) -> Sequence[int]:
        """The live rows of a (scope, session) number, ascending."""
        start, stop = self.sections.values("sesoff", code, code + 2)
        return self.sections.values("sesrow", start, stop)

    @healing
    def rows_of_session(self, scope: bytes, session: str) -> Sequence[int]:
        """The live rows of (scope, session), ascending."""
        code = self.session_code(scope, session)
        return self.rows_of_code(code) if code >= 0 else ()

    @healing
    def deleted_ids(self) -> list[int]:
        """Ids of the rows that were deleted at the checkpoint."""
        flags = self.sections.column("flags")
        if flags is None:
            return []
        ids = self.sections.column("id") or range(len(flags))
        return [id for id, flag in zip(ids, flags.tolist(), strict=True) if flag & form.IS_DELETED]

    # ------------------------------------------------------------ tables

    def _table(self, name: str) -> Iterator[Any]:
        from clawmem_core.storage import ops

        return (value for _, _, value in ops.decode(memoryview(self.sections.blob(name))))

    @healing
    def sessions(self) -> Iterator[Session]:
        """Every session."""
        return self._table("sesrows")

    @healing
    def entities(self) -> Iterator[Entity]:
        """Every entity."""
        return self._table("entities")

    @healing
    def relations(self) -> Iterator[Relation]:
        """Every relation."""
        return self._table("rels")

    @healing
    def aliases(self) -> Iterator[Alias]:
        """Every alias."""
        return self._table("aliases")

    @healing
    def event_rows(self) -> Iterator[EventRow]:
        """Every version of every event, by scope."""
        return self._table("events")

    @healing
    def value_rows(self) -> Iterator[ValueRow]:
        """Every value tombstone, by scope."""
        return self._table("values")

    @healing
    def events_of_scope(self, scope: bytes) -> Iterator[EventRow]:
        """Every version of the events of a scope."""
        return self._of_scope("events", scope)

    @healing
    def values_of_scope(self, scope: bytes) -> Iterator[ValueRow]:
        """Every value tombstone of a scope."""
        return self._of_scope("values", scope)

    def _of_scope(self, name: str, scope: bytes) -> Iterator[Any]:
        from clawmem_core.storage import ops

        index = bytes(self.sections.blob(f"{name}.s"))
        parts = []
        for at in range(0, len(index) - 40, 40):
            if index[at : at + 32] == scope:
                start, stop = (int.from_bytes(index[place : place + 8], "little") for place in (at + 32, at + 72))
                parts.append(self.sections.values(name, start, stop))
        return (value for part in parts for _, _, value in ops.decode(part))
