"""Checkpoint and creation: from HDF5 file + log to the next HDF5 file (spec/log-v4.md § 4).

Invariants: the new file is a pure function of the old one and the log, plus a random checkpoint id; the store's name
leads to the old file until the new one is complete, synced and read back; a failure before that leaves everything as
it was and no temporary file; afterwards the old log stays valid through the mark in the new file, so neither a failed
rotation nor missing derived files lose or double anything. Errors name the store, never a temporary file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import h5py
import numpy as np

from clawmem_core import clock
from clawmem_core.errors import (
    ClawmemError,
    DamagedError,
    ExistsError,
    NewerFormatError,
    SigningKeyRequiredError,
    StorageError,
    UnfinishedError,
)
from clawmem_core.model import StoreConfig
from clawmem_core.overlay import Overlay
from clawmem_core.storage import derived, fs, hdf5_file, ops, schema
from clawmem_core.storage.apply_overlay import apply_overlay
from clawmem_core.storage.atomic import AtomicFile, remove_stale_temps
from clawmem_core.storage.columns import Columns, Mark
from clawmem_core.storage.derived import naming
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.log_format import (
    EVENTS,
    FLOAT16,
    NO_WAL,
    QUANTIZED,
    SIGNED,
    Frame,
    Identity,
    LogState,
)
from clawmem_core.storage.log_recovery import create_log
from clawmem_core.storage.paths import StorePaths


class Signing(Protocol):
    """What a checkpoint asks of whoever signs (integrity/signing.py). `news`: what is to be told of it."""

    @property
    def news(self) -> list[str]: ...

    def before(self, file: h5py.File, path: str, *, signed: bool = False) -> None: ...
    def seal(self, file: h5py.File, path: str, changed: Iterable[int] | None = None) -> None: ...


class Amendment(Protocol):
    """What an import adds to the next file, and its veto before that file gets the store's name."""

    def apply(self, overlay: Overlay, state: LogState) -> LogState:
        """Add operations to those of the log; returns the counters after them. A new store is not asked for any."""

    def write(self, file: h5py.File) -> None:
        """Add or replace objects that are not ours in the otherwise complete file."""

    def confirm(self, temp: str) -> None:
        """Read the finished file under its temporary name; whatever this raises keeps the old state."""


Derive = Callable[[StorePaths, Columns], Iterable[str]]


class NextFile:
    """The next version of a store's file, complete and read back: commit `file`. `warnings`: what did not survive."""

    __slots__ = ("file", "identity", "warnings")

    def __init__(self, file: AtomicFile, identity: Identity, warnings: list[str]) -> None:
        self.file, self.identity, self.warnings = file, identity, warnings


class CheckpointResult:
    """What a checkpoint did: entries it moved, new generation and id, warnings (the checkpoint holds anyway)."""

    __slots__ = ("checkpoint_id", "entries", "generation", "warnings")

    def __init__(self, entries: int, columns: Columns, warnings: list[str]) -> None:
        self.entries, self.generation, self.checkpoint_id = entries, columns.generation, columns.checkpoint_id
        self.warnings = warnings


def create_store(
    paths: StorePaths, config: StoreConfig, *, signing: Signing | None = None, lock_timeout: float = 0.0,
    derive: Derive = derived.write,
) -> list[str]:  # fmt: skip
    """Make an empty store; returns warnings. Raises ExistsError (store or log lie there), LockedError, StorageError."""
    columns = Columns(config)
    return write_new_store(paths, columns, signing=signing, lock_timeout=lock_timeout, derive=derive)


def write_new_store(
    paths: StorePaths, columns: Columns, *, signing: Signing | None = None, lock_timeout: float = 0.0,
    derive: Derive = derived.write, amendment: Amendment | None = None,
) -> list[str]:  # fmt: skip
    """Make a store that holds `columns`, which have no identity yet; returns warnings. Raises as `create_store`."""
    refuse_existing(paths)
    with StoreLock.acquire(paths, lock_timeout):
        refuse_existing(paths)
        columns.path = paths.real
        columns.store_id = clock.random_bytes(16)
        columns.mark = Mark()
        with next_file(paths, columns, None, signing, None, amendment) as made, naming(paths.real):
            try:
                if not made.file.commit_new():
                    raise ExistsError(path=paths.given)
            except StorageError:
                if fs.same_file(made.file.fd, paths.real):
                    fs.unlink(paths.real)
                raise
        try:
            with naming(paths.log):
                create_log(paths, made.identity)
        except StorageError:
            for path in (paths.log, paths.real):  # made just now, and nobody was told
                fs.unlink(path)
            raise
        return [*made.warnings, *derive_files(paths, derive)]


