"""The checkpointed rows of a store as columns: what `schema.load` gives and `schema.write` takes.

Invariants: rows are in ascending id order; string and vector columns are never held whole in memory, they are an HDF5
dataset (or an array) with changes laid over it and are read in blocks: row `i` is base row `keep[i]` (`keep` None: `i`)
unless it was changed, and added rows follow the kept ones. Texts are handed out as valid UTF-8, vectors as finite
numbers, or not at all: DamagedError names dataset and row. References to records are stable ids, never positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError
from clawmem_core.model import Record, StoreConfig
from clawmem_core.storage import fs, hdf5_file
from clawmem_core.storage.row_ops import Alias, Entity, EventRow, Relation, Session, ValueRow

BLOCK = 1024  # rows read at a time; also the rows of an embeddings chunk

Rows = npt.NDArray[np.int64]


class Column:
    """A base with changes over it. `base` is what slices to an array: a dataset, an array, or None (all empty)."""

    def __init__(self, path: str, name: str, base: Any, rows: int) -> None:
        self.path, self.name, self.base = path, name, base
        self.keep: Rows | None = None
        self.kept = rows
        self.changed: Mapping[int, bytes] = {}
        self.added: Sequence[bytes] = ()

    def __len__(self) -> int:
        return self.kept + len(self.added)

    def change(self, keep: Rows | None, changed: Mapping[int, bytes], added: Sequence[bytes]) -> None:
        """Lay changes over a column that has none: base rows to keep (ascending), new bytes by new row, added rows."""
        self.keep, self.changed, self.added = keep, changed, added
        self.kept = self.kept if keep is None else len(keep)

    def untouched(self, start: int, stop: int) -> bool:
        """Whether rows start..stop are the base's rows at the same place."""
        return self.keep is None and stop <= self.kept and not any(start <= row < stop for row in self.changed)

    def _base_block(self, start: int, stop: int) -> Any:
        """Kept rows start..stop of the base, as an array."""
        first, last = (start, stop) if self.keep is None else (int(self.keep[start]), int(self.keep[stop - 1]) + 1)
        with hdf5_file.reading(self.path, self.name):
            block = self.base[first:last]
        return block if self.keep is None else block[self.keep[start:stop] - first]


class TextColumn(Column, Sequence[str]):
    """A sequence of str; `read` gives the UTF-8 bytes of a range."""

    def __init__(self, path: str, name: str, base: Any, rows: int) -> None:
        super().__init__(path, name, base, rows)
        #: bytes of the longest text and of all, where whoever made an unchanged column counted them
        self.measured: tuple[int, int] | None = None
        self._block: tuple[int, list[str]] = (-1, [])

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextColumn:
        """A column in memory."""
        base = np.empty(len(texts), dtype=object)
        base[:] = [text.encode() for text in texts]
        return cls("", "", base, len(texts))

    def read(self, start: int, stop: int) -> list[bytes]:
        """The UTF-8 bytes of rows start..stop. Raises DamagedError where the file cannot be read."""
        stop = min(stop, len(self))
        kept = min(stop, self.kept)
        found: list[bytes] = []
        if start < kept:
            found = [b""] * (kept - start) if self.base is None else self._base_block(start, kept).tolist()
        if self.changed:
            for row in range(start, kept):
                if row in self.changed:
                    found[row - start] = self.changed[row]
        if stop > self.kept:
            found.extend(self.added[max(start - self.kept, 0) : stop - self.kept])
        return found

    def texts(self, start: int, stop: int) -> list[str]:
        """Rows start..stop as str."""
        rows = self.read(start, stop)
        try:
            return [row.decode() for row in rows]
        except UnicodeDecodeError as error:
            at = next(at for at, row in enumerate(rows) if row == error.object)
            raise DamagedError(path=self.path, detail=f"{self.name}, row {start + at}: no valid UTF-8") from None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self.texts(start, stop) if step == 1 else [self[at] for at in range(start, stop, step)]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(index)
        block, at = divmod(row, BLOCK)
        if self._block[0] != block:
            self._block = (block, self.texts(block * BLOCK, block * BLOCK + BLOCK))
        return self._block[1][at]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BLOCK):
            yield from self.texts(start, start + BLOCK)


