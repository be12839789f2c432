"""The derived files of a checkpoint: the index of readers (`.idx`) and the key table of writers (`.keys`).

Invariants: both are functions of the columns alone and carry the checkpoint's id, so a stale one is never believed; a
failure to write one is a warning, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clawmem_core.errors import NoStoreError, StorageError
from clawmem_core.storage import fs, keys, schema
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.log_format import Key
from clawmem_core.storage.paths import StorePaths

LIVE = 1  # status of an upsert key (writer.py)


def write(paths: StorePaths, columns: Columns) -> list[str]:
    """Write both files beside the store `columns` were loaded from; returns warnings. Raises StorageError."""
    from clawmem_core.search.index_update import write_index

    stat = fs.stat(paths.real)
    if stat is None:
        return ["the store's file is gone"]
    with naming(paths.keys):
        keys.write(paths, columns.checkpoint_id, keys_of(columns))
    with naming(paths.index):
        write_index(paths.index, columns, stat, columns.since)
    return []


def keys_of(columns: Columns) -> Iterator[Key]:
    """Every key of the rows: upsert keys of live records, events, value tombstones."""
    if columns.keys.base is not None or columns.keys.added or columns.keys.changed:
        for row, key in enumerate(columns.keys):
            if key and not columns.tombstones[row]:
                yield Key(keys.key_bytes("K", key.encode()), bytes(16), int(columns.ids[row]), "K", LIVE)
    if columns.events or columns.values:
        from clawmem_core.contract.event_keys import event_keys, value_key_of

        for event in columns.events:
            if event.version == 1:
                yield from event_keys(event)
        for value in columns.values:
            yield value_key_of(value)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Errors of the body about a temporary file name `path` instead."""
    try:
        yield
    except StorageError as error:
        fields = {**error.fields, "path": path}
        raise type(error)(**fields) from error


@contextmanager
def open_columns(paths: StorePaths) -> Iterator[Columns]:
    """The columns of the store's HDF5 file, closed with its descriptor. Raises NoStoreError and as `schema.load`."""
    fd = fs.open_existing(paths.real)
    if fd is None:
        raise NoStoreError(path=paths.given)
    try:
        columns = schema.load(fd, paths.real)
    except BaseException:
        fs.close(fd)
        raise
    columns.fd = fd
    with columns:
        yield columns


def rebuild_keys(paths: StorePaths) -> None:
    """Write the key table anew from the HDF5 file. Raises NoStoreError, StorageError and as `schema.load`."""
    with open_columns(paths) as columns:
        keys.write(paths, columns.checkpoint_id, keys_of(columns))


def find_key(paths: StorePaths, kind: str, key: bytes) -> Key | None:
    """A key by reading the HDF5 file, for when the table cannot be written. Raises as `rebuild_keys`."""
    with open_columns(paths) as columns:
        found = [one for one in keys_of(columns) if one.kind == kind and one.key == key]
    return found[-1] if found else None
