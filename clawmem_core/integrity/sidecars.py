"""Do the derived files say what the HDF5 file says?

Searches and recalls are answered from `<store>.idx`, so whoever can edit it can lie without touching the signed file.

Invariants: a derived file that belongs to this checkpoint must be whole and agree with the HDF5 file, else there is an
error; one of another checkpoint is ignored by every reader and only worth a warning; a missing one is nothing.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from zlib import crc32

import numpy as np

from clawmem_core.errors import DamagedError, StorageError
from clawmem_core.integrity import index_meaning
from clawmem_core.integrity.content import NUMBERS, TEXTS
from clawmem_core.search import ann_file
from clawmem_core.search import index_format as form
from clawmem_core.search.index_build import BLOCK, header_of, normalised
from clawmem_core.search.index_reader import IndexReader, UnusableIndex
from clawmem_core.storage import derived, fs, keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    from clawmem_core.integrity.check import Check
    from clawmem_core.integrity.content import Findings
    from clawmem_core.integrity.merkle import Texts
    from clawmem_core.model import Record
    from clawmem_core.storage.columns import Columns
    from clawmem_core.storage.paths import StorePaths

_TEXT_AT: Final = {name: at for at, (_, _, name) in enumerate(TEXTS)}
_NUMBER_AT: Final = {name: at for at, (_, _, name) in enumerate(NUMBERS)}
_BLOBS: Final = {"chunk": "text", "key": "key", "source_id": "src_id"}  # report name -> section of texts by row
_CODED: Final = {"source_channel": ("chan", "chans"), "tags": ("tag", "tags"), "session_id": ("session", "ses")}
_HEADER: Final = ("store_id", "mark", "flags", "h5_id_offset", "generation", "state", "dim", "rows")
_NEAR: Final = 1e-3  # of a number of a unit vector: single precision, computed elsewhere
_KEYS_ID: Final = slice(16, 32)  # checkpoint id in the header of a key table

#: what a malformed but well-checksummed index may raise when it is used
FAULTS: Final = (UnusableIndex, DamagedError, ValueError, LookupError, TypeError, OverflowError, struct.error)


class IndexCheck:
    """Compares the index with the records while these are hashed.

    `observe` takes the texts of a row range, `finish` the rest; `copy` gives the index's version of a record.
    """

    def __init__(self, paths: StorePaths, findings: Findings) -> None:
        self.path, self._findings = paths.index, findings
        self._reader: IndexReader | None = None
        self._h5_fd = self._fd = -1
        self._map: Any = None
        self._differing: dict[int, list[str]] = {}  # row -> fields
        self._tables: dict[str, list[bytes]] = {}
        self._column: dict[str, NDArray[Any]] = {}

    @classmethod
    def open(cls, paths: StorePaths, h5_fd: int, checkpoint_id: bytes, findings: Findings) -> IndexCheck:
        """The check of the index beside a store; it does nothing where there is none, or one of another checkpoint."""
        found = cls(paths, findings)
        fd = fs.open_existing(paths.index)
        if fd is None:
            return found
        found._fd, found._h5_fd = fd, h5_fd
        try:
            size = fs.fstat(fd).st_size
            if size < form.HEADER_SIZE:
                raise UnusableIndex("cut short")
            found._map = fs.map_file(fd, size)
            reader = IndexReader(found._map, h5_fd)
            reader.sections.check(0, reader.header.pages_offset)
        except UnusableIndex as error:
            findings.add("index-damaged", f"the index is damaged: {error}", file=paths.index)
            return found
        header = reader.header
        if reader.checkpoint_id != checkpoint_id:
            # readers find the id of the file where the index says it is
            if fs.pread(h5_fd, len(header.checkpoint_id), header.h5_id_offset) == header.checkpoint_id:
                found._differs("it takes other bytes of it for the checkpoint id")
                return found
            message = "the index is of another checkpoint; it is not used"
            findings.add("index-stale", message, severity="warning", file=paths.index)
            return found
        found._reader = reader
        return found

    def close(self) -> None:
        """Close the index."""
        self._column.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._map = None  # unmapped with the last view of it
        if self._fd >= 0:
            fs.close(self._fd)

    def copy(self, id: int) -> Record | None:
        """What the index holds of a record, or None."""
        if self._reader is None:
            return None
        try:
            row = self._reader.row_of(id)
            return self._reader.record(row) if row >= 0 else None
        except (*FAULTS, StorageError):
            return None

    # ------------------------------------------------------------ records

    def observe(self, start: int, texts: Sequence[Texts]) -> None:
        """Compare the texts of rows from `start` on."""
        if self._reader is None:
            return
        for name in (*_BLOBS, *_CODED):
            column = texts[_TEXT_AT[name]]
            assert not isinstance(column, np.ndarray)  # only vectors are
            self._compare(name, start, column)

    def _compare(self, name: str, start: int, expected: Sequence[bytes]) -> None:
        try:
            if name in _BLOBS and self._same_blob(_BLOBS[name], start, expected):
                return
            found = self._texts(name, start, start + len(expected))
        except FAULTS:
            found = []
        if found == expected:
            return
        for at, value in enumerate(expected):
            if at >= len(found) or found[at] != value:
                self._differing.setdefault(start + at, []).append(name)

    def _same_blob(self, section: str, start: int, expected: Sequence[bytes]) -> bool:
        """Whether rows of a text section are as expected, without cutting them apart."""
        joined = b"".join(expected)
        offsets = self._numbers(f"{section}.o")
        if not len(offsets):
            return not joined
        ends = offsets[start : start + len(expected) + 1].astype(np.int64)
        lengths = np.fromiter(map(len, expected), np.int64, len(expected))
        same = np.array_equal(np.diff(ends), lengths)
        # as bytes: comparing a memoryview goes element by element
        return same and bytes(self._sections.values(section, int(ends[0]), int(ends[-1]))) == joined

    def _texts(self, name: str, start: int, stop: int) -> list[bytes]:
        """Rows of a text column of the index."""
        return self._blob(_BLOBS[name], start, stop) if name in _BLOBS else self._coded(*_CODED[name], start, stop)

    def _blob(self, section: str, start: int, stop: int) -> list[bytes]:
        """Rows of a text section."""
        offsets = self._numbers(f"{section}.o")
        if not len(offsets):
            return [b""] * (stop - start)
        ends = offsets[start : stop + 1].tolist()
        data = bytes(self._sections.values(section, ends[0], ends[-1]))
        first = ends[0]
        return [data[low - first : high - first] for low, high in pairwise(ends)]

    def _coded(self, codes: str, table: str, start: int, stop: int) -> list[bytes]:
        """Rows of a section of numbers that stand for strings."""
        strings = self._strings(table)
        numbers = self._numbers(codes)
        if not len(numbers):
            return [strings[0]] * (stop - start)
        return [strings[code] for code in numbers[start:stop].tolist()]

    def _strings(self, table: str) -> list[bytes]:
        if table not in self._tables:
            data = bytes(self._sections.blob(table))
            self._tables[table] = [data[low:high] for low, high in pairwise(self._numbers(f"{table}.o").tolist())]
        return self._tables[table]

    def _numbers(self, section: str) -> NDArray[Any]:
        if section not in self._column:
            found = self._sections.column(section)
            self._column[section] = np.asarray(found) if found is not None else np.zeros(0, np.uint8)
        return self._column[section]

    @property
    def _sections(self) -> Any:
        assert self._reader is not None
        return self._reader.sections

    # ------------------------------------------------------------ the rest

    def finish(self, found: Check, columns: Columns, full: bool) -> str:
        """Compare columns, tables and settings, with `full` vectors and words too; report every difference.

        Where the file is not what was signed, only the records are compared: the index may be the better copy. Returns
        how much was compared: "nothing", "columns" or "everything".
        """
        if self._reader is None or found.rows is None:
            return "nothing"
        as_signed = self._findings.valid
        try:
            self._rows(found)
            if not as_signed:
                return "nothing"
            self._content(columns, full)
        except FAULTS as error:
            self._differs(f"it cannot be read: {error}")
        return "everything" if full else "columns"

    def _differs(self, what: str, **details: Any) -> None:
        self._findings.add(
            "index-differs", f"the index is not that of the HDF5 file: {what}", file=self.path, **details
        )

    def _rows(self, found: Check) -> None:
        rows, reader = found.rows, self._reader
        assert rows is not None and reader is not None
        ids = self._numbers("id")
        mine = ids if len(ids) else np.arange(reader.count, dtype=np.int64)
        if not np.array_equal(mine, rows.ids):
            if not (found.missing or found.added or found.reordered or found.changed):
                self._differs("it holds other records")
            return
        norms = rows.numbers[_NUMBER_AT["norm"]]
        flags = np.where(norms > 0, 0, form.HAS_NO_VECTOR) | np.where(rows.deleted, form.IS_DELETED, 0)
        for name, section, default, values in (
            ("timestamp", "time", 0.0, rows.numbers[_NUMBER_AT["timestamp"]]),
            ("activation", "act", 1.0, rows.numbers[_NUMBER_AT["activation"]]),
            ("deleted", "flags", 0, flags),
        ):
            numbers = self._numbers(section)
            theirs = numbers if len(numbers) else np.full(reader.count, default)
            for row in np.flatnonzero(theirs != values).tolist():
                self._differing.setdefault(row, []).append(name)
        changed = set(found.changed)
        differing = {int(rows.ids[row]): names for row, names in self._differing.items() if row < len(rows.ids)}
        lies = {id: names for id, names in sorted(differing.items()) if id not in changed}
        if lies:
            shown = ", ".join(f"{id} ({', '.join(names)})" for id, names in list(lies.items())[:10])
            self._differs(f"record {shown}", records=list(lies))

    def _content(self, columns: Columns, full: bool) -> None:
        reader = self._reader
        assert reader is not None
        header = reader.header
        expected = header_of(columns, header.h5_size, header.h5_mtime_ns)
        if any(getattr(header, name) != getattr(expected, name) for name in _HEADER):
            self._differs("its header")
        differ = index_meaning.columns_differ(reader, columns)
        for part in (*differ, *(index_meaning.words_differ(reader, columns) if full else ())):
            self._differs(part)


# ---------------------------------------------------------------- the key table


def check_keys(paths: StorePaths, columns: Columns, findings: Findings) -> None:
    """Check every page of `<store>.keys`, and that it holds the keys of the HDF5 file and no others."""
    data = fs.read_all(paths.keys, fs.size(paths.keys))
    if data is None:
        return
    if not _whole_keys(data):
        findings.add("keys-damaged", "the key table is damaged", file=paths.keys)
    elif data[_KEYS_ID] != columns.checkpoint_id:
        message = "the key table is of another checkpoint; it is not used"
        findings.add("keys-stale", message, severity="warning", file=paths.keys)
    elif data != b"".join(keys.encode(columns.checkpoint_id, derived.keys_of(columns))):
        findings.add("keys-differ", "the key table is not that of the HDF5 file", file=paths.keys)


def _whole_keys(data: bytes) -> bool:
    """Whether header and pages of a key table have the right checksums."""
    size, end = keys.PAGE_SIZE, keys.HEADER_SIZE
    if len(data) < 2 * size or len(data) % size or data[:8] != keys.MAGIC or _crc(data[:end]) != crc32(data[: end - 4]):
        return False
    seed = crc32(data[_KEYS_ID])
    pages = (data[start : start + size] for start in range(size, len(data), size))
    return all(_crc(page) == crc32(page[:-4], seed) for page in pages)


def _crc(data: bytes) -> int:
    return int.from_bytes(data[-4:], "little")


# ---------------------------------------------------------------- the graph


def check_ann(paths: StorePaths, columns: Columns, findings: Findings) -> None:
    """Check that `<store>.ann` is whole and its elements are the vectors of the HDF5 file.

    Its links are checked as far as they could do harm; which of them are the best ones, nobody can tell. They only
    propose candidates.
    """
    if not fs.exists(paths.ann):
        return
    try:
        checkpoint_id, count, body = ann_file.read(paths.ann)
        if checkpoint_id != columns.checkpoint_id:
            message = "the graph is of another checkpoint; it is not used"
            findings.add("ann-stale", message, severity="warning", file=paths.ann)
            return
        state = ann_file.state_of(count, body, columns.config.dim, columns.count)
    except UnusableIndex as error:
        findings.add("ann-damaged", f"the graph is damaged: {error}", file=paths.ann)
        return
    if not _same_elements(state, columns):
        findings.add("ann-differs", "the graph is not that of the HDF5 file", file=paths.ann)


def _same_elements(state: dict[str, Any], columns: Columns) -> bool:
    having = (columns.norms > 0) & (columns.tombstones == 0)
    labels = ann_file.labels(state).astype(np.int64)
    order = np.argsort(labels)
    if not np.array_equal(labels[order], np.flatnonzero(having)):
        return False
    vectors = ann_file.vectors(state)
    at = 0
    for start in range(0, columns.count, BLOCK):
        expected = normalised(columns.embeddings.read(start, start + BLOCK))[having[start : start + BLOCK]]
        found = vectors[order[at : at + len(expected)]]
        at += len(expected)
        if not (np.abs(found - expected) <= _NEAR).all():  # nor NaN
            return False
    return True
