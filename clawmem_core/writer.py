"""The only way into the log: lock, counters, key look-ups, audit line, group commit.

A Writer holds the store's lock from `open` to `close`. Operations are staged, then committed together: one write, one
sync, and only then may a caller tell anybody that they are stored. It never opens the HDF5 file unless the log must be
recovered or the key table is unusable, so a one-shot `save` costs the same at any size of store.

Invariants: ids come from the state of the last frame and are never given twice; every group carries exactly one audit
line, inside its last frame; after a failed commit the writer's state is that of before the group.
"""

from __future__ import annotations

import os
from zlib import crc32

from clawmem_core import clock
from clawmem_core.contract import audit
from clawmem_core.errors import (
    ClawmemError,
    DamagedError,
    NotAStoreError,
    SigningKeyRequiredError,
    StorageError,
)
from clawmem_core.storage import fs, keys, ops
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import UNSYNCED_LIMIT, LogWriter
from clawmem_core.storage.log_format import FLOAT16, NO_WAL, PURGE_PENDING, SIGNED, Identity, Key
from clawmem_core.storage.log_recovery import CheckpointFirst
from clawmem_core.storage.paths import StorePaths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawmem_core.integrity.signing import Signing
    from clawmem_core.model import Record
    from clawmem_core.plain import PlainRows
    from clawmem_core.storage.checkpoint import CheckpointResult
    from clawmem_core.storage.log_format import LogHeader, LogState
    from clawmem_core.storage.log_reports import Report

LIVE, GONE = 1, 0  # status of an upsert key
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
LONGEST_THRESHOLD = 5_000  # entries (design § 4)
STREAM_ENTRIES, STREAM_BYTES = 50_000, 64 << 20  # how far a stream lets its log grow (decision 004)
STREAM_REST = 10_000  # entries that a stream may leave when it ends
STREAM_UNSYNCED = 8 << 20  # bytes that one with --no-sync may leave unsynced while it runs


class Staged:
    """One frame to be: its operations, keys, the state after it, how many entries it counts, its state flags."""

    __slots__ = ("entries", "keys", "operations", "state", "state_flags")

    def __init__(self, operations: bytes, keys: Sequence[Key], state: LogState, entries: int, state_flags: int) -> None:
        self.operations, self.keys, self.state, self.entries = operations, keys, state, entries
        self.state_flags = state_flags


