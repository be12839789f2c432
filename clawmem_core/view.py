"""What a reader sees: the rows of the last checkpoint with the log's operations laid over them.

Invariants: a view is one consistent state of the store and stays it; opening one takes no lock, writes nothing and
creates nothing; it never looks at the HDF5 file through h5py while a usable index is beside it, and answers the same
where there is none.
"""

from __future__ import annotations

import os

from clawmem_core.errors import (
    DamagedError,
    DeletedError,
    NewerFormatError,
    NotFoundError,
)
from clawmem_core.overlay import Overlay
from clawmem_core.search.index_reader import IndexReader, UnusableIndex
from clawmem_core.storage import fs, pair
from clawmem_core.storage.paths import StorePaths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from clawmem_core.model import Record
    from clawmem_core.storage.log_format import Identity
    from clawmem_core.storage.row_ops import EventRow, ValueRow

FORMAT = "1.0"
BLOCK = 256  # records read at a time when all are


class View:
    """One state of a store. `base`: checkpointed rows; `overlay`: what the log adds; `state`: counters with both;
    `header`, `log_bytes`: of the log; `reports`: what was noticed; `index_state`: "current", or why the index was built
    in memory.
    """

    def __init__(self, paths: StorePaths, loader: BaseLoader, found: pair.Pair) -> None:
        assert loader.reader is not None
        self.paths, self.base, self.index_state = paths, loader.reader, loader.index_state
        self.header, self.state, self.reports = found.header, found.state, found.reports
        self.log_bytes = found.log_bytes
        self._h5_fd, self._frames = found.h5_fd, found.frames
        self._overlay: Overlay | None = None

    def close(self) -> None:
        """Release the index and the file."""
        self.base.close()
        if self._h5_fd >= 0:
            fd, self._h5_fd = self._h5_fd, -1
            fs.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "_h5_fd"):
            self.close()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def overlay(self) -> Overlay:
        """The log's operations over the base, decoded when first asked for."""
        if self._overlay is None:
            self._overlay = Overlay(self.base)
            if not self._frames:
                return self._overlay
            from clawmem_core.storage import ops

            for frame in self._frames:
                try:
                    self._overlay.apply(ops.decode(*frame.where))
                except ops.UnknownOperation as error:
                    raise NewerFormatError(path=self.paths.log, found=str(error), supported=FORMAT) from None
                except ops.BadPayload as error:
                    raise DamagedError(path=self.paths.log, detail=f"a frame does not decode ({error})") from None
            self._frames = []
        return self._overlay

    @property
    def pending(self) -> int:
        """Entries that no checkpoint holds."""
        return self.state.seq - self.base.state.seq

    # ------------------------------------------------------------ records

    def record(self, id: int) -> Record:
        """The live record with this id. Raises NotFoundError, or DeletedError where it was deleted."""
        record = self.find(id)
        if record is None:
            raise NotFoundError(kind="record", id=id)
        if record.deleted:
            raise DeletedError(id=id)
        return record

    def find(self, id: int) -> Record | None:
        """The record with this id, deleted or not, or None."""
        overlay = self.overlay
        if id in overlay.records:
            return overlay.records[id]
        if id in overlay.dropped or id < 0:
            return None
        row = self.base.row_of(id)
        return None if row < 0 else self._overlaid(self.base.record(row))

    def _overlaid(self, record: Record) -> Record:
        """A record of the base with what the log changed of it."""
        overlay, id = self.overlay, record.id
        if id in overlay.deleted:
            record.deleted = True
        elif id in overlay.undeleted:
            record.deleted = False
        record.activation = overlay.activation.get(id, record.activation)
        return record

    def records(self, include_deleted: bool = False) -> Iterator[Record]:
        """Every record in id order, read as it is asked for."""
        for block in self.blocks(include_deleted):
            yield from block

    def blocks(self, include_deleted: bool = False) -> Iterator[list[Record]]:
        """Every record in id order, some hundred at a time; a block may be empty."""
        overlay = self.overlay
        later = sorted(overlay.records)
        at = 0
        for start in range(0, self.base.count, BLOCK):
            rows = self.base.records_of(start, min(start + BLOCK, self.base.count))
            if overlay.empty:
                yield [record for record in rows if include_deleted or not record.deleted]
                continue
            found: list[Record] = []
            for record in rows:
                while at < len(later) and later[at] < record.id:
                    found.append(overlay.records[later[at]])
                    at += 1
                if at < len(later) and later[at] == record.id:
                    found.append(overlay.records[record.id])
                    at += 1
                elif record.id not in overlay.dropped:
                    found.append(self._overlaid(record))
            yield [record for record in found if include_deleted or not record.deleted]
        for start in range(at, len(later), BLOCK):
            found = [overlay.records[id] for id in later[start : start + BLOCK]]
            yield [record for record in found if include_deleted or not record.deleted]

    def boosted_records(self) -> Iterator[Record]:
        """Live records whose activation is not 1."""
        return (record for record in self.records() if record.activation != 1.0)

    # ------------------------------------------------------------ events

    def events_of_scope(self, scope_key: bytes) -> Iterator[EventRow]:
        """Every version of every event of one scope, oldest record time first."""
        yield from self._open_rows(self.base.events_of_scope(scope_key))
        for row in self.overlay.events:
            if row.scope_key == scope_key:
                yield row

    def events(self) -> Iterator[EventRow]:
        """Every version of every event; those of one scope oldest record time first."""
        yield from self._open_rows(self.base.event_rows())
        yield from self.overlay.events

    def _open_rows(self, rows: Iterable[EventRow]) -> Iterator[EventRow]:
        """Checkpointed rows without purged ones, closed where the log holds a later version."""
        overlay = self.overlay
        for row in rows:
            if row.record_id in overlay.purged:
                continue
            if not row.recorded_to:
                row.recorded_to = overlay.closed.get((row.label, row.event_id, row.scope_key), 0)
            yield row

    def values_of_scope(self, scope_key: bytes) -> dict[bytes, ValueRow]:
        """Value tombstones of one scope by value key, lifted ones included."""
        found = {row.value_key: row for row in self.base.values_of_scope(scope_key)}
        for (scope, value_key), row in self.overlay.values.items():
            if scope == scope_key:
                found[value_key] = row
        return found

    def audit_lines(self) -> bytes:
        """The whole audit log, read from the HDF5 file and the log. Raises DamagedError."""
        from clawmem_core.storage.schema import load

        with load(self._h5_fd, self.paths.given) as columns:
            return columns.audit + b"".join(self.overlay.audit)

    # ------------------------------------------------------------ what the store says of itself

    def config(self) -> dict[str, Any]:
        """Every setting by name, as of now."""
        settings = dict(self.base.config)
        if self.overlay.config:
            import json

            settings.update((name, json.loads(text)) for name, text in self.overlay.config.items())
        return settings

    def stats(self) -> dict[str, Any]:
        """The document of `clawmem stats`."""
        return {
            "path": self.paths.given,
            "agent_id": self.base.config["agent_id"],
            "embedding_dim": self.base.dim,
            "count": self.state.rows,
            "active": self.state.active,
            "deleted": self.state.rows - self.state.active,
            "wal_enabled": bool(self.base.config["wal_enabled"]),
            "wal_pending": self.pending,
            "wal_bytes": self.log_bytes,
            "store_bytes": fs.size(self.paths.real),
            "index_bytes": fs.size(self.paths.index),
            "index": self.index_state,
            "log": [report.code for report in self.reports] or "clean",
            "float16": self.base.float16,
            "signed": bool(self.header is not None and self.header.flags & 2),
            "next_index": self.state.next_record_id,
            "event_versions": self.state.event_rows,
            "audit_lines": self.state.audit_seq,
            "generation": self.base.generation,
        }