def refuse_existing(paths: StorePaths) -> None:
    """Raise ExistsError where a store, or a log that would be taken for its log, lies at a path."""
    for path, hint in ((paths.real, ""), (paths.log, "a log without its store: move it away first")):
        if fs.lstat(path) is not None:
            raise ExistsError(path=path, hint=hint)


def checkpoint(
    paths: StorePaths, lock: StoreLock, log: LogWriter, *, signing: Signing | None = None,
    derive: Derive = derived.write, amendment: Amendment | None = None,
) -> CheckpointResult:  # fmt: skip
    """Move what is in the log, and what `amendment` adds, into the HDF5 file. `log`: the open writer, nothing staged.

    Raises SigningKeyRequiredError, whatever `signing` refuses, DamagedError, NewerFormatError, StorageError; saves stay
    durable in the log then.
    """
    lock.check()
    with naming(paths.log):
        log.sync()
    remove_stale_temps(paths)
    with schema.open_columns(paths) as columns:
        before, previous_id = fs.fstat(columns.fd), columns.checkpoint_id
        check_signing(columns, signing, paths, log.pending, signed=bool(log.header.flags & SIGNED))
        overlay = Overlay(columns)
        apply_frames(overlay, _later_frames(columns, log, paths), log.reject, paths)
        state = log.state if amendment is None else amendment.apply(overlay, log.state)
        apply_overlay(columns, overlay)
        entries = log.pending
        columns.mark = Mark(log.header.log_id, log.size, log.chain)
        columns.log_state = counters(columns, state, overlay.next_id).pack()
        with next_file(paths, columns, before, signing, overlay.records.keys(), amendment) as made:
            replace_store(paths, made.file, before)
        news = signing.news if signing is not None else []
        result = CheckpointResult(entries, columns, [*news, *made.warnings])
        since = previous_id, frozenset(overlay.records)
    try:
        with naming(paths.log):
            log.rotate(made.identity)
    except StorageError as error:
        result.warnings.append(f"the old log stays in use: {error.message}")
    result.warnings.extend(derive_files(paths, derive, since))
    return result


@contextmanager
def finishing(operation: str) -> Iterator[None]:
    """Around what follows an operation that is committed and asks for a checkpoint itself, such as a compaction.

    Raises UnfinishedError for StorageError, whose "the old state is kept" would not be true.
    """
    try:
        yield
    except StorageError as error:
        raise UnfinishedError(operation=operation, **error.fields) from error


def _later_frames(columns: Columns, log: LogWriter, paths: StorePaths) -> list[Frame]:
    """The frames of the log that the file does not hold yet. Raises DamagedError for a log of another checkpoint."""
    frames = log.frames()
    if log.header.base_checkpoint_id == columns.checkpoint_id:
        return frames
    if log.header.log_id == columns.mark.log_id:  # an earlier checkpoint was not followed by a fresh log
        return [frame for frame in frames if frame.offset >= columns.mark.length]
    raise DamagedError(path=paths.log, detail="it continues another checkpoint than the store file")


def apply_frames(overlay: Overlay, frames: Iterable[Frame], reject: Callable[[Frame], None], paths: StorePaths) -> None:
    """Apply the frames of a log; one that does not decode is given to `reject` and ends the reading.

    Raises NewerFormatError for an operation of a newer version.
    """
    for frame in frames:
        try:
            operations = list(ops.decode(frame.payload))
        except ops.UnknownOperation as error:
            raise NewerFormatError(
                path=paths.log, found=str(error), supported=f"operations up to {ops.REMOVE}"
            ) from None
        except ops.BadPayload:
            reject(frame)
            return
        overlay.apply(operations)


def check_signing(
    columns: Columns, signing: Signing | None, paths: StorePaths, pending: int, signed: bool = False
) -> None:  # fmt: skip
    """Have the old file verified by who signs the new one. `signed`: the log says that the store is signed.

    Raises SigningKeyRequiredError for a signed store without a key, and whatever `signing` refuses.
    """
    signed = signed or columns.signed or "integrity" in columns.file
    if signing is not None:
        signing.before(columns.file, paths.real, signed=signed)
    elif signed:
        raise SigningKeyRequiredError(path=paths.given, pending=pending)


