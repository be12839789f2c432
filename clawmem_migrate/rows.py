"""Rows of a source's record table, checked and turned into batches.

Invariants: a row is handed on exactly as stored or refused with all its problems; both passes over a source run this
same code, so what preflight accepted is what is written. A batch is first tested column by column; only one that fails
is looked at row by row, and the two tests agree (tests/migrate/test_rows.py). Memory is bounded by bytes, not rows.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from itertools import islice
from sys import getsizeof
from typing import Any

from clawmem_core.door import MAX_CHUNK, MAX_TEXT
from clawmem_core.errors import InternalError
from clawmem_migrate.batch import Batch
from clawmem_migrate.mapping import RECORD_FIELDS, Field, Mapping
from clawmem_migrate.refusals import Problem, Refusals
from clawmem_migrate.times import TimeReader
from clawmem_migrate.vectors import VectorReader, storage_class

BATCH_ROWS = 2048
BATCH_BYTES = 1 << 20
_ROW_BY_ROW = 64
_STEP = 32  # rows taken before their size is looked at
_TEXT_OR_NULL = {str, type(None)}

Row = tuple[Any, ...]


def batches_of(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows in groups of bounded size."""
    group: list[Row] = []
    size = 0
    while some := list(islice(rows, _STEP)):
        group += some
        size += _size(some)
        if size >= BATCH_BYTES or len(group) >= BATCH_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _size(rows: list[Row]) -> int:
    """About how many bytes the texts and blobs of some rows hold."""
    size = 0
    for column in zip(*rows, strict=True):
        try:
            size += sum(map(len, column))
        except TypeError:  # numbers, or NULLs among texts
            size += sum(map(getsizeof, column))
    return size


