"""Sessions, entities and relations of a source, checked, with indexes and ids turned into the store's.

Session and embedding indexes are ids of rows if every one of them is one, else positions in id order if every one is
smaller than the number of rows, else an error that blames the fewer ones; -1 and NULL mean none. Both kinds become the
*rank* of the row among the migrated ones. A session that begins or ends at a row that is not migrated begins at the
next or ends at the previous one; an entity of such a row has no embedding.

Invariants: entities are numbered from 0 in the order of their source ids; no relation leads to an entity that is not
there; (source, target, type) is unique.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from clawmem_core.door import MAX_CHUNK, MAX_TEXT
from clawmem_core.storage.row_ops import Entity, Relation, Session
from clawmem_migrate.mapping import ENTITY_FIELDS, RELATION_FIELDS, SESSION_FIELDS, Mapping
from clawmem_migrate.refusals import Problem, Refusals
from clawmem_migrate.rows import RowIndex, text_problem
from clawmem_migrate.times import TimeReader
from clawmem_migrate.vectors import storage_class

_FLOAT32_MAX = 3.4028234663852886e38

Row = tuple[Any, ...]


class Graph:
    """What of a source is no record. Record references are ranks; `entity_ids`: the source's id of each entity."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.entities: list[Entity] = []
        self.relations: list[Relation] = []
        self.entity_ids: list[int] = []


class Ranks:
    """Turns indexes of one table into ranks of migrated rows."""

    def __init__(self, index: RowIndex, values: Iterable[Any]) -> None:
        given = {value for value in values if type(value) is int and value != -1}
        self._ids = ids = index.ids
        are_ids = sum(_contains(ids, value) for value in given)
        are_positions = sum(0 <= value < len(ids) for value in given)
        self.as_ids = are_ids == len(given) or (are_positions < len(given) and are_ids >= are_positions)
        self._before = np.concatenate(([0], np.cumsum(np.frombuffer(index.kept, np.uint8), dtype=np.int64)))

    def position(self, value: int) -> int | None:
        """Position of a row in id order, or None where the index is not one of the kind most others are."""
        if self.as_ids:
            return bisect_left(self._ids, value) if _contains(self._ids, value) else None
        return value if 0 <= value < len(self._ids) else None

    def kept(self, position: int) -> bool:
        """Whether the row at a position is migrated."""
        return bool(self._before[position] != self._before[position + 1])

    def first(self, position: int) -> int:
        """Rank of the first migrated row at or after a position."""
        return int(self._before[position])

    def last(self, position: int) -> int:
        """Rank of the last migrated row at or before a position, -1 if there is none."""
        return int(self._before[position + 1]) - 1


def _contains(ids: Any, value: int) -> bool:
    at = bisect_left(ids, value)
    return at < len(ids) and ids[at] == value


