"""What a store's HDF5 file holds, read for hashing: tolerant of any edit, and naming what cannot be read.

Invariants: nothing is trusted and nothing is repaired; a column that is missing, too short, of another type or
unreadable becomes a finding, and a row that cannot be read has a leaf of zeros, which no SHA-256 is; links, external
files and virtual datasets are never followed; no column is read whose size its stored bytes cannot justify. Signing and
verifying read through this module alone, so they hash the same bytes. Hash inputs: docs/format.md § 7.
"""

from __future__ import annotations

import h5py
import numpy as np

from clawmem_core.integrity.merkle import RECORD, as_array, encode_rows, hash_rows, tree_levels
from clawmem_core.storage.hdf5_file import FAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from clawmem_core.integrity.merkle import Texts

    #: takes a first row and the columns TEXTS from there on
    Observer = Callable[[int, list[Texts]], None]

#: columns of a record in the order in which they are hashed: dataset of /memory, type, name in reports
NUMBERS: Final = (
    ("tombstones", "u1", "deleted"),
    ("hidden", "u1", "hidden"),
    ("ids", "i8", "index"),
    ("timestamps", "f8", "timestamp"),
    ("activation_weights", "f4", "activation"),
    ("norms", "f4", "norm"),
)
TEXTS: Final = (
    ("embeddings", "vector", "embedding"),
    ("chunks", "text", "chunk"),
    ("source_channel", "text", "source_channel"),
    ("session_ids", "text", "session_id"),
    ("tags", "text", "tags"),
    ("keys", "text", "key"),
    ("source_ids", "text", "source_id"),
)
OPTIONAL: Final = ("hidden", "keys", "source_ids")  # absent means all zero, empty texts
_TOMBSTONES, _HIDDEN, _IDS = range(3)

_BLOCK: Final = 8192  # rows read at a time
_HASHED: Final = 1024  # rows hashed at a time, and read of wide columns: what the cache of a processor holds
_NARROW: Final = 64  # bytes of a fixed-width text in a column that is read in whole blocks
_LEAST: Final = 64  # rows given up together where a block cannot be read
_DEFLATE_LIMIT: Final = 1032  # deflate cannot expand more than this


