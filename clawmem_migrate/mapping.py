"""What the tables and columns of a source mean: mapping files (TOML), checked key by key.

A mapping names, for each field of a record, session, entity and relation, where its value comes from:

    "column"                                   a column of the table, or "join.column" of a joined one
    { value = 0 }                              the same for every row
    { first = ["content", "id", {value = ""}] }  the first that is not NULL
    { join = ["collection_id", "id"] }         ids only: the parts with "/" between them
    { column = "created", unit = "ms" }        any of these with how to read it (times, vectors, tags)

Invariants: every key is known and of the right kind, or MappingError names it; names are only names here, they reach
SQL through query.py alone, which checks them against the database.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from clawmem_core.errors import MappingError, NotFoundError
from clawmem_core.storage import fs
from clawmem_migrate.names import nearest

SHIPPED = ("clawhdf5", "llm", "memories")
MAX_FILE = 1 << 20

TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
ENCODINGS = ("f32", "f16", "f64", "json", "none")

RECORD_FIELDS = ("id", "chunk", "embedding", "source_channel", "timestamp", "session_id", "tags", "deleted")
SESSION_FIELDS = ("id", "start_idx", "end_idx", "channel", "timestamp", "summary")
ENTITY_FIELDS = ("id", "name", "type", "embedding_idx")
RELATION_FIELDS = ("src", "tgt", "relation", "weight", "timestamp")
TABLES = {
    "records": RECORD_FIELDS, "sessions": SESSION_FIELDS, "entities": ENTITY_FIELDS, "relations": RELATION_FIELDS
}  # fmt: skip
_REQUIRED = {"records": ("id", "chunk"), "sessions": ("id",), "entities": ("id", "name"),
             "relations": ("src", "tgt", "relation")}  # fmt: skip
#: where a field that a mapping leaves out comes from
_ABSENT: dict[str, Any] = {
    "source_channel": "", "timestamp": 0, "session_id": "", "tags": "", "deleted": 0, "start_idx": None,
    "end_idx": None, "channel": "", "summary": "", "type": "", "embedding_idx": None, "weight": None, "embedding": None,
}  # fmt: skip


@dataclass(frozen=True)
class Literal:
    """The same value for every row."""

    value: str | int | float | None


@dataclass(frozen=True)
class Field:
    """Where a value comes from: the first of `parts` that is not NULL; for ids all of them, joined."""

    parts: tuple[str | Literal, ...]


@dataclass(frozen=True)
class Table:
    """One table of the source and its fields by name."""

    table: str
    fields: dict[str, Field]


@dataclass(frozen=True)
class Join:
    """Another table whose row with `key` equal to the records' `on` adds columns."""

    table: str
    key: str
    on: str


@dataclass(frozen=True)
class Mapping:
    """A whole mapping. `tables`: by kind (records always; sessions, entities, relations where the source has them).

    `encoding`, `null_vector` (a NULL embedding is a record without a vector), `tag_list` (a JSON array of texts becomes
    comma-separated) and `time_units` / `time_formats` (by kind) say how stored values are read.
    """

    name: str
    tables: dict[str, Table]
    joins: dict[str, Join] = field(default_factory=dict)
    filters: dict[str, str | int | float] = field(default_factory=dict)
    encoding: str = "f32"
    null_vector: bool = False
    tag_list: bool = False
    time_units: dict[str, str] = field(default_factory=dict)
    time_formats: dict[str, str] = field(default_factory=dict)

    @property
    def records(self) -> Table:
        """The table of the records."""
        return self.tables["records"]

    def with_tables(self, names: dict[str, str | None]) -> Mapping:
        """The same mapping with other table names, by kind. Raises MappingError for a kind it does not have."""
        tables = dict(self.tables)
        for kind, name in names.items():
            if name is not None:
                if kind not in tables:
                    raise MappingError(name=self.name, detail=f"has no [{kind}], so its table cannot be named")
                tables[kind] = replace(tables[kind], table=name)
        return replace(self, tables=tables)


def shipped(name: str) -> Mapping:
    """A mapping that comes with the tool. Raises MappingError for another name."""
    if name not in SHIPPED:
        raise MappingError(name=name, detail=f"is not shipped; there are {', '.join(SHIPPED)}")
    return parse(name, resources.files("clawmem_migrate.mappings").joinpath(f"{name}.toml").read_text("utf-8"))


def from_file(path: str) -> Mapping:
    """The mapping of a TOML file. Raises NotFoundError, MappingError, StorageError."""
    data = fs.read_all(path, MAX_FILE + 1)
    if data is None:
        raise NotFoundError(kind="mapping file", id=path)
    if len(data) > MAX_FILE:
        raise MappingError(name=path, detail=f"is longer than {MAX_FILE} bytes")
    try:
        return parse(path, data.decode())
    except UnicodeDecodeError:
        raise MappingError(name=path, detail="is not UTF-8") from None


