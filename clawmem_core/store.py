"""MemoryStore: the engine behind one handle, for library callers and for the subcommands that change a store.

Invariants: those of the handle (handle.py); every change goes door → log → overlay, in that order, so what a call
acknowledged is durable and visible; a failed change leaves handle and store as they were. Searching never writes.

    >>> with MemoryStore.create("agent.h5", dim=4) as store:
    ...     store.save(MemoryEntry("User prefers dark mode", [0.1, 0.2, 0.3, 0.4]))
    ...     store.search([0.1, 0.2, 0.3, 0.4], "dark mode", SearchOptions(k=5))
"""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clawmem_core import door
from clawmem_core.errors import InvalidInputError, NotFoundError, SigningKeyRequiredError
from clawmem_core.graph import GraphStore
from clawmem_core.model import MemoryEntry, Record, SearchHit, SearchOptions, StoreConfig
from clawmem_core.storage import ops
from clawmem_core.storage.log_format import SIGNED, Key
from clawmem_core.view import View, open_view
from clawmem_core.writer import GONE, LIVE, Writer, upsert_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clawmem_core.contract.memories import ScopedMemories
    from clawmem_core.integrity.signing import Signing
    from clawmem_core.storage.bulk import BulkWriter


@dataclass(frozen=True, slots=True)
class SaveResult:
    """Answer to a save: "saved" or "updated", the record's id, rows in the store including deleted ones."""

    status: str
    index: int
    count: int


