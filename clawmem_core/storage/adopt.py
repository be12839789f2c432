"""Taking a store of an older kind over in place: a file without a checkpoint id, or a log of the ancestor's kind.

Works for files that current HDF5 reads; those of the 2.1.0 tools are imported into a new store instead.

Invariants: the legacy mark in the new file (all-zero log id, length and CRC-32 of the bytes taken in) makes sure that
an interrupted adoption applies no entry twice; log bytes that were not understood are quarantined before the log goes.
"""

from __future__ import annotations

from zlib import crc32

from clawmem_core import clock
from clawmem_core.overlay import Overlay
from clawmem_core.storage import derived, fs, legacy_hdf5, legacy_log, quarantine, schema
from clawmem_core.storage.apply_overlay import apply_overlay
from clawmem_core.storage.atomic import remove_stale_temps
from clawmem_core.storage.checkpoint import (
    CheckpointResult,
    Derive,
    Signing,
    check_signing,
    counters,
    derive_files,
    identity_of,
    next_file,
    replace_store,
)
from clawmem_core.storage.columns import Mark
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log_format import LogState
from clawmem_core.storage.log_recovery import create_log
from clawmem_core.storage.paths import StorePaths


def adopt(
    paths: StorePaths, lock: StoreLock, *, signing: Signing | None = None, derive: Derive = derived.write
) -> CheckpointResult:
    """The first checkpoint of a store for which LogWriter.open raised CheckpointFirst.

    Raises LegacyStoreError (a 2.1.0 file) and as `checkpoint`.
    """
    lock.check()
    remove_stale_temps(paths)
    with schema.open_columns(paths) as columns:
        before = fs.fstat(columns.fd)
        identity = identity_of(columns)
        check_signing(columns, signing, paths, 0)
        if not columns.format:
            legacy_hdf5.to_seconds(columns)
            columns.store_id = clock.random_bytes(16)
        log = legacy_log.read(paths.log, identity)
        overlay, notes = Overlay(columns), []
        if log is not None:
            notes = legacy_hdf5.replay(columns, overlay, log.entries)
            if log.damage:
                notes.append(f"the log of the older kind was understood up to byte {log.end} of {log.size}")
            columns.mark = Mark(bytes(16), log.end, crc32(fs.read_all(paths.log, log.end) or b""))
        apply_overlay(columns, overlay)
        state = identity.state.copy() if columns.format else LogState()
        state.seq += 0 if log is None else len(log.entries)
        columns.log_state = counters(columns, state, overlay.next_id).pack()
        with next_file(paths, columns, before, signing, None) as made:
            replace_store(paths, made.file, before)
        result = CheckpointResult(0 if log is None else len(log.entries), columns, [*notes, *made.warnings])
    if log is not None and log.damage:
        _keep(paths)
    create_log(paths, made.identity)
    result.warnings.extend(derive_files(paths, derive))
    return result


def _keep(paths: StorePaths) -> None:
    fd = fs.open_existing(paths.log, fs.RDONLY | fs.NOFOLLOW)
    if fd is not None:
        try:
            quarantine.keep(paths, fd)
        finally:
            fs.close(fd)
