"""Snapshot: a complete copy of a store at one moment, pending entries included.

Invariants: the source is neither locked nor changed; the copy is read back before it has its name; a file that is there
is replaced only with `force`, and nothing that lay beside it (log, index, keys) is ever taken for the copy's own. An
unsigned store, or a signed one with its key, becomes one merged file and an empty log; a signed store without the key
is copied as it is, with the entries of its log in a log of its own.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from clawmem_core import clock
from clawmem_core.errors import DamagedError, ExistsError, InvalidInputError, NotAStoreError
from clawmem_core.overlay import Overlay
from clawmem_core.storage import fs, schema
from clawmem_core.storage.apply_overlay import apply_overlay
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.checkpoint import (
    Signing,
    apply_frames,
    counters,
    identity_of_file,
    next_file,
)
from clawmem_core.storage.columns import Mark
from clawmem_core.storage.derived import naming
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log_format import SIGNED, Frame, LogHeader
from clawmem_core.storage.log_recovery import create_log, write_log
from clawmem_core.storage.pair import Pair, open_pair
from clawmem_core.storage.paths import StorePaths


class Snapshot:
    """What a snapshot made: `path` of the HDF5 file, `log` beside it, entries in that log, warnings."""

    __slots__ = ("log", "path", "pending", "warnings")

    def __init__(self, paths: StorePaths, pending: int, warnings: list[str]) -> None:
        self.path, self.log, self.pending, self.warnings = paths.real, paths.log, pending, warnings


def snapshot(
    paths: StorePaths, dest: str | os.PathLike[str], *, force: bool = False, signing: Signing | None = None
) -> Snapshot:
    """Copy the store to `dest`; into a folder under a new name `snapshot_<UTC microseconds>_<name>`.

    Raises ExistsError (a store or log is there and `force` is off), InvalidInputError (`dest` is the store or one of
    its files), LockedError (somebody writes to the store to be replaced), NoStoreError, DamagedError, StorageError.
    """
    target = _target(paths, dest)
    _refuse(paths, target, force)
    pair = open_pair(paths, lambda fd: identity_of_file(fd, paths.real))
    warnings = [report.message for report in pair.reports]
    with ExitStack() as stack:
        stack.callback(fs.close, pair.h5_fd)
        if force and fs.lstat(target.lock) is not None:
            stack.enter_context(StoreLock.acquire(target))
        if _is_signed(pair, paths) and signing is None:
            _copy(pair, target, force)
            return Snapshot(target, pair.pending, warnings)
        warnings.extend(_merge(pair, paths, target, force, signing))
        return Snapshot(target, 0, warnings)


def _target(paths: StorePaths, dest: str | os.PathLike[str]) -> StorePaths:
    target = StorePaths(dest)
    if fs.is_directory(target.real):
        return StorePaths(os.path.join(target.real, f"snapshot_{clock.now_us()}_{paths.name}"))
    return target


def _refuse(paths: StorePaths, target: StorePaths, force: bool) -> None:
    source, there = fs.stat(paths.real), fs.stat(target.real)
    own = {paths.real, paths.log, paths.lock, paths.index, paths.keys, paths.ann}
    same = source is not None and there is not None and os.path.samestat(source, there)
    if same or target.real in own or paths.real in {target.log, target.lock, target.index, target.keys, target.ann}:
        raise InvalidInputError(field="dest", detail=f"{target.given} is the store itself or one of its files")
    if not force:
        for path in (target.real, target.log):
            if fs.lstat(path) is not None:
                raise ExistsError(path=path, hint="give --force to replace it")


def _is_signed(pair: Pair, paths: StorePaths) -> bool:
    if _log_says_signed(pair):
        return True
    with schema.load(pair.h5_fd, paths.real) as columns:
        return columns.signed or "integrity" in columns.file


def _log_says_signed(pair: Pair) -> bool:
    return pair.header is not None and bool(pair.header.flags & SIGNED)


def _merge(pair: Pair, paths: StorePaths, target: StorePaths, force: bool, signing: Signing | None) -> list[str]:
    """One file with everything in it."""
    like = fs.fstat(pair.h5_fd)
    with schema.load(pair.h5_fd, paths.real) as columns:
        if signing is not None:
            signing.before(columns.file, paths.real, signed=columns.signed or _log_says_signed(pair))
        overlay = Overlay(columns)
        bad: list[Frame] = []
        apply_frames(overlay, pair.frames, bad.append, paths)
        if bad:
            raise DamagedError(path=paths.log, detail=f"the entry at byte {bad[0].offset} does not decode")
        apply_overlay(columns, overlay)
        columns.mark = Mark()
        columns.log_state = counters(columns, pair.state, overlay.next_id).pack()
        with next_file(target, columns, like, signing, overlay.records.keys()) as made:
            _commit(made.file, target, force)
    with naming(target.log):
        create_log(target, made.identity)
    return made.warnings


def _copy(pair: Pair, target: StorePaths, force: bool) -> None:
    """The file byte for byte, and its pending entries in a log of its own."""
    stat = fs.fstat(pair.h5_fd)
    with naming(target.real), AtomicFile(target.real, stat) as file:
        if fs.copy_range(pair.h5_fd, file.fd, stat.st_size) != stat.st_size:
            raise NotAStoreError(path=target.given, detail="the source was cut while it was copied")
        identity_of_file(file.fd, target.real)
        _commit(file, target, force)
    with naming(target.log):
        write_log(target, LogHeader.after(pair.identity, clock.random_bytes(16), clock.now_us()), pair.frames)


def _commit(file: AtomicFile, target: StorePaths, force: bool) -> None:
    with naming(target.real):
        if not force:
            if not file.commit_new():
                raise ExistsError(path=target.given)
            return
        file.commit()
    for path in (target.log, target.index, target.keys, target.ann):
        fs.unlink(path)