def open_view(path: str | os.PathLike[str]) -> View:
    """A consistent view of the store, without a lock.

    Raises NoStoreError, NotAStoreError, LegacyStoreError, NewerFormatError, DamagedError, StorageError.
    """
    paths = StorePaths(path)
    paths.require_file()
    loader = BaseLoader(paths)
    try:
        found = pair.open_pair(paths, loader.identity)
        return View(paths, loader, found)
    except BaseException:
        loader.close()
        raise


class BaseLoader:
    """Finds the checkpointed rows of an opened HDF5 file: in the index beside it, or by reading the file itself.

    `index_state`: "current", or why the index could not be used and was built in memory.
    """

    def __init__(self, paths: StorePaths) -> None:
        self.paths = paths
        self.index_state = ""
        self.reader: IndexReader | None = None

    def close(self) -> None:
        """Release the index."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def identity(self, h5_fd: int) -> Identity:
        """Checkpoint id and log mark of the file open at `h5_fd`; `reader` are its rows from now on."""
        self.close()
        try:
            self.reader = IndexReader.open(self.paths.index, h5_fd)
            self.reader.rebuild = lambda: self._bytes(h5_fd)
            self.index_state = "current"
        except UnusableIndex as reason:
            self.index_state = str(reason)
            self.reader = IndexReader(self._bytes(h5_fd), h5_fd)
        return self.reader.identity()

    def _bytes(self, h5_fd: int) -> bytearray:
        """A fresh index of the file open at `h5_fd`."""
        from clawmem_core.search.index_build import build_in_memory
        from clawmem_core.storage.schema import load

        with load(h5_fd, self.paths.given) as columns:
            return build_in_memory(columns)
