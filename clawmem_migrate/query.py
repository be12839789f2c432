"""SQL over a source, made from a mapping.

Invariants: every table and column was looked up in the database before its quoted name enters a statement (SQLite takes
an unknown quoted name for a text), literals go in as parameters, and rows come in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawmem_core.errors import MappingError, SourceLayoutError
from clawmem_migrate.database import Database, quoted
from clawmem_migrate.mapping import Field, Literal, Mapping, Table
from clawmem_migrate.names import nearest

_LOOKUP = 400  # ids of one statement; SQLite's least limit on parameters is 999


class Query:
    """The statements of one mapping over one database. Raises SourceLayoutError for a missing table or column."""

    def __init__(self, database: Database, mapping: Mapping) -> None:
        self._database, self._mapping = database, mapping
        self._existing = database.tables()
        self._columns: dict[str, dict[str, str]] = {}
        self._names = {kind: self._table(table.table) for kind, table in mapping.tables.items()}
        self._joins = {alias: self._table(join.table) for alias, join in mapping.joins.items()}
        self.id_parts = len(mapping.records.fields["id"].parts)
        self._statements = {kind: self._select(kind, table) for kind, table in mapping.tables.items()}

    def _table(self, name: str) -> str:
        """The table's name as the database spells it."""
        found = _folded(self._existing, name)
        if found is None:
            raise SourceLayoutError(
                path=self._database.path, detail=f"has no table {name!r}{nearest(name, self._existing)}"
            )
        if found not in self._columns:
            columns = [column for column, _ in self._database.columns(found)]
            self._columns[found] = {column.casefold(): column for column in columns}
        return found

    def _column(self, table: str, name: str) -> str:
        """A column as a quoted, qualified name. `rowid` is one where no column has that name."""
        known = self._columns[table]
        found = known.get(name.casefold())
        if found is None and name.casefold() != "rowid":
            raise SourceLayoutError(
                path=self._database.path,
                detail=f"table {table!r} has no column {name!r}{nearest(name, list(known.values()))}",
            )
        return quoted(found or "rowid")

    def _reference(self, kind: str, name: str) -> str:
        """A column of the table of `kind`, or of a joined one by `alias.column`."""
        alias, dot, column = name.partition(".")
        own = name.casefold() in self._columns[self._names[kind]]
        if kind == "records" and dot and not own and alias in self._joins:
            return f"{quoted(alias)}.{self._column(self._joins[alias], column)}"
        return f"{quoted(kind)}.{self._column(self._names[kind], name)}"

    def _expression(self, kind: str, field: Field, values: list[Any]) -> str:
        """A field as SQL; its literals are appended to `values`."""
        parts = []
        for part in field.parts:
            if isinstance(part, Literal):
                values.append(part.value)
                parts.append("?")
            else:
                parts.append(self._reference(kind, part))
        return parts[0] if len(parts) == 1 else f"coalesce({', '.join(parts)})"

    def _from(self, kind: str) -> str:
        text = f"{quoted(self._names[kind])} AS {quoted(kind)}"
        if kind == "records":
            for alias, join in self._mapping.joins.items():
                if alias in self._mapping.tables:
                    raise MappingError(name=self._mapping.name, detail=f"[join.{alias}] has the name of a table kind")
                key = f"{quoted(alias)}.{self._column(self._joins[alias], join.key)}"
                on = self._reference(kind, join.on)
                text += f" LEFT JOIN {quoted(self._joins[alias])} AS {quoted(alias)} ON {key} = {on}"
        return text

    def _select(self, kind: str, table: Table) -> tuple[str, str, list[Any], list[str]]:
        """SELECT … FROM …, the WHERE of the filter, parameters, and the expressions rows are ordered by."""
        values: list[Any] = []
        expressions: list[str] = []
        order: list[str] = []
        for name, field in table.fields.items():
            if kind == "records" and name == "id":
                order = [self._reference(kind, str(part)) for part in field.parts]
                expressions += order
            else:
                expressions.append(self._expression(kind, field, values))
        if kind == "records":
            order = [f"{column} COLLATE BINARY" for column in order]
        else:
            order = ["1", "2", "3"] if kind == "relations" else ["1"]
        where = ""
        if kind == "records" and self._mapping.filters:
            where = " AND ".join(f"{self._reference(kind, column)} = ?" for column in self._mapping.filters)
            values += self._mapping.filters.values()
        return f"SELECT {', '.join(expressions)} FROM {self._from(kind)}", where, values, order

    def rows(self, kind: str) -> Iterator[tuple[Any, ...]]:
        """Rows of a kind in id order, fields in the mapping's order; the id of a record takes `id_parts` places."""
        select, where, values, order = self._statements[kind]
        condition = f" WHERE {where}" if where else ""
        return self._database.rows(f"{select}{condition} ORDER BY {', '.join(order)}", tuple(values))

    def records_with(self, ids: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Record rows with these ids (one value per id part), in id order if the ids are."""
        select, where, values, order = self._statements["records"]
        step = _LOOKUP // self.id_parts
        for start in range(0, len(ids), step):
            some = ids[start : start + step]
            marks = ", ".join(["(" + ", ".join("?" * self.id_parts) + ")"] * len(some))
            columns = [self._reference("records", str(part)) for part in self._mapping.records.fields["id"].parts]
            wanted = f"({', '.join(columns)}) IN (VALUES {marks})"
            if self.id_parts == 1:  # so that the primary key is used
                wanted = f"{columns[0]} IN ({', '.join('?' * len(some))})"
            condition = f"{where} AND {wanted}" if where else wanted
            parameters = (*values, *(value for id in some for value in id))
            yield from self._database.rows(f"{select} WHERE {condition} ORDER BY {', '.join(order)}", parameters)

    def count(self, kind: str, *, live: bool = False) -> int:
        """Rows of a kind; with `live` only records whose deleted flag is not 1."""
        select, where, values, _ = self._statements[kind]
        conditions = [where] if where else []
        if live:
            own: list[Any] = []
            deleted = self._expression(kind, self._mapping.records.fields["deleted"], own)
            conditions.append(f"{deleted} IS NOT 1")
            values = values + own
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        (found,) = next(self._database.rows(f"SELECT count(*) FROM ({select}{condition})", tuple(values)))
        return int(found)

    def not_carried(self) -> list[str]:
        """Columns of the records' table that the mapping does not read."""
        used = {part.casefold() for field in self._mapping.records.fields.values() for part in field.parts
                if isinstance(part, str)}  # fmt: skip
        used |= {join.on.casefold() for join in self._mapping.joins.values()}
        return [column for folded, column in self._columns[self._names["records"]].items() if folded not in used]


def _folded(names: Sequence[str], wanted: str) -> str | None:
    """The name that equals `wanted`, exactly or, as SQLite compares names, without regard to case."""
    if wanted in names:
        return wanted
    return next((name for name in names if name.casefold() == wanted.casefold()), None)