class Writer:
    """Appends operations to a store's log. Use as a context manager, or call `close`.

    `state`: counters after everything staged. `reports`: what recovery found when the log was opened.
    """

    def __init__(self, paths: StorePaths, lock: StoreLock, log: LogWriter, actor: str) -> None:
        self.paths, self.lock, self.log = paths, lock, log
        self.actor = actor
        self.state: LogState = log.state.copy()
        self._staged: list[Staged] = []
        self._keys: dict[tuple[str, bytes], Key] = {}  # staged and not yet committed
        self._operation = ("", 0, 0)  # name, target and flags of the first staged operation, for the audit line

    @classmethod
    def open(cls, path: str | os.PathLike[str], lock_timeout: float = 0.0, actor: str | None = None) -> Writer:
        """Lock the store and find the end of its log.

        Raises NoStoreError, NotAStoreError, LockedError, NewerFormatError, StorageError.
        """
        paths = StorePaths(path)
        paths.require_file()
        _require_hdf5(paths)
        lock = StoreLock.acquire(paths, lock_timeout)
        try:
            return cls(paths, lock, _open_log(paths, lock), actor or default_actor())
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what is staged, close the log, let the lock go."""
        self._staged.clear()
        self.log.close()
        self.lock.release()

    @property
    def header(self) -> LogHeader:
        """The header of the log that is written to."""
        return self.log.header

    @property
    def float16(self) -> bool:
        """Whether vectors are stored as half precision."""
        return bool(self.header.flags & FLOAT16)

    @property
    def reports(self) -> list[Report]:
        """What was found and done when the log was opened; empty for a clean one."""
        return self.log.reports

    @property
    def pending(self) -> int:
        """Entries in the log that no checkpoint holds, staged ones included."""
        return self.state.seq - self.header.state.seq

    # ------------------------------------------------------------ staging

    def save(self, record: Record) -> tuple[str, int]:
        """Stage one record as a frame of its own, giving it its id. Returns ("saved" | "updated", id)."""
        return self.save_together([record])[0]

    def save_together(self, records: Sequence[Record]) -> list[tuple[str, int]]:
        """Stage records as one frame, stored together or not at all."""
        answers, found_keys, parts = [], [], []
        rows = active = 0
        next_id = self.state.next_record_id
        for record in records:
            keyed = record.key and not record.deleted  # a record that comes in deleted takes no key from a live one
            before = self.find_key(record.key) if keyed else None
            if before is None:
                record.id = next_id
                next_id += 1
                rows += 1
                active += not record.deleted
            else:
                record.id = before
            if keyed:
                key = Key(upsert_key(record.key), bytes(16), record.id, "K", LIVE)
                found_keys.append(key)
                self._keys["K", key.key] = key
            answers.append(("saved" if before is None else "updated", record.id))
            parts.append(ops.record(record))
        self.stage(
            b"".join(parts), len(records), operation="update" if answers[0][0] == "updated" else "save",
            target=records[0].id, keys=found_keys, rows=rows, active=active, next_record_id=next_id,
        )  # fmt: skip
        return answers

    def save_plain(self, plain: PlainRows) -> int:
        """Stage plain records as one frame; they get consecutive ids, the first of which is returned."""
        first, count = self.state.next_record_id, len(plain)
        self.stage(
            ops.plain_records(first, plain.rows, plain.vectors), count, operation="save", target=first, rows=count,
            active=count, next_record_id=first + count,
        )  # fmt: skip
        return first

    def stage(
        self,
        operations: bytes,
        entries: int,
        *,
        operation: str,
        target: int = 0,
        keys: Sequence[Key] = (),
        rows: int = 0,
        active: int = 0,
        next_record_id: int | None = None,
        next_entity_id: int | None = None,
        event_rows: int = 0,
        record_us: int | None = None,
        audit_flags: int = 0,
        state_flags: int = 0,
    ) -> None:
        """Stage one frame. `rows`, `active`, `event_rows` are differences.

        `operation`, `target` and `audit_flags` go to the audit line, `state_flags` to this and all later frames.
        """
        state = self.state.copy()
        state.seq += entries
        state.rows += rows
        state.active += active
        state.event_rows += event_rows
        if next_record_id is not None:
            state.next_record_id = next_record_id
        if next_entity_id is not None:
            state.next_entity_id = next_entity_id
        if record_us is not None:
            state.last_record_us = record_us
        if not self._staged:
            self._operation = (operation, target, audit_flags)
        for key in keys:
            self._keys[key.kind, key.key] = key
        self._staged.append(Staged(operations, keys, state, entries, state_flags))
        self.state = state

    def record_time(self) -> int:
        """The next record time in microseconds: now, but always after the one before (design § 6)."""
        return max(self.state.last_record_us + 1, clock.now_us())

    # ------------------------------------------------------------ committing

    def commit(self, sync: bool = True, unsynced: int = UNSYNCED_LIMIT) -> None:
        """Write everything staged with one audit line; with `sync`, durably before this returns.

        `unsynced`: as in LogWriter.commit.

        Raises StorageError (nothing of the group is stored) or UncertainWriteError (the sync failed).
        """
        if not self._staged:
            return
        self.paths.require_file()  # nobody would find the entries of a store whose file is gone
        staged, self._staged = self._staged, []
        self._keys.clear()
        before = self.log.state.copy()
        last = staged[-1]
        name, target, flags = self._operation
        checksum = 0
        for frame in staged:
            checksum = crc32(frame.operations, checksum)
        digest = checksum.to_bytes(4, "little")
        line = audit.audit_line(
            last.state.audit_head, clock.now_us(), name, self.actor, target,
            sum(frame.entries for frame in staged), digest, flags,
        )  # fmt: skip
        last.operations += ops.audit(line)
        last.state.audit_seq += 1
        last.state.audit_head = line[-32:]
        try:
            for frame in staged:
                self.log.append(frame.operations, frame.keys, frame.state, state_flags=frame.state_flags)
            self.log.commit(sync, unsynced)
        except BaseException:
            self.log.rollback()
            self.state = before
            raise
        self.state = self.log.state.copy()

    # ------------------------------------------------------------ checkpoints

    @property
    def checkpoint_each_time(self) -> bool:
        """Whether every change wants a checkpoint: a store without log, or one whose log still holds purged texts."""
        return bool(self.header.flags & NO_WAL or self.log.state_flags & PURGE_PENDING)

    def threshold(self) -> int:
        """How many entries may be pending before a checkpoint is due (design § 4)."""
        return max(self.header.wal_max_entries, min(self.state.rows // 20, LONGEST_THRESHOLD))

    def checkpoint(self, signing: Signing | None = None) -> CheckpointResult:
        """Move the log into the HDF5 file. Raises SigningKeyRequiredError, IntegrityError, StorageError, …"""
        from clawmem_core.storage.checkpoint import checkpoint

        if signing is not None and (other_key := signing.rotation(self.paths)):
            self.stage(b"", 0, operation="rotate-key", target=other_key)
            self.commit()
        result = checkpoint(self.paths, self.lock, self.log, signing=signing)
        self.state = self.log.state.copy()
        return result

    def checkpoint_if_due(self, before: int, signing: Signing | None = None) -> tuple[bool, list[str]]:
        """A checkpoint nobody asked for: where the entries pending crossed the threshold since `before`.

        Returns whether one happened, and warnings. A failure is a warning: what was saved stays durable in the log. It
        is tried again a tenth of the threshold later.
        """
        if not self.checkpoint_each_time:
            limit = self.threshold()
            step = max(limit // 10, 1)
            if self.pending <= limit or (before > limit and (before - limit) // step == (self.pending - limit) // step):
                return False, []
        return self.automatic_checkpoint(signing)

    def stream_checkpoint_due(self, ends: bool = False) -> bool:
        """Whether a stream, or one that ends now, has let the log grow far enough."""
        return (
            self.pending > (STREAM_REST if ends else STREAM_ENTRIES)
            or self.log.size > STREAM_BYTES
            or self.checkpoint_each_time
        )

    def automatic_checkpoint(self, signing: Signing | None = None) -> tuple[bool, list[str]]:
        """`checkpoint`, its errors as warnings."""
        if self.header.flags & SIGNED and signing is None:
            return False, [SigningKeyRequiredError(path=self.paths.given, pending=self.pending).message]
        try:
            return True, self.checkpoint(signing).warnings
        except ClawmemError as error:
            return False, [f"the checkpoint failed, the saves stay in the log: {error.message}"]

    # ------------------------------------------------------------ keys

    def find_key(self, key: str) -> int | None:
        """The live record with this upsert key, or None."""
        found = self.find("K", upsert_key(key))
        return found.record_id if found is not None and found.status == LIVE else None

    def find(self, kind: str, key: bytes) -> Key | None:
        """The newest entry of the key table (what is staged, then the log, then `.keys`), or None.

        Where `.keys` cannot be used it is rebuilt from the HDF5 file: slower, never wrong (log-v4.md § 8).
        """
        pending = self._keys.get((kind, key)) or self._find_in_log(kind, key)
        if pending is not None:
            return pending
        answer = keys.lookup(self.paths.keys, self.header.base_checkpoint_id, key, kind)
        return answer if answer is not keys.UNUSABLE else self._find_in_file(kind, key)

    def _find_in_log(self, kind: str, key: bytes) -> Key | None:
        known = len(self.log.reports)
        found = self.log.find_key(key, kind)
        if len(self.log.reports) > known:  # it met damage and repaired the log, which counts otherwise now
            if self._staged:
                raise DamagedError(path=self.paths.log, detail="it broke under what was about to be saved")
            self.state = self.log.state.copy()
        return found

    def _find_in_file(self, kind: str, key: bytes) -> Key | None:
        from clawmem_core.storage.derived import find_key, rebuild_keys

        try:
            rebuild_keys(self.paths)
        except StorageError:
            return find_key(self.paths, kind, key)
        answer = keys.lookup(self.paths.keys, self.header.base_checkpoint_id, key, kind)
        return answer if answer is not keys.UNUSABLE else find_key(self.paths, kind, key)


def _require_hdf5(paths: StorePaths) -> None:
    """Raise NotAStoreError for a file of another kind, before a lock file appears beside it."""
    fd = fs.open_file(paths.real)
    try:
        if fs.pread(fd, len(HDF5_SIGNATURE), 0) != HDF5_SIGNATURE:
            raise NotAStoreError(path=paths.given, detail="it is no HDF5 file")
    finally:
        fs.close(fd)


def _open_log(paths: StorePaths, lock: StoreLock) -> LogWriter:
    """The store's log, ready to be appended to; where an older kind of file or log lies there, converted first."""

    def identity(fd: int) -> Identity:
        from clawmem_core.storage.checkpoint import identity_of_file

        return identity_of_file(fd, paths.given)

    try:
        return LogWriter.open(paths, lock, identity)
    except CheckpointFirst:
        from clawmem_core.storage.adopt import adopt

        adopt(paths, lock)
        return LogWriter.open(paths, lock, identity)


def upsert_key(key: str) -> bytes:
    """The first 16 bytes of SHA-256("K" + key), under which the key table knows an upsert key."""
    return keys.key_bytes("K", key.encode())


def default_actor() -> str:
    """CLAWMEM_ACTOR, or the operating system's name of the user. A record of who acted, not a security boundary."""
    given = os.environ.get("CLAWMEM_ACTOR")
    if given:
        return given.encode("utf-8", "replace").decode().replace("\0", "")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