class GraphReader:
    """Reads and checks the tables of one mapping that are not the records."""

    def __init__(self, mapping: Mapping, index: RowIndex, refusals: Refusals) -> None:
        self._mapping, self._index, self._refusals = mapping, index, refusals
        self.total: dict[str, int] = {}
        self.graph = Graph()

    def read(self, kind: str, rows: Iterator[Row]) -> None:
        """Read one table. Entities come before relations."""
        held = list(rows)
        self.total[kind] = len(held)
        {"sessions": self._sessions, "entities": self._entities, "relations": self._relations}[kind](held)

    def _columns(self, kind: str, names: tuple[str, ...]) -> list[str]:
        fields = self._mapping.tables[kind].fields
        return [next((part for part in fields[name].parts if isinstance(part, str)), name) for name in names]

    def _times(self, kind: str, column: str) -> TimeReader:
        unit, pattern = self._mapping.time_units.get(kind, "s"), self._mapping.time_formats.get(kind, "")
        return TimeReader(column, unit, pattern, null=0.0)

    def _refuse(self, kind: str, row: int | str | None, problems: list[Problem], values: Row, names: list[str]) -> None:
        self._refusals.add(kind, row, problems, dict(zip(names, values, strict=True)))

    def _sessions(self, rows: list[Row]) -> None:
        names = self._columns("sessions", SESSION_FIELDS)
        times = self._times("sessions", names[4])
        ranks = Ranks(self._index, (value for row in rows for value in row[1:3]))
        seen: set[str] = set()
        for row in rows:
            id, start, end, channel, timestamp, summary = row
            problems = _text(names[0], id, MAX_TEXT, null=False, empty=False)
            if id in seen:
                problems.append(Problem(names[0], f"{id!r} stands twice", "give each session an id of its own"))
            problems += _text(names[3], channel, MAX_TEXT) + _text(names[5], summary, MAX_CHUNK)
            seconds = times.one(timestamp)
            first = self._index_of(names[1], start, ranks, problems)
            last = self._index_of(names[2], end, ranks, problems)
            first, last = (last if first is None else first), (first if last is None else last)
            if not problems and first is not None and last is not None and last < first:
                problems.append(Problem(names[2], f"{end} lies before {names[1]} {start}", "exchange them"))
            if isinstance(seconds, Problem):
                problems.append(seconds)
            elif not problems:
                seen.add(id)
                self.graph.sessions.append(
                    Session(id, *_range(ranks, first, last), channel or "", summary or "", seconds)
                )
                continue
            self._refuse("sessions", id if isinstance(id, str) else None, problems, row, names)

    def _index_of(self, column: str, value: Any, ranks: Ranks, problems: list[Problem]) -> int | None:
        """Position of the row an index means, None for none; problems are added to the list."""
        if value is None or (type(value) is int and value == -1):
            return None
        if type(value) is not int:
            problems.append(Problem(column, f"is {storage_class(value)}, INTEGER is expected", "store a row's id"))
            return None
        position = ranks.position(value)
        if position is None:
            what = (
                f"{value} is the id of no row"
                if ranks.as_ids
                else f"{value} is no position in {len(self._index.ids)} rows"
            )
            problems.append(Problem(column, what, "let all indexes be ids of rows, or all be positions in id order"))
        return position

    def _entities(self, rows: list[Row]) -> None:
        names = self._columns("entities", ENTITY_FIELDS)
        ranks = Ranks(self._index, (row[3] for row in rows))
        last: Any = None
        for row in rows:
            id, name, kind, embedding = row
            problems = []
            if type(id) is not int:
                problems.append(Problem(names[0], f"is {storage_class(id)}, INTEGER is expected", "give it a number"))
            elif id == last:
                problems.append(Problem(names[0], f"{id} stands twice", "give each entity an id of its own"))
            last = id
            problems += _text(names[1], name, MAX_TEXT, null=False, empty=False)
            problems += _text(names[2], kind, MAX_TEXT, null=False)
            position = self._index_of(names[3], embedding, ranks, problems)
            if problems:
                self._refuse("entities", id if isinstance(id, int | str) else None, problems, row, names)
                continue
            record = ranks.last(position) if position is not None and ranks.kept(position) else -1
            self.graph.entities.append(Entity(len(self.graph.entities), name, kind, record))
            self.graph.entity_ids.append(id)

    def _relations(self, rows: list[Row]) -> None:
        names = self._columns("relations", RELATION_FIELDS)
        times = self._times("relations", names[4])
        number = {id: at for at, id in enumerate(self.graph.entity_ids)}
        seen: set[tuple[int, int, str]] = set()
        for row in rows:
            source, target, kind, weight, timestamp = row
            problems = _end(names[0], source, number) + _end(names[1], target, number)
            problems += _text(names[2], kind, MAX_TEXT, null=False)
            seconds, strength = times.one(timestamp), _weight(names[3], weight)
            problems += [value for value in (seconds, strength) if isinstance(value, Problem)]
            if not problems and (source, target, kind) in seen:
                problems.append(Problem(names[2], "the same two entities have it twice", "keep one of the rows"))
            if problems or isinstance(seconds, Problem) or isinstance(strength, Problem):
                label = " ".join("NULL" if part is None else str(part) for part in (source, kind, target))
                self._refuse("relations", label, problems, row, names)
                continue
            seen.add((source, target, kind))
            self.graph.relations.append(Relation(number[source], number[target], kind, strength, seconds))


def _range(ranks: Ranks, first: int | None, last: int | None) -> tuple[int, int]:
    """Ranks of the first and last migrated row between two positions, (-1, -1) if there is none."""
    if first is None or last is None:
        return -1, -1
    start, end = ranks.first(first), ranks.last(last)
    return (start, end) if start <= end else (-1, -1)


def _text(column: str, value: Any, limit: int, *, null: bool = True, empty: bool = True) -> list[Problem]:
    """What is wrong with a text, as a list of one problem or none."""
    if value is None:
        return [] if null else [Problem(column, "is NULL", "give it a value")]
    if value == "" and not empty:
        return [Problem(column, "is empty", "give it a value")]
    problem = text_problem(column, value, limit)
    return [] if problem is None else [problem]


def _end(column: str, value: Any, number: dict[int, int]) -> list[Problem]:
    if type(value) is not int:
        return [Problem(column, f"is {storage_class(value)}, INTEGER is expected", "store an entity's id")]
    if value not in number:
        return [Problem(column, f"{value} is the id of no entity", "add the entity, or delete the relation")]
    return []


def _weight(column: str, value: Any) -> float | Problem:
    """A relation's weight rounded to float32, 1.0 for NULL."""
    if value is None:
        return 1.0
    if type(value) not in (int, float):
        return Problem(column, f"is {storage_class(value)}, a number is expected", "store a number")
    if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
        return Problem(column, f"is {value}, no float32 number", "store a finite number")
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