class RowReader:
    """Turns the rows of a query (fields in the mapping's order, ids first) into batches.

    `dim` None: taken from the first row, in id order, that is to be migrated and holds a vector; `dim_from` is its id.
    `skip_deleted` leaves rows out whose flag is 1, whatever else is wrong with them. Counters: `total` rows seen,
    `left_out`, `accepted`. With `index` given, every row is noted there. `only_check`: the vectors of the batches are
    not in the width of a store.
    """

    def __init__(
        self, mapping: Mapping, *, float16: bool, dim: int | None = None, skip_deleted: bool = False,
        refusals: Refusals | None = None, index: RowIndex | None = None, only_check: bool = False,
    ) -> None:  # fmt: skip
        fields = mapping.records.fields
        names = {name: _label(name, field) for name, field in fields.items()}
        self.names = [*map(str, fields["id"].parts), *(names[name] for name in RECORD_FIELDS[1:])]
        self._ids = len(fields["id"].parts)
        self._label = names
        self._vectors = VectorReader(
            names["embedding"], mapping.encoding, mapping.null_vector, float16, dim, only_check
        )
        unit, pattern = mapping.time_units.get("records", "s"), mapping.time_formats.get("records", "")
        self._times = TimeReader(names["timestamp"], unit, pattern)
        self._tag_list = mapping.tag_list
        self._skip_deleted = skip_deleted
        self._refusals, self._index = refusals, index
        self._last: Row = ()
        self._kinds: tuple[type, ...] = ()
        self.dim_from: str | None = None
        self.total = self.left_out = self.accepted = 0
        #: source ids of the rows left out, where somebody wants to know them
        self.left_out_ids: list[str] | None = None

    @property
    def dim(self) -> int | None:
        """Length of the vectors, None while no row told."""
        return self._vectors.dim

    def batches(self, rows: Iterator[Row]) -> Iterator[Batch]:
        """The good rows, in order. Bad ones go to `refusals`."""
        for group in batches_of(rows):
            if self._vectors.dim is None:
                self._detect_dim(group)
            self.total += len(group)
            for batch in self._checked(group):
                if len(batch):
                    self.accepted += len(batch)
                    yield batch

    def _detect_dim(self, group: list[Row]) -> None:
        for row in group:
            if not self._is_left_out(row):
                found = self._vectors.length(row[self._ids + 1])
                if found is not None:
                    self._vectors.dim, self.dim_from = found, self._source_id(row)
                    return

    # ------------------------------------------------------------ a whole batch

    def _checked(self, group: list[Row]) -> Iterator[Batch]:
        """The good rows of a group; where a value has a problem, the group is halved until few rows are left."""
        batch = self._plain(group)
        if batch is not None:
            yield batch
        elif len(group) > _ROW_BY_ROW:
            half = len(group) // 2
            yield from self._checked(group[:half])
            yield from self._checked(group[half:])
        else:
            batch = self._columns(self._sift(group))
            if batch is None:
                raise InternalError(detail="rows without a problem make no batch")
            yield batch

    def _plain(self, group: list[Row]) -> Batch | None:
        """The common case: ids are whole numbers in strictly ascending order, and no column has a problem."""
        ids = [row[0] for row in group]
        if self._ids != 1 or set(map(type, ids)) != {int} or self._kinds not in ((), (int,)):
            return None
        if (self._last and self._last[0] >= ids[0]) or not all(map(int.__lt__, ids, ids[1:])):
            return None
        kept = [row for row in group if not self._is_left_out(row)]
        batch = self._columns(kept)
        if batch is not None:
            self._last, self._kinds = (ids[-1],), (int,)
            if len(kept) < len(group):
                self._leave_out([row for row in group if self._is_left_out(row)])
            if self._index is not None:
                self._index.extend(ids, bytes([not self._is_left_out(row) for row in group]))
        return batch

    def _leave_out(self, rows: list[Row]) -> None:
        self.left_out += len(rows)
        if self.left_out_ids is not None:
            self.left_out_ids.extend(map(self._source_id, rows))

    def _is_left_out(self, row: Row) -> bool:
        return self._skip_deleted and type(row[-1]) is int and row[-1] == 1

    def _columns(self, group: list[Row]) -> Batch | None:
        """The rows as a batch, or None where any value has a problem."""
        at = self._ids
        columns: list[Any] = list(zip(*group, strict=True)) if group else [()] * (at + len(RECORD_FIELDS) - 1)
        chunks = _texts(columns[at], MAX_CHUNK)
        if chunks is None or None in columns[at] or "" in columns[at]:
            return None
        channels, sessions, tags = (_texts(columns[at + n], MAX_TEXT) for n in (2, 4, 5))
        if channels is None or sessions is None or tags is None:
            return None
        if self._tag_list:
            tags = [joined_tags(value) for value in tags]
        deleted = columns[at + 6]
        if not (set(map(type, deleted)) <= {int} and set(deleted) <= {0, 1}):
            return None
        timestamps = self._times.read(list(columns[at + 3]))
        vectors = self._vectors.read(list(columns[at + 1]))
        if timestamps is None or vectors is None:
            return None
        source_ids = list(map(str, columns[0])) if at == 1 else [self._source_id(row) for row in group]
        return Batch(source_ids, chunks, channels, sessions, tags, timestamps, list(map(bool, deleted)), *vectors)

    # ------------------------------------------------------------ row by row

    def _sift(self, group: list[Row]) -> list[Row]:
        """The rows of a batch that have no problem; the others are refused, left-out ones counted."""
        good = []
        for row in group:
            problems = self._id_problems(row)
            if self._is_left_out(row) and not problems:
                self._leave_out([row])
                keep = False
            else:
                problems += self.problems(row)
                keep = not problems
                if problems and self._refusals is not None:
                    single = row[0] if self._ids == 1 else self._source_id(row)
                    label = single if isinstance(single, int | str) else None
                    self._refusals.add("records", label, problems, dict(zip(self.names, row, strict=True)))
            if keep:
                good.append(row)
            if self._index is not None and self._ids == 1 and type(row[0]) is int:
                self._index.extend([row[0]], bytes([keep]))
        return good

    def _source_id(self, row: Row) -> str:
        return "/".join(map(str, row[: self._ids]))

    def _id_problems(self, row: Row) -> list[Problem]:
        """Ids are whole numbers or texts, of one kind throughout, and unique."""
        ids, column = row[: self._ids], "+".join(self.names[: self._ids])
        kinds = tuple(map(type, ids))
        if not set(kinds) <= {int, str}:
            wrong = next(value for value in ids if type(value) not in (int, str))
            return [Problem(column, f"is {storage_class(wrong)}, INTEGER or TEXT is expected", "give the row an id")]
        if self._kinds and kinds != self._kinds:
            return [Problem(column, f"is {storage_class(ids[0])}, other rows have another kind", "use one kind of id")]
        self._kinds = kinds
        if ids == self._last:
            return [Problem(column, f"{self._source_id(row)} stands twice", "give each row an id of its own")]
        self._last = ids
        found = [problem for value in ids if type(value) is str and (problem := text_problem(column, value, MAX_TEXT))]
        if any(value == "" for value in ids):
            found.append(Problem(column, "is empty", "give the row an id"))
        if any(type(value) is str and "/" in value for value in ids[:-1]):
            found.append(Problem(column, 'holds "/", which joins the parts of an id', "map another id"))
        return found

    def problems(self, row: Row) -> list[Problem]:
        """Everything that is wrong with a row, its id aside."""
        chunk, embedding, channel, seconds, session, tags, deleted = row[self._ids :]
        found: list[Problem | None] = []
        if chunk is None or chunk == "":
            what = "is NULL" if chunk is None else "is empty"
            found.append(Problem(self._label["chunk"], what, "give the row its text, or delete it"))
        else:
            found.append(text_problem(self._label["chunk"], chunk, MAX_CHUNK))
        found.append(self._vectors.problem(embedding))
        for name, value in (("source_channel", channel), ("session_id", session), ("tags", tags)):
            if value is not None:
                found.append(text_problem(self._label[name], value, MAX_TEXT))
        time = self._times.one(seconds)
        found.append(time if isinstance(time, Problem) else None)
        if type(deleted) is not int or deleted not in (0, 1):
            what = f"is {deleted}" if type(deleted) in (int, float) else f"is {storage_class(deleted)}"
            found.append(Problem(self._label["deleted"], f"{what}, 0 or 1 is expected", "set it to 0 or 1"))
        return [problem for problem in found if problem is not None]