def counters(columns: Columns, state: LogState, next_id: int) -> LogState:
    """The counters of the new file: the log's, with what the rows themselves say."""
    state = state.copy()
    state.rows, state.active, state.event_rows = columns.count, columns.active, columns.event_count
    last = int(columns.ids[-1]) + 1 if columns.count else 0
    state.next_record_id = max(state.next_record_id, next_id, last)
    state.next_entity_id = max([state.next_entity_id, *(row.id + 1 for row in columns.entity_rows)])
    state.last_key_off = 0
    return state


@contextmanager
def next_file(
    paths: StorePaths, columns: Columns, like: os.stat_result | None, signing: Signing | None,
    changed: Iterable[int] | None, amendment: Amendment | None = None,
) -> Iterator[NextFile]:  # fmt: skip
    """The next version of a store's file, complete and read back, under a temporary name; the body commits it."""
    columns.checkpoint_id = clock.random_bytes(16)
    columns.generation += 1
    columns.signed = signing is not None
    if not columns.log_state:
        columns.log_state = counters(columns, LogState(), 0).pack()
    with naming(paths.real):
        file = AtomicFile(paths.real, like)
    with file:
        with hdf5_file.writing(file.fd, paths.real) as target:
            warnings = schema.write(target, columns)
            if amendment is not None:
                amendment.write(target)
            if signing is not None:
                signing.seal(target, paths.real, changed)
        identity = read_back(file.fd, paths.real, columns)
        if amendment is not None:
            amendment.confirm(file.temp)
        yield NextFile(file, identity, warnings)


def read_back(fd: int, path: str, columns: Columns) -> Identity:
    """The identity of the file just written, if it reads back as `columns`: shapes, ids, numbers, last texts, vector.

    Raises DamagedError otherwise.
    """
    with schema.load(fd, path) as found:
        same = (
            found.checkpoint_id == columns.checkpoint_id
            and found.log_state == columns.log_state
            and found.mark == columns.mark
            and all(
                np.array_equal(getattr(found, name), getattr(columns, name))
                for name in ("ids", "timestamps", "tombstones", "norms", "activation")
            )
            and found.event_count == columns.event_count
            and len(found.audit) == len(columns.audit)
        )
        last = max(columns.count - 1, 0)
        for name in ("chunks", "source_channel", "session_ids", "tags", "keys", "source_ids"):
            same = same and getattr(found, name)[last:] == getattr(columns, name)[last:]
        same = same and np.array_equal(
            found.embeddings.read(last, columns.count), columns.embeddings.read(last, columns.count)
        )
        if not same:
            raise DamagedError(path=path, detail="the new file does not read back as written; the old one is kept")
        return identity_of(found)


def replace_store(paths: StorePaths, file: AtomicFile, before: os.stat_result) -> None:
    """Put the next file in place. Raises StorageError, also if another program changed the old one since `before`."""
    now = fs.stat(paths.real)
    if now is None or _version(now) != _version(before):
        raise StorageError(path=paths.given, detail="another program changed the file during the checkpoint", errno=0)
    with naming(paths.real):
        file.commit()


def _version(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def derive_files(paths: StorePaths, derive: Derive, since: tuple[bytes, frozenset[int]] | None = None) -> list[str]:
    """Write the derived files; a failure is a warning, because readers do without them. `since`: as in Columns."""
    try:
        with schema.open_columns(paths) as columns:
            columns.since = since
            return list(derive(paths, columns))
    except ClawmemError as error:
        return [f"derived files were not written: {error.message}"]


# ---------------------------------------------------------------- what a file says of itself


def identity_of(columns: Columns) -> Identity:
    """What a log needs to know of the file behind `columns`."""
    config = columns.config
    flags = (
        (FLOAT16 if config.float16 else 0) | (SIGNED if columns.signed else 0) | (EVENTS if columns.event_count else 0)
    )
    flags |= (QUANTIZED if config.quantized_index else 0) | (0 if config.wal_enabled else NO_WAL)
    state = LogState.unpack(columns.log_state) if columns.log_state else counters(columns, LogState(), 0)
    return Identity(
        store_id=columns.store_id, checkpoint_id=columns.checkpoint_id, h5_id_offset=columns.checkpoint_id_offset,
        state=state, generation=columns.generation, dim=config.dim, flags=flags,
        wal_max_entries=config.wal_max_entries, base_rows=columns.count, agent_id=config.agent_id,
        mark_log_id=columns.mark.log_id, mark_length=columns.mark.length, mark_crc=columns.mark.crc,
    )  # fmt: skip


def identity_of_file(fd: int, path: str) -> Identity:
    """What the HDF5 file open at `fd` says of itself. Raises as `schema.load`."""
    with schema.load(fd, path) as columns:
        return identity_of(columns)
