"""Stores of the Rust clawhdf5 2.1.0 tools: file and pending log as columns, for the importer (spec/store.md § 2).

Session and graph times are microseconds there and become seconds here; weights are bounded as ours are.

Invariant: neither file nor log is ever changed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from math import isfinite

import h5py
import numpy as np

from clawmem_core.errors import DamagedError, NoStoreError, NotAStoreError
from clawmem_core.model import Record
from clawmem_core.overlay import Overlay
from clawmem_core.storage import fs, hdf5_file, legacy_log, ops, schema
from clawmem_core.storage.apply_overlay import apply_overlay
from clawmem_core.storage.columns import Columns, finite
from clawmem_core.storage.legacy_mend import mended

_MICROSECONDS = 1e6


def load(path: str) -> Columns:
    """The content of a 2.1.0 store, its pending log included; `warnings` says what could not be taken as it was.

    The vectors are float32; ids are positions. Raises NoStoreError, NotAStoreError, NewerFormatError, DamagedError,
    StorageError.
    """
    columns = load_file(path)
    try:
        log = legacy_log.read(log_path(path))
        overlay = Overlay(columns)
        if log is not None:
            columns.warnings.extend(replay(columns, overlay, log.entries))
            if log.damage:
                columns.warnings.append(f"{log_path(path)} was understood up to byte {log.end} of {log.size}")
        return apply_overlay(columns, overlay)
    except BaseException:
        columns.close()
        raise


def log_path(path: str) -> str:
    """Where the 2.1.0 tools keep a store's log: the last extension becomes `.h5.wal`."""
    return os.path.splitext(path)[0] + ".h5.wal"


def replay(
    columns: Columns, overlay: Overlay, entries: Iterable[legacy_log.LegacySave | legacy_log.LegacyTombstone]
) -> list[str]:
    """Apply a legacy log's entries to an overlay over `columns`; returns warnings about what had to be changed."""
    warnings: list[str] = []
    ids: list[int] = columns.ids.tolist()
    for entry in entries:
        if isinstance(entry, legacy_log.LegacyTombstone):
            if entry.position < len(ids):  # the ancestor ignores others too
                overlay.apply([(ops.DELETE, 0, (ids[entry.position],))])
            continue
        id = ids[-1] + 1 if ids else 0
        ids.append(id)
        overlay.apply([(ops.RECORD, 0, _record(columns, id, entry, warnings))])
    return warnings


def _record(columns: Columns, id: int, entry: legacy_log.LegacySave, warnings: list[str]) -> Record:
    """A logged record. The ancestor checked nothing: what no store can hold is left out, with a warning."""
    texts = (entry.chunk, entry.source_channel, entry.session_id, entry.tags)
    if any("\0" in text for text in texts):
        warnings.append(f"record {id}: a NUL character became U+FFFD")
    chunk, channel, session_id, tags = (text.replace("\0", "\ufffd") for text in texts)
    seconds = entry.timestamp
    if not isfinite(seconds):
        warnings.append(f"record {id}: its time is no number; 0 was taken")
        seconds = 0.0
    record = Record(id, chunk, seconds, channel, session_id, tags)
    vector = np.frombuffer(entry.vector, "<f4")
    with np.errstate(over="ignore"):
        stored = vector.astype(columns.embeddings.dtype)
    if len(vector) == columns.config.dim and finite(stored):
        record.vector = stored.tobytes() if stored.any() else None
    elif len(vector):
        warnings.append(f"record {id}: its vector of {len(vector)} values was left out")
    return record


def load_file(path: str) -> Columns:
    """The content of a 2.1.0 file, without its log. Raises NoStoreError, NotAStoreError, DamagedError, StorageError."""
    size = fs.size(path)
    data = fs.read_all(path, size)
    if data is None:
        raise NoStoreError(path=path)
    if not data.startswith(hdf5_file.SIGNATURE):
        raise NotAStoreError(path=path, detail="it is no HDF5 file")
    try:
        file = h5py.File(io.BytesIO(mended(data)), "r")
    except hdf5_file.FAULTS as error:
        raise DamagedError(path=path, detail=str(error)) from None
    columns = schema.load_file(file, path)
    if columns.format:
        columns.close()
        raise NotAStoreError(path=path, detail="it is a store of this toolchain, not of the 2.1.0 tools")
    to_seconds(columns)
    return columns


def to_seconds(columns: Columns) -> None:
    """Convert session and graph times of the ancestor, microseconds, to seconds."""
    for session in columns.session_rows:
        session.timestamp /= _MICROSECONDS
    for relation in columns.relation_rows:
        relation.timestamp /= _MICROSECONDS
