"""That a store gives back what its source holds: hashes of every row on both sides, and the names of those that differ.

The digest of a side is SHA-256 over the ascending list of its rows' hashes, so it does not depend on the order rows are
read in, and anybody can recompute it (docs/migrate.md § Canonical form).

Invariants: two sides are equal if and only if their digests are (up to SHA-256); memory is 32 bytes a row and side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.storage.columns import Columns
from clawmem_core.storage.row_ops import Entity, Relation, Session
from clawmem_migrate.batch import Batch
from clawmem_migrate.refusals import printable

MAX_NAMED = 1000  # differences that are listed; all are counted

Batches = Callable[[], Iterator[Batch]]


class Side:
    """The row hashes of one side."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._digest = ""
        self.rows = 0

    def add(self, hashes: Iterable[bytes]) -> None:
        """Add rows."""
        data = b"".join(hashes)
        self._bytes += data
        self._digest = ""
        self.rows += len(data) // 32

    def _sorted(self) -> npt.NDArray[Any]:
        words = np.frombuffer(self._bytes, ">u8").reshape(-1, 4)
        return words[np.lexsort((words[:, 3], words[:, 2], words[:, 1], words[:, 0]))]

    def digest(self) -> str:
        """The side's digest in hex."""
        if not self._digest:
            self._digest = sha256(self._sorted().data).hexdigest()
        return self._digest

    def only_here(self, other: Side) -> set[bytes]:
        """Hashes of rows that the other side has not."""
        theirs = {bytes(other._bytes[at : at + 32]) for at in range(0, len(other._bytes), 32)}
        mine = (bytes(self._bytes[at : at + 32]) for at in range(0, len(self._bytes), 32))
        return {one for one in mine if one not in theirs}


class Differences:
    """What differs between source and store. `count`: all of it; `named`: the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.named: list[dict[str, Any]] = []

    def add(self, table: str, row: str, field: str, source: Any, store: Any) -> None:
        """Note one difference; None on a side that has no such row."""
        self.count += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(
                {"table": table, "row": row, "field": field, "source": _shown(source), "store": _shown(store)}
            )


def _shown(value: Any) -> Any:
    value = printable(value)
    return value[:200] + "…" if isinstance(value, str) and len(value) > 200 else value


def compare_rows(source: Side, store: Side, read_source: Batches, read_store: Batches, found: Differences) -> None:
    """Name what differs between two sides whose digests differ, by reading both once more."""
    if source.digest() == store.digest():
        return
    before = found.count
    wanted, held = (
        _rows(read, only)
        for read, only in ((read_source, source.only_here(store)), (read_store, store.only_here(source)))
    )
    for row, values in wanted.items():
        other = held.pop(row, None)
        if other is None:
            found.add("records", row, "", "present", None)
            continue
        for field, value in values.items():
            if value != other[field]:
                found.add("records", row, field, value, other[field])
    for row in held:
        found.add("records", row, "", None, "present")
    if found.count == before:  # equal rows in unequal numbers
        found.add("records", "", "count", source.rows, store.rows)


def _rows(read: Batches, hashes: set[bytes]) -> dict[str, dict[str, Any]]:
    """The rows with these hashes, by source id; as many as are named."""
    found: dict[str, dict[str, Any]] = {}
    for batch in read():
        for at, one in enumerate(batch.hashes()):
            if one in hashes and len(found) < MAX_NAMED:
                found[batch.source_ids[at]] = batch.row(at)
    return found


def compare_graph(
    sessions: Iterable[Session], entities: Iterable[Entity], relations: Iterable[Relation], columns: Columns,
    found: Differences,
) -> None:  # fmt: skip
    """Name every session, entity and relation that the store does not hold as given; it may hold others besides."""
    tables: tuple[tuple[str, Iterable[Any], Iterable[Any], Callable[[Any], Any]], ...] = (
        ("sessions", sessions, columns.session_rows, lambda row: row.id),
        ("entities", entities, columns.entity_rows, lambda row: row.id),
        ("relations", relations, columns.relation_rows, lambda row: (row.source, row.target, row.type)),
    )
    for table, wanted, held, key in tables:
        there = {key(row): row for row in held}
        for row in wanted:
            other = there.get(key(row))
            if other is None:
                found.add(table, str(key(row)), "", "present", None)
                continue
            for field in row.__slots__:
                mine, theirs = getattr(row, field), getattr(other, field)
                if mine != theirs:
                    found.add(table, str(key(row)), field, mine, theirs)