class MemoryStore(GraphStore):
    """An open store. Make one with `create`, `open` or `open_read_only`; use it as a context manager.

    `warnings`: as of `Handle`. Sessions and the graph are in `GraphStore`.
    """

    # ------------------------------------------------------------ opening and closing

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], config: StoreConfig | None = None, *, signing_key: str | None = None,
        **settings: Any,
    ) -> MemoryStore:  # fmt: skip
        """Make a new, empty store and open it.

        `settings` are those of StoreConfig. Raises ExistsError where a store or a log already lies, InvalidInputError.
        """
        from clawmem_core.storage.checkpoint import create_store
        from clawmem_core.storage.paths import StorePaths

        signing = _signing(signing_key)
        create_store(StorePaths(path), door.config(config or StoreConfig(**settings)), signing=signing)
        return cls.open(path, signing_key=signing_key)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, lock_timeout: float = 0.0, signing_key: str | None = None,
        actor: str | None = None, insecure_key_file: bool = False, rotate_key: bool = False,
    ) -> MemoryStore:  # fmt: skip
        """Open for reading and writing; waits up to `lock_timeout` seconds for the lock (LockedError).

        `signing_key`: file of the Ed25519 key with which checkpoints are signed; `insecure_key_file` accepts one that
        others can read, `rotate_key` signs a store that another key signed. Raises NoStoreError, NotAStoreError,
        NewerFormatError, DamagedError, KeyFileError, StorageError.
        """
        signing = _signing(signing_key, insecure_key_file, rotate_key)
        writer = Writer.open(path, lock_timeout, actor)
        try:
            return cls(open_view(path), writer, signing)
        except BaseException:
            writer.close()
            raise

    @classmethod
    def open_read_only(cls, path: str | os.PathLike[str]) -> MemoryStore:
        """A lock-free view of the store as it is now; it never changes and never writes."""
        return cls(open_view(path), None)

    @classmethod
    def bulk_create(cls, path: str | os.PathLike[str], config: StoreConfig) -> BulkWriter:
        """A streaming writer of a new store: validated alike, bounded memory, visible only after `finish`."""
        from clawmem_core.storage.bulk import BulkWriter
        from clawmem_core.storage.paths import StorePaths

        return BulkWriter(StorePaths(path), door.config(config))

    # ------------------------------------------------------------ saving

    def save(self, entry: MemoryEntry) -> SaveResult:
        """Store one memory durably. Updates the live record with the same `key`, if the entry has one."""
        return self.save_batch([entry])[0]

    def save_batch(self, entries: Iterable[MemoryEntry]) -> list[SaveResult]:
        """Store memories together or not at all. Raises what the door raises, before anything is written."""
        with self._mutex:
            writer = self._writing()
            records = [door.entry_record(entry, self._view.base.dim, writer.float16) for entry in entries]
            if not records:
                return []
            answers = writer.save_together(records)
            self._commit([(ops.RECORD, int(record.deleted), record) for record in records])
            return [SaveResult(status, index, writer.state.rows) for status, index in answers]

    def save_or_update(self, key: str, entry: MemoryEntry) -> SaveResult:
        """Store under an upsert key: replaces the live record that has it, keeping its id."""
        if not key:
            raise InvalidInputError(field="key", detail="is empty")
        keyed = MemoryEntry(**{name: getattr(entry, name) for name in MemoryEntry.__slots__})
        keyed.key = key
        return self.save(keyed)

    # ------------------------------------------------------------ deleting

    def delete(self, ids: int | Sequence[int]) -> int:
        """Delete records: they stay in the file, out of every answer, until `compact`. Returns how many.

        Raises NotFoundError or DeletedError for the first that is not live; then nothing is deleted.
        """
        wanted = door.record_ids(ids)
        with self._mutex:
            writer = self._writing()
            records = [self._plain(id) for id in wanted]
            if not wanted:
                return 0
            gone = [self._key_of(record, GONE) for record in records if record.key]
            writer.stage(
                ops.ids(ops.DELETE, wanted), len(wanted), operation="delete", target=wanted[0], keys=gone,
                active=-len(wanted),
            )  # fmt: skip
            self._commit([(ops.DELETE, 0, tuple(wanted))])
            return len(wanted)

    def undelete(self, ids: int | Sequence[int]) -> int:
        """Take back a delete, before `compact`.

        A key that another record took meanwhile stays with that record; the one that comes back has none then.
        """
        wanted = door.record_ids(ids)
        with self._mutex:
            writer = self._writing()
            found = [self._view.find(id) for id in wanted]
            for id, record in zip(wanted, found, strict=True):
                if record is None or record.scope or not record.deleted:
                    raise NotFoundError(kind="deleted record", id=id)
            if not wanted:
                return 0
            kept: dict[str, Key] = {}
            operations: list[tuple[int, int, Any]] = [(ops.UNDELETE, 0, tuple(wanted))]
            parts = [ops.ids(ops.UNDELETE, wanted)]
            for record in found:
                if record is None or not record.key:
                    continue
                if record.key in kept or writer.find_key(record.key) is not None:
                    keyless = copy(record)
                    keyless.key, keyless.deleted = "", False
                    operations.append((ops.RECORD, 0, keyless))
                    parts.append(ops.record(keyless))
                else:
                    kept[record.key] = self._key_of(record, LIVE)
            writer.stage(
                b"".join(parts), len(operations) - 1 + len(wanted), operation="undelete", target=wanted[0],
                keys=list(kept.values()), active=len(wanted),
            )  # fmt: skip
            self._commit(operations)
            return len(wanted)

    @staticmethod
    def _key_of(record: Record, status: int) -> Key:

        return Key(upsert_key(record.key), bytes(16), record.id, "K", status)

    def compact(self) -> dict[int, int]:
        """Drop deleted records from the file and checkpoint. Ids stay.

        Returns old→new positions of the rows that moved; session and graph references follow by themselves. Raises
        UnfinishedError where the checkpoint failed: the compaction is in the log then, and the next one finishes it.
        """
        from clawmem_core.storage.checkpoint import finishing

        with self._mutex:
            writer = self._writing()
            gone = [record.id for record in self._view.records(include_deleted=True) if record.deleted]
            if not gone:
                self.flush_wal()
                return {}
            self._require_signing()
            dropped = set(gone)
            moved, new = {}, 0
            for old, record in enumerate(self._view.records(include_deleted=True)):
                if record.id not in dropped:
                    if old != new:
                        moved[old] = new
                    new += 1
            writer.stage(ops.compact(), 1, operation="compact", target=len(gone), rows=-len(gone))
            writer.commit()
            self._view.overlay.apply([(ops.COMPACT, 0, None)])
            self._view.state = writer.state
            with finishing("compaction"):
                self.flush_wal()
            return moved

    # ------------------------------------------------------------ reading

    def get(self, id: int) -> Record:
        """The live record with this id. Raises NotFoundError (also for an event), DeletedError where it was deleted."""
        with self._mutex:
            self._check()
            return self._plain(door.record_id(id))

    def _plain(self, id: int) -> Record:
        """A live record that is not the text of an event: those are read and changed within their scope only."""
        record = self._view.record(id)
        if record.scope:
            raise NotFoundError(kind="record", id=id)
        return record

    def records(self, include_deleted: bool = False) -> Iterator[Record]:
        """Every record but those of events, in id order, read as it is asked for; a checkpoint meanwhile is no matter.

        Whether changes made meanwhile show is open. The iterator raises ClosedError once the handle is closed.
        """
        return self._records_of(self._check(), include_deleted)

    def _records_of(self, view: View, include_deleted: bool) -> Iterator[Record]:
        for record in view.records(include_deleted):
            if not record.scope:
                yield record
                self._check()

    def embedding(self, record: Record) -> list[float] | None:
        """A record's vector as numbers, or None."""
        if record.vector is None:
            return None
        import struct

        width = 2 if self._check().base.float16 else 4
        return list(struct.unpack(f"<{len(record.vector) // width}{'e' if width == 2 else 'f'}", record.vector))

    def search(
        self, embedding: Sequence[float] | None, text: str | None, options: SearchOptions | None = None
    ) -> list[SearchHit]:
        """The best matches for a vector, a text, or both, best first (docs/ranking.md). Never writes.

        `embedding`: `dim` numbers or None. Raises DimensionError, InvalidVectorError, InvalidInputError.
        """
        from clawmem_core.search.engine import request_of, search

        with self._mutex:
            view = self._check()
            return search(view, request_of(view, embedding, text, options or SearchOptions(), long_lived=True))

    def hybrid_search(
        self, embedding: Sequence[float], text: str, vector_weight: float, keyword_weight: float, k: int
    ) -> list[SearchHit]:
        """`search` with the two fusion weights given."""
        return self.search(
            embedding, text, SearchOptions(k, vector_weight=vector_weight, keyword_weight=keyword_weight)
        )

    @property
    def count(self) -> int:
        """Rows, deleted ones included."""
        return self._check().state.rows

    @property
    def active(self) -> int:
        """Rows that are not deleted."""
        return self._check().state.active

    @property
    def pending(self) -> int:
        """Entries that no checkpoint holds."""
        return self._check().pending

    def stats(self) -> dict[str, Any]:
        """Counts, sizes and states (the document of `clawmem stats`)."""
        with self._mutex:
            return self._check().stats()

    # ------------------------------------------------------------ events

    def scoped(self, scope: Mapping[str, Any]) -> ScopedMemories:
        """The episodes and facts of one scope (an object with the five scope fields). Raises ScopeError."""
        from clawmem_core.contract.memories import ScopedMemories

        return ScopedMemories(self, scope)

    # ------------------------------------------------------------ activation

    def boost(self, ids: Sequence[int], amount: float | None = None) -> None:
        """Raise the activation of records by `amount` (default: the store's hebbian_boost), bounded to [0, 4]."""
        with self._mutex:
            self._writing()
            step = self._view.base.config["hebbian_boost"] if amount is None else amount
            door.number("amount", step, -door.MAX_ACTIVATION, door.MAX_ACTIVATION)
            records = [self._plain(id) for id in door.record_ids(ids)]
            self._activate(
                [(record.id, min(max(record.activation + step, 0.0), door.MAX_ACTIVATION)) for record in records]
            )

    def tick(self) -> int:
        """Move every activation toward 1 by the store's decay_factor. Returns how many records it changed."""
        with self._mutex:
            self._writing()
            decay = self._view.base.config["decay_factor"]
            changed = [
                (record.id, 1.0 + (record.activation - 1.0) * decay)
                for record in self._view.boosted_records()
            ]  # fmt: skip
            self._activate(changed, "tick")
            return len(changed)

    def _activate(self, weights: list[tuple[int, float]], operation: str = "activation") -> None:
        if weights:
            weights = [(id, door.activation(weight)) for id, weight in weights]
            self._writing().stage(ops.activation(weights), len(weights), operation=operation, target=weights[0][0])
            self._commit([(ops.ACTIVATION, 0, tuple(weights))])

    # ------------------------------------------------------------ checkpoints

    def _require_signing(self) -> None:
        """Raise SigningKeyRequiredError where the store is signed and this handle has no key."""
        writer = self._writing()
        if writer.header.flags & SIGNED and self._signing is None:
            raise SigningKeyRequiredError(path=self._view.paths.given, pending=writer.pending)

    def flush_wal(self) -> int:
        """Checkpoint: move the log's entries into the HDF5 file. Returns how many there were.

        Raises SigningKeyRequiredError, WrongKeyError, IntegrityError, StorageError; the entries stay in the log then.
        """
        with self._mutex:
            writer = self._writing()
            self._require_signing()
            result = writer.checkpoint(self._signing)
            self.warnings.extend(result.warnings)
            self._look_again()
            return result.entries

    def snapshot(self, dest: str | os.PathLike[str], force: bool = False) -> str:
        """A copy of the store, pending entries included, re-opened and checked. Returns the file it made.

        A folder gets a file of a new name. Raises ExistsError, InvalidInputError (onto itself), StorageError.
        """
        from clawmem_core.storage.snapshot import snapshot

        with self._mutex:
            made = snapshot(self._check().paths, dest, force=force, signing=self._signing)
            self.warnings.extend(made.warnings)
            return made.path


def _signing(path: str | None, insecure: bool = False, rotate: bool = False) -> Signing | None:
    """What signs, from a key file."""
    if path is None:
        return None
    from clawmem_core.integrity.signing import Signing

    return Signing.from_file(path, insecure=insecure, rotate=rotate)