class VectorColumn(Column):
    """Vectors [rows, dim] as float16 or float32, little-endian; a row of zeros where there is none."""

    def __init__(self, path: str, name: str, base: Any, rows: int, dim: int, dtype: npt.DTypeLike) -> None:
        super().__init__(path, name, base, rows)
        self.dim, self.dtype = dim, np.dtype(dtype)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows start..stop, [stop - start, dim]. Raises DamagedError where a value is not finite."""
        stop = min(stop, len(self))
        kept = min(stop, self.kept)
        found: npt.NDArray[Any] = np.zeros((max(stop - start, 0), self.dim), self.dtype)
        if start < kept and self.base is not None:
            with np.errstate(over="ignore"):  # becomes infinite and is refused below
                block: npt.NDArray[Any] = self._base_block(start, kept).astype(self.dtype, copy=False)
            if not finite(block):
                bad = start + int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
                raise DamagedError(path=self.path, detail=f"{self.name}, row {bad}: a value is not finite")
            if kept == stop and not self.changed:
                return block
            found[: kept - start] = block
        for row in range(start, kept) if self.changed else ():
            if row in self.changed:
                found[row - start] = self._vector(self.changed[row])
        for row in range(max(start, self.kept), stop):
            found[row - start] = self._vector(self.added[row - self.kept])
        return found

    def _vector(self, vector: bytes) -> npt.NDArray[Any] | float:
        return np.frombuffer(vector, self.dtype) if vector else 0.0


def finite(values: npt.NDArray[Any]) -> bool:
    """Whether all values are finite, by their exponent bits (np.isfinite is slow on float16)."""
    if values.dtype.itemsize == 2:
        return not bool(((values.view(np.uint16) & 0x7C00) == 0x7C00).any())
    return bool(np.isfinite(values).all())


def norms_of(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Euclidean length of each row, summed in float64, as float32."""
    if vectors.dtype == np.float16:
        vectors = vectors.astype(np.float32)  # exact, and the processor's own conversion, unlike that to float64
    wide = vectors.astype(np.float64)
    lengths: npt.NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", wide, wide)).astype(np.float32)
    return lengths


class Mark:
    """How far a log is already part of the file: its id, the offset after the last applied frame, that frame's chain.

    An all-zero `log_id` with a length is the mark of a legacy log: `crc` then covers its first `length` bytes.
    """

    __slots__ = ("crc", "length", "log_id")

    def __init__(self, log_id: bytes = bytes(16), length: int = 0, crc: int = 0) -> None:
        self.log_id, self.length, self.crc = log_id, length, crc

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mark):
            return NotImplemented
        return (self.log_id, self.length, self.crc) == (other.log_id, other.length, other.crc)

    def __hash__(self) -> int:
        return hash((self.log_id, self.length, self.crc))


