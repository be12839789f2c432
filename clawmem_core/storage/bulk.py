"""Streaming creation of a store from any number of records, in bounded memory.

Texts and vectors go column by column into temporary files without a name beside the store; `finish` lays them out as
a checkpoint would. The store appears only then, whole and durable.

Invariants: the content equals that of the same records saved one by one and checkpointed; ids ascend; every record
passed the door; memory does not grow with texts or vectors, only by the numbers of a record (about 70 bytes).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core import door
from clawmem_core.errors import ClosedError, InvalidInputError
from clawmem_core.model import MemoryEntry, Record, StoreConfig
from clawmem_core.storage import derived, fs
from clawmem_core.storage.apply_overlay import settle_references
from clawmem_core.storage.checkpoint import Amendment, Derive, Signing, counters, refuse_existing, write_new_store
from clawmem_core.storage.columns import Columns, TextColumn, VectorColumn, norms_of
from clawmem_core.storage.log_format import LogState
from clawmem_core.storage.paths import StorePaths, temp_name
from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session

_GATHERED = 1 << 20
_TEXTS = ("chunk", "source_channel", "session_id", "tags", "key", "source_id")
_COLUMNS = ("chunks", "source_channel", "session_ids", "tags", "keys", "source_ids")


class _Spool:
    """Byte strings in a temporary file that has no name, sliced like an array of objects."""

    def __init__(self, paths: StorePaths) -> None:
        fd = None
        while fd is None:
            name = temp_name(paths.real)
            fd = fs.open_new(name)
        self.fd = fd
        fs.unlink(name)
        self.edges = array("q", [0])
        self._waiting = bytearray()
        self._written = 0

    def append(self, data: bytes) -> None:
        self._waiting += data
        self.edges.append(self.edges[-1] + len(data))
        if len(self._waiting) >= _GATHERED:
            self.flush()

    def extend(self, parts: Sequence[bytes]) -> None:
        self._waiting += b"".join(parts)
        self.edges.extend(accumulate(map(len, parts), initial=self.edges.pop()))
        if len(self._waiting) >= _GATHERED:
            self.flush()

    def flush(self) -> None:
        fs.pwrite(self.fd, self._waiting, self._written)
        self._written += len(self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            fs.close(fd)
            self.edges = array("q", [0])

    def bytes_of(self, rows: slice) -> bytes:
        first, last = self.edges[rows.start], self.edges[rows.stop]
        return fs.pread(self.fd, last - first, first)

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        data, first = self.bytes_of(rows), self.edges[rows.start]
        found = np.empty(rows.stop - rows.start, object)
        edges = [edge - first for edge in self.edges[rows.start : rows.stop + 1]]
        found[:] = [data[low:high] for low, high in pairwise(edges)]
        return found

    def measured(self) -> tuple[int, int]:
        """Bytes of the longest string, and of all together."""
        sizes = np.diff(np.frombuffer(self.edges, np.int64))
        return int(sizes.max(initial=0)), int(self.edges[-1])


class _VectorSpool(_Spool):
    """Vectors, sliced like an array [rows, dim]."""

    def __init__(self, paths: StorePaths, dim: int, dtype: np.dtype[Any]) -> None:
        super().__init__(paths)
        self.dim, self.dtype = dim, dtype
        self.size = dim * dtype.itemsize

    def append(self, data: bytes) -> None:
        """One or more vectors."""
        self._waiting += data
        if len(self._waiting) >= _GATHERED:
            self.flush()

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        data = fs.pread(self.fd, (rows.stop - rows.start) * self.size, rows.start * self.size)
        return np.frombuffer(data, self.dtype).reshape(-1, self.dim)


class BulkWriter:
    """Makes a store: `add` records, sessions and graph, then `finish`. Leaving the `with` block before drops it all.

    Raises ExistsError at once where a store already lies.
    """

    def __init__(
        self, paths: StorePaths, config: StoreConfig, *, signing: Signing | None = None, lock_timeout: float = 0.0,
        derive: Derive = derived.write, amendment: Amendment | None = None,
    ) -> None:  # fmt: skip
        refuse_existing(paths)
        self.paths, self.config = paths, config
        self.warnings: list[str] = []
        self._signing, self._lock_timeout, self._derive, self._amendment = signing, lock_timeout, derive, amendment
        self._columns = Columns(config)
        self._texts = [_Spool(paths) for _ in _TEXTS]
        self._vectors = _VectorSpool(paths, config.dim, self._columns.embeddings.dtype)
        self._no_vector = bytes(config.dim * self._vectors.dtype.itemsize)
        self._ids, self._times = array("q"), array("d")
        self._deleted, self._weights, self._norms = array("B"), array("f"), array("f")
        self._recent: list[bytes] = []
        self._keys: set[str] = set()
        self._sessions: dict[str, Session] = {}
        self._aliases: dict[str, Alias] = {}
        self._open = True

    def __enter__(self) -> BulkWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    @property
    def count(self) -> int:
        """Records added so far."""
        return len(self._ids)

    def add(self, entry: MemoryEntry, *, deleted: bool = False, activation: float = 1.0) -> int:
        """Add one memory, checked as `save` checks it; returns its id."""
        record = door.entry_record(entry, self.config.dim, self.config.float16)
        record.deleted, record.activation = deleted, door.activation(activation)
        return self.add_record(record)

    def add_record(self, record: Record) -> int:
        """Add a record that passed the door; its id, or the next one for -1, must be above those before. Returns it.

        Raises InvalidInputError for an id out of order or a key that is taken.
        """
        if not self._open:
            raise ClosedError(path=self.paths.given)
        last = self._ids[-1] if self._ids else -1
        id = last + 1 if record.id < 0 else record.id
        if id <= last:
            raise InvalidInputError(field="index", detail=f"{id} comes after {last}; ids must ascend")
        if record.key and not record.deleted:
            if record.key in self._keys:
                raise InvalidInputError(field="key", detail=f"{record.key!r} stands twice")
            self._keys.add(record.key)
        for spool, name in zip(self._texts, _TEXTS, strict=True):
            spool.append(getattr(record, name).encode())
        self._vectors.append(record.vector or self._no_vector)
        self._recent.append(record.vector or self._no_vector)
        if len(self._recent) * len(self._no_vector) >= _GATHERED:
            self._measure()
        self._ids.append(id)
        self._times.append(record.timestamp)
        self._deleted.append(record.deleted)
        self._weights.append(record.activation)
        return id

    def add_columns(
        self, texts: Mapping[str, Sequence[bytes]], timestamps: Sequence[float], deleted: Sequence[bool],
        weights: Sequence[float], vectors: npt.NDArray[Any],
    ) -> None:  # fmt: skip
        """Add records that passed the door, many at a time, under the next ids.

        `texts`: UTF-8 by name of a record's field, empty where one is left out; no upsert keys. `vectors`: [n, dim] in
        the width of the store, zeros for a record without one.
        """
        if not self._open:
            raise ClosedError(path=self.paths.given)
        count = len(timestamps)
        first = self._ids[-1] + 1 if self._ids else 0
        for spool, name in zip(self._texts, _TEXTS, strict=True):
            spool.extend(texts.get(name) or [b""] * count)
        rows = np.ascontiguousarray(vectors, self._vectors.dtype)
        self._vectors.append(rows.tobytes())
        self._measure()
        self._norms.frombytes(norms_of(rows).tobytes())
        self._ids.extend(range(first, first + count))
        self._times.extend(timestamps)
        self._deleted.extend(deleted)
        self._weights.extend(weights)

    def _measure(self) -> None:
        """Norms of the latest vectors, many at a time."""
        vectors = np.frombuffer(b"".join(self._recent), self._vectors.dtype).reshape(-1, self.config.dim)
        self._norms.frombytes(norms_of(vectors).tobytes())
        self._recent.clear()

    def add_session(self, row: Session) -> None:
        """Put a session under its id; `start` and `end` are record ids."""
        self._sessions[row.id] = row

    def add_entity(self, row: Entity) -> None:
        """Add a graph node; its id is given by the caller and must be new."""
        self._columns.entity_rows.append(row)

    def add_relation(self, row: Relation) -> None:
        """Add an edge; (source, target, type) must be new."""
        self._columns.relation_rows.append(row)

    def add_alias(self, row: Alias) -> None:
        """Put another name of a node."""
        self._aliases[row.name] = row

    def finish(self) -> int:
        """Write the store; returns the number of records. `warnings` then says what did not go as it should.

        Raises ExistsError, LockedError, StorageError; nothing is left behind then.
        """
        if not self._open:
            raise ClosedError(path=self.paths.given)
        try:
            columns = self._filled()
            self.warnings = write_new_store(
                self.paths, columns, signing=self._signing, lock_timeout=self._lock_timeout, derive=self._derive,
                amendment=self._amendment,
            )  # fmt: skip
        finally:
            self.discard()
        return len(self._ids)

    def _filled(self) -> Columns:
        columns, count = self._columns, len(self._ids)
        self._measure()
        for spool, name in zip(self._texts, _COLUMNS, strict=True):
            spool.flush()
            column = TextColumn(self.paths.real, f"/memory/{name}", spool, count)
            column.measured = spool.measured()
            setattr(columns, name, column)
        self._vectors.flush()
        columns.embeddings = VectorColumn(
            self.paths.real, "/memory/embeddings", self._vectors, count, self.config.dim, self._vectors.dtype
        )
        columns.ids = np.frombuffer(self._ids, np.int64)
        columns.timestamps = np.frombuffer(self._times, np.float64)
        columns.tombstones = np.frombuffer(self._deleted, np.uint8)
        columns.norms = np.frombuffer(self._norms, np.float32)
        columns.activation = np.frombuffer(self._weights, np.float32)
        columns.session_rows, columns.alias_rows = list(self._sessions.values()), list(self._aliases.values())
        settle_references(columns)
        tables = len(columns.session_rows) + len(columns.entity_rows) + len(columns.relation_rows) + len(self._aliases)
        columns.log_state = counters(columns, LogState(seq=count + tables), 0).pack()
        return columns

    def discard(self) -> None:
        """Drop what was added. Does nothing after `finish`; an amendment's `confirm` may call it to free memory."""
        self._open = False
        for spool in (*self._texts, self._vectors):
            spool.close()