class RowIndex:
    """Every row of a source by id and by position: what session and embedding indexes refer to.

    `ids`: ascending ids of all rows, refused and left-out ones included; `kept`: 1 where the row is migrated.
    """

    def __init__(self) -> None:
        self.ids = array("q")
        self.kept = bytearray()

    def extend(self, ids: list[int], kept: bytes) -> None:
        """Note rows in id order."""
        self.ids.extend(ids)
        self.kept += kept


def _label(name: str, field: Field) -> str:
    """The source's word for a field: its column, or the field's own name where it is a literal."""
    return next((part for part in field.parts if isinstance(part, str)), name)


def _texts(values: tuple[Any, ...], limit: int) -> list[str] | None:
    """A column of texts with "" for NULL; None where one cannot be stored."""
    if not set(map(type, values)) <= _TEXT_OR_NULL:
        return None
    texts = list(values)
    if None in texts:
        texts = [value or "" for value in texts]
    if "\0" in "".join(texts):
        return None
    if texts and max(map(len, texts)) * 4 > limit and any(len(text.encode()) > limit for text in texts):
        return None
    return texts


def text_problem(column: str, value: Any, limit: int) -> Problem | None:
    """Why a value cannot be stored as a text, or None."""
    if type(value) is not str:
        return Problem(column, f"is {storage_class(value)}, TEXT is expected", "store it as UTF-8 text")
    if "\0" in value:
        return Problem(column, f"holds NUL at position {value.index(chr(0))}", "take it out; HDF5 texts cannot keep it")
    size = len(value.encode())
    if size > limit:
        return Problem(column, f"has {size} bytes, the limit is {limit}", "split or shorten it")
    return None


def joined_tags(value: str) -> str:
    """A JSON array of texts as comma-separated tags; any other text as it is."""
    if value[:1] != "[":
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    good = isinstance(found, list) and all(isinstance(tag, str) and _storable(tag) for tag in found)
    return ",".join(found) if good else value


def _storable(text: str) -> bool:
    """Whether a text from a JSON escape is free of NUL and lone surrogates."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