class Columns:
    """A store's checkpointed content.

    ids int64[N] ascending · chunks, source_channel, session_ids, tags, keys, source_ids texts[N] · embeddings [N, D] ·
    timestamps float64[N] seconds · tombstones uint8[N] (1: deleted) · norms float32[N] (0: no vector) ·
    activation float32[N] · sessions, entities, relations, aliases, events, values (storage/row_ops.py) ·
    audit: 72 bytes a line · log_state: 104 bytes (storage/log.py), b"" when the file has none.
    `format`: clawmem_format of the file, "" for one that other tools wrote; its ids are zero then.
    `file`: the open HDF5 file the lazy columns and foreign objects come from, or None; `fd`: a descriptor that is
    closed with it, or -1. Use as a context manager, or call `close`.
    """

    def __init__(self, config: StoreConfig) -> None:
        dtype = "<f2" if config.float16 else "<f4"
        self.config = config
        self.path = ""
        self.format = ""
        self.store_id = self.checkpoint_id = bytes(16)
        self.generation = 0
        self.mark = Mark()
        self.log_state = b""
        self.signed = False
        self.ids: Rows = np.zeros(0, np.int64)
        self.chunks, self.source_channel, self.session_ids, self.tags, self.keys, self.source_ids = (
            TextColumn.of(()) for _ in range(6)
        )
        self.embeddings = VectorColumn("", "", None, 0, config.dim, dtype)
        self.timestamps: npt.NDArray[np.float64] = np.zeros(0)
        self.tombstones: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.norms: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self.activation: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self.session_rows: list[Session] = []
        self.entity_rows: list[Entity] = []
        self.relation_rows: list[Relation] = []
        self.alias_rows: list[Alias] = []
        self._events: list[EventRow] = []
        self._later_events: tuple[int, Callable[[], list[EventRow]]] | None = None
        self.values: list[ValueRow] = []
        self.audit = b""
        self.file: Any = None
        self.fd = -1
        #: byte offset of each BLOCK rows of embeddings in the file; None where they do not lie there as they are
        self.embedding_offsets: list[int] | None = None
        self.checkpoint_id_offset = 0
        #: the checkpoint before this one and the ids of the records put since, where known: lets the index be updated
        self.since: tuple[bytes, frozenset[int]] | None = None
        self.warnings: list[str] = []

    @property
    def count(self) -> int:
        """Rows, deleted ones included."""
        return len(self.ids)

    @property
    def active(self) -> int:
        """Rows that are not deleted."""
        return len(self.ids) - int(np.count_nonzero(self.tombstones))

    @property
    def events(self) -> list[EventRow]:
        """Every version of every event, read from the file when first asked for (a checkpoint's look-back is not)."""
        if self._later_events is not None:
            self._events, self._later_events = self._later_events[1](), None
        return self._events

    @events.setter
    def events(self, rows: list[EventRow]) -> None:
        self._events, self._later_events = rows, None

    @property
    def event_count(self) -> int:
        """Versions of events."""
        return len(self._events) if self._later_events is None else self._later_events[0]

    def defer_events(self, count: int, read: Callable[[], list[EventRow]]) -> None:
        """`read` gives the `count` versions of events when they are first asked for."""
        self._later_events = (count, read)

    def close(self) -> None:
        """Close the file behind the columns; they cannot be read afterwards."""
        if self.file is not None:
            self.file.close()
            self.file = None
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            fs.close(fd)

    def __enter__(self) -> Columns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ what an overlay asks (overlay.Base)

    def row_of(self, id: int) -> int:
        """The row of a record id, or -1."""
        row = int(np.searchsorted(self.ids, id))
        return row if row < len(self.ids) and self.ids[row] == id else -1

    def record(self, row: int) -> Record:
        """The record at a row."""
        found = Record(
            int(self.ids[row]), self.chunks[row], float(self.timestamps[row]), self.source_channel[row],
            self.session_ids[row], self.tags[row],
        )  # fmt: skip
        found.key, found.source_id = self.keys[row], self.source_ids[row]
        found.scope = self.scopes().get(found.id, b"")
        found.vector = self.embeddings.read(row, row + 1).tobytes() if self.norms[row] else None
        found.activation, found.deleted = float(self.activation[row]), bool(self.tombstones[row])
        return found

    def deleted_ids(self) -> list[int]:
        """Ids of the deleted rows."""
        ids: list[int] = self.ids[self.tombstones != 0].tolist()
        return ids

    def scopes(self) -> dict[int, bytes]:
        """Scope key by record id, for the records that hold the text of an event."""
        return {event.record_id: event.scope_key for event in self.events}

    def sessions(self) -> list[Session]:
        """Every session."""
        return self.session_rows

    def entities(self) -> list[Entity]:
        """Every entity."""
        return self.entity_rows

    def relations(self) -> list[Relation]:
        """Every relation."""
        return self.relation_rows

    def aliases(self) -> list[Alias]:
        """Every alias."""
        return self.alias_rows