def parse(name: str, text: str) -> Mapping:
    """A mapping from TOML text. Raises MappingError naming what is wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MappingError(name=name, detail=f"is not TOML ({error})") from None
    return _Parser(name).mapping(document)


class _Parser:
    """Turns a TOML document into a Mapping, refusing what it does not know."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.options: dict[str, Any] = {}
        self.time_units: dict[str, str] = {}
        self.time_formats: dict[str, str] = {}

    def refuse(self, detail: str) -> MappingError:
        return MappingError(name=self.name, detail=detail)

    def keys(self, where: str, found: Any, known: tuple[str, ...]) -> dict[str, Any]:
        """A table with none but known keys."""
        if not isinstance(found, dict):
            raise self.refuse(f"{where} must be a table")
        for key in found:
            if key not in known:
                raise self.refuse(f"{where} has the unknown key {key!r}{nearest(key, known)}")
        return found

    def text(self, where: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise self.refuse(f"{where} must be a name")
        return value

    def mapping(self, document: dict[str, Any]) -> Mapping:
        self.keys("the file", document, (*TABLES, "join", "filter"))
        if "records" not in document:
            raise self.refuse("has no [records]")
        tables = {kind: self.table(kind, document[kind]) for kind in TABLES if kind in document}
        if "relations" in tables and "entities" not in tables:
            raise self.refuse("has [relations] without [entities]")
        joins = document.get("join", {})
        filters = document.get("filter", {})
        if not isinstance(joins, dict) or not isinstance(filters, dict):
            raise self.refuse("[join] and [filter] must be tables")
        for column, value in filters.items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise self.refuse(f"[filter] {column} must be a text or a number")
        return Mapping(
            self.name, tables, {alias: self.join(alias, found) for alias, found in joins.items()}, dict(filters),
            time_units=self.time_units, time_formats=self.time_formats, **self.options,
        )  # fmt: skip

    def join(self, alias: str, found: Any) -> Join:
        where = f"[join.{alias}]"
        self.keys(where, found, ("table", "key", "on"))
        return Join(*(self.text(f"{where} {key}", found.get(key)) for key in ("table", "key", "on")))

    def table(self, kind: str, found: Any) -> Table:
        known = TABLES[kind]
        self.keys(f"[{kind}]", found, ("table", *known))
        fields = {}
        for name in known:
            if name in found:
                fields[name] = self.field(kind, name, found[name])
            elif name in _REQUIRED[kind]:
                raise self.refuse(f"[{kind}] lacks {name}")
            else:
                fields[name] = Field((Literal(_ABSENT[name]),))
        if kind == "records" and "embedding" not in found:
            self.options["encoding"] = "none"
        return Table(self.text(f"[{kind}] table", found.get("table")), fields)

    def field(self, kind: str, name: str, value: Any) -> Field:
        where = f"[{kind}] {name}"
        if isinstance(value, str):
            return Field((self.text(where, value),))
        settings = {
            "timestamp": ("unit", "format"),
            "embedding": ("encoding", "null") if kind == "records" else (),
            "tags": ("list",),
        }.get(name, ())
        source = ("join",) if name == "id" and kind == "records" else ("value", "first")
        self.keys(where, value, ("column", *source, *settings))
        self.settings(kind, where, {key: value[key] for key in settings if key in value})
        given = [key for key in ("column", *source) if key in value]
        if not given and value.get("encoding") == "none":
            return Field((Literal(None),))
        if len(given) != 1:
            raise self.refuse(f"{where} needs one of {', '.join(('column', *source))}")
        if given[0] == "value":
            return Field((self.literal(where, value),))
        parts = [value["column"]] if given[0] == "column" else value[given[0]]
        if not isinstance(parts, list) or not parts:
            raise self.refuse(f"{where} {given[0]} must be a list of columns")
        return Field(
            tuple(
                self.literal(where, part) if isinstance(part, dict) and given[0] == "first" else self.text(where, part)
                for part in parts
            )
        )

    def literal(self, where: str, found: dict[str, Any]) -> Literal:
        value = found.get("value")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.refuse(f"{where} value must be a text or a number")
        return Literal(value)

    def settings(self, kind: str, where: str, found: dict[str, Any]) -> None:
        """How stored values are read: unit and format of times, encoding of vectors, lists of tags."""
        for key, value in found.items():
            allowed: tuple[Any, ...] = {
                "unit": (*TIME_UNITS, "text", "auto"), "encoding": ENCODINGS, "null": ("refuse", "none"),
                "list": (True, False),
            }.get(key, ())  # fmt: skip
            if allowed and value not in allowed:
                raise self.refuse(f"{where} {key} must be one of {', '.join(map(str, allowed))}")
            if key == "unit":
                self.time_units[kind] = value
            elif key == "format":
                self.time_formats[kind] = self.text(f"{where} format", value)
            elif key == "encoding":
                self.options["encoding"] = value
            elif key == "null":
                self.options["null_vector"] = value == "none"
            else:
                self.options["tag_list"] = value