class Findings:
    """Findings in the order they were made: dictionaries with code, severity, message and details."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def add(self, code: str, message: str, *, severity: str = "error", **details: Any) -> None:
        """Note an `error` (what was signed does not hold) or a `warning` (worth knowing, still valid)."""
        self.items.append({"code": code, "severity": severity, "message": message, **details})

    @property
    def valid(self) -> bool:
        """Whether there is no error among them."""
        return all(item["severity"] != "error" for item in self.items)


class Rows:
    """The records of a file, in file order.

    `numbers`: the columns NUMBERS; `ids` i64[N] is one of them. `deleted` bool[N]. `leaves` u8[N, 32]. `unreadable`:
    row -> report names of the fields that could not be read. `levels`: Merkle tree over the live records.
    """

    __slots__ = ("deleted", "ids", "leaves", "levels", "numbers", "unreadable")

    def __init__(self, numbers: list[NDArray[Any]]) -> None:
        self.numbers = numbers
        self.ids: NDArray[np.int64] = numbers[_IDS]
        self.deleted: NDArray[np.bool_] = (numbers[_TOMBSTONES] != 0) & (numbers[_HIDDEN] == 0)
        self.leaves = np.zeros((len(self.ids), 32), np.uint8)
        self.unreadable: dict[int, list[str]] = {}
        self.levels: list[NDArray[np.uint8]] = []

    def build_tree(self, before: Sequence[NDArray[np.uint8]]) -> None:
        """Set `levels`, over the live records in ascending id order; `before`: those of an earlier such tree."""
        order = np.argsort(self.ids, kind="stable")
        self.levels = tree_levels(self.leaves[order[~self.deleted[order]]], before)


class StoredColumn:
    """One column of a table: readable by row range, whatever happened to it.

    `kind`: "text", "vector:" and a numpy type code, or a numpy type code. `rows`: its length, 0 where it is missing or
    no such column.
    """

    __slots__ = ("dataset", "kind", "path", "report_name", "rows", "width")

    def __init__(self, group: Any, name: str, kind: str, findings: Findings, optional: bool = False) -> None:
        self.path, self.kind = f"{group.name if group is not None else ''}/{name}", kind
        self.report_name = name
        self.dataset = open_dataset(group, name, findings)
        self.rows = self.width = 0
        if self.dataset is None:
            if not optional:
                findings.add("column-missing", f"{self.path} is missing or cannot be opened", dataset=self.path)
            return
        shape, found = self.dataset.shape, self.dataset.dtype
        if kind == "text":
            fits, right = len(shape) == 1 and is_text(found), True
        elif kind.startswith("vector"):
            fits = len(shape) == 2 and found.kind == "f"
            right = found == np.dtype(kind[7:])
            self.width = shape[1] if fits else 0
        else:
            fits = len(shape) == 1 and found.kind in "iufb"
            right = fits and found == np.dtype(kind).newbyteorder("<")
        if not fits:
            findings.add("column-type", f"{self.path} has type {found} and shape {shape}", dataset=self.path)
            self.dataset = None
            return
        if not right:
            findings.add("column-type", f"{self.path} has type {found}", dataset=self.path)
        self.rows = int(shape[0])

    @property
    def narrow(self) -> bool:
        """Whether its values are short texts."""
        return self.kind == "text" and (self.dataset is None or 0 < self.dataset.dtype.itemsize <= _NARROW)

    def read(self, start: int, stop: int, findings: Findings) -> tuple[Any, list[tuple[int, int]]]:
        """Values of rows start to stop, and the row ranges that failed.

        Numbers are an array, texts a list of bytes, vectors an array u8[rows, size], or a list of bytes where some are
        not there. Rows beyond the column's end and rows that cannot be read hold zero or b"".
        """
        failed: list[tuple[int, int]] = []
        parts = list(self._parts(start, min(stop, self.rows), failed)) if self.dataset is not None else []
        for first, last in failed:
            findings.add(
                "column-unreadable", f"{self.path} cannot be read from row {first} to {last - 1}", dataset=self.path
            )
        missing = stop - max(start, min(stop, self.rows))
        if len(parts) == 1 and not missing:
            return parts[0], failed
        if self.kind == "text" or self.kind.startswith("vector"):
            values = [bytes(value) for part in parts for value in part]
            return values + [b""] * missing, failed
        return np.concatenate([*parts, np.zeros(missing, self.kind)]), failed

    def _parts(self, start: int, stop: int, failed: list[tuple[int, int]]) -> Iterator[Any]:
        if stop <= start:
            return
        try:
            yield self._values(start, stop)
        except FAULTS:
            if stop - start <= _LEAST:
                failed.append((start, stop))
                yield self._blank(stop - start)
                return
            middle = (start + stop) // 2
            yield from self._parts(start, middle, failed)
            yield from self._parts(middle, stop, failed)

    def _values(self, start: int, stop: int) -> Any:
        values = self.dataset[start:stop]
        if self.kind == "text":
            return values.tolist()
        if self.kind.startswith("vector"):
            flat = np.ascontiguousarray(values, self.kind[7:])
            return flat.view(np.uint8).reshape(len(flat), flat.dtype.itemsize * self.width)
        return values.astype(self.kind)

    def _blank(self, count: int) -> Any:
        return [b""] * count if self.kind == "text" or self.kind.startswith("vector") else np.zeros(count, self.kind)


def has(group: Any, name: str) -> bool:
    """Whether a group has something of this name, readable or not."""
    try:
        return name in group
    except FAULTS:
        return True


def is_text(dtype: Any) -> bool:
    """Whether a column of this type holds byte strings."""
    return dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None


def open_dataset(group: Any, name: str, findings: Findings) -> Any:
    """The dataset `name` of `group`, or None where there is none that may be read.

    Links, datasets in other files and sizes that the stored bytes cannot justify become findings.
    """
    if group is None:
        return None
    path = f"{group.name}/{name}"
    try:
        link = group.get(name, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            findings.add("link", f"{path} is a link; it was not followed", dataset=path)
            return None
        found = group[name]
        if not isinstance(found, h5py.Dataset):
            return None
        if found.external or found.is_virtual:
            findings.add("external-data", f"{path} keeps its data in other files; they were not read", dataset=path)
            return None
        stored = found.id.get_storage_size()
        if found.size and found.size * found.dtype.itemsize > stored * _DEFLATE_LIMIT + 65_536:
            findings.add("column-size", f"{path} claims {found.size} values in {stored} bytes", dataset=path)
            return None
    except FAULTS:
        return None
    return found


def open_group(file: Any, name: str) -> Any:
    """The group `name` of the file, or None where there is no such group of its own."""
    try:
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            return None
        found = file[name]
    except FAULTS:
        return None
    return found if isinstance(found, h5py.Group) else None


# ---------------------------------------------------------------- records


class Records:
    """The columns of /memory. `vector_type`: numpy type code of the vectors."""

    __slots__ = ("columns", "count", "findings", "vector_type")

    def __init__(self, file: Any, findings: Findings, float16: bool) -> None:
        self.vector_type = "<f2" if float16 else "<f4"
        group = open_group(file, "memory")
        if group is None:
            findings.add("group-missing", "/memory is missing or cannot be opened", dataset="/memory")
        self.findings = findings
        self.columns: list[StoredColumn] = []
        for name, kind, report_name in (*NUMBERS, *TEXTS):
            if kind == "vector":
                kind = f"vector:{self.vector_type}"
            column = StoredColumn(group, name, kind, findings, optional=group is None or name in OPTIONAL)
            column.report_name = report_name
            self.columns.append(column)
        self.count = max(column.rows for column in self.columns)
        for column in self.columns:
            if column.dataset is not None and column.rows != self.count:
                findings.add(
                    "column-length", f"{column.path} has {column.rows} rows of {self.count}", dataset=column.path
                )

    def numbers(self) -> Rows:
        """All rows with their number columns; the leaves are still zero."""
        failed: dict[int, list[str]] = {}
        found = Rows([self._read(column, 0, self.count, failed) for column in self.columns[: len(NUMBERS)]])
        found.unreadable = failed
        return found

    def texts(self, start: int, stop: int, failed: dict[int, list[str]]) -> list[Texts]:
        """The columns TEXTS of rows start to stop; what cannot be read is added to `failed`."""
        return [self._read(column, start, stop, failed) for column in self.columns[len(NUMBERS) :]]

    def _blocks(self, fresh: NDArray[np.bool_], failed: dict[int, list[str]]) -> Iterator[tuple[int, int, list[Texts]]]:
        """Row ranges that cover the fresh rows, and the columns TEXTS there."""
        columns = self.columns[len(NUMBERS) :]
        for first, last in _runs(fresh):
            whole = {
                place: self._read(column, first, last, failed) for place, column in enumerate(columns) if column.narrow
            }
            for start in range(first, last, _HASHED):
                stop = min(start + _HASHED, last)
                yield start, stop, [
                    whole[place][start - first : stop - first] if place in whole
                    else self._read(column, start, stop, failed)
                    for place, column in enumerate(columns)
                ]  # fmt: skip

    def _read(self, column: StoredColumn, start: int, stop: int, failed: dict[int, list[str]]) -> Any:
        values, ranges = column.read(start, stop, self.findings)
        for first, last in ranges:
            for row in range(first, last):
                failed.setdefault(row, []).append(column.report_name)
        return values

    def rows(self, known: Rows | None = None, changed: Collection[int] = (), observe: Observer | None = None) -> Rows:
        """All rows with their leaf hashes.

        `known`: rows hashed earlier, in ascending id order. Their leaves are taken over where every number is the same
        and the id is not in `changed`: the records whose texts or vector may be others. `observe` sees what is read.
        """
        found = self.numbers()
        fresh = np.ones(self.count, bool)
        if known is not None and len(known.ids) and self.count:
            at = np.minimum(np.searchsorted(known.ids, found.ids), len(known.ids) - 1)
            fresh = np.isin(found.ids, np.fromiter(changed, np.int64, len(changed)))
            for mine, theirs in zip(found.numbers, known.numbers, strict=True):
                fresh |= _bits(mine) != _bits(theirs)[at]
            found.leaves[~fresh] = known.leaves[at[~fresh]]
        for start, stop, texts in self._blocks(fresh, found.unreadable):
            if observe is not None:
                observe(start, texts)
            rows = encode_rows(RECORD, [column[start:stop] for column in found.numbers], texts)
            found.leaves[start:stop] = as_array(hash_rows(rows))
        for row in found.unreadable:
            found.leaves[row] = 0
        found.build_tree(known.levels if known is not None else ())
        return found


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """The values as unsigned integers of their size: equal only where the bytes are."""
    return values.view(f"u{values.dtype.itemsize}")


def _runs(fresh: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Row ranges that cover the fresh rows: neighbouring ones joined, none longer than a block."""
    wanted = np.flatnonzero(fresh)
    if not len(wanted):
        return
    starts = np.flatnonzero(np.diff(wanted, prepend=wanted[0] - _LEAST - 1) > _LEAST)
    ends = np.append(starts[1:], len(wanted))
    for first, last in zip(wanted[starts].tolist(), wanted[ends - 1].tolist(), strict=True):
        for start in range(first, last + 1, _BLOCK):
            yield start, min(start + _BLOCK, last + 1)
