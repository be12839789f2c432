"""The derived files of a checkpoint: the index of readers (`.idx`) and the key table of writers (`.keys`).

Invariants: both are functions of the columns alone and carry the checkpoint's id, so a stale one is never believed; a
failure to write one is a warning, never an error. What the keys are made of is defined here, for log frames too.
"""

from __future__ import annotations

from collections.abc import Iterator

from clawmem_core.contract.digest import sha256_digest
from clawmem_core.errors import NoStoreError, StorageError
from clawmem_core.storage import event_keys, fs, keys, ops, schema
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.log_format import NO_ID, Key
from clawmem_core.storage.paths import StorePaths


def write(paths: StorePaths, columns: Columns) -> list[str]:
    """Write both files beside the store `columns` were loaded from; returns warnings."""
    warnings = []
    for name, part in (("key table", _write_keys), ("index", _write_index)):
        try:
            part(paths, columns)
        except StorageError as error:
            warnings.append(f"the {name} was not written: {error.message}")
    return warnings


def _write_keys(paths: StorePaths, columns: Columns) -> None:
    keys.write(paths, columns.checkpoint_id, keys_of(columns))


def _write_index(paths: StorePaths, columns: Columns) -> None:
    from clawmem_core.search.index_build import build
    from clawmem_core.search.index_writer import FileSink, IndexFile, commit

    stat = fs.stat(paths.real)
    if stat is None:
        raise NoStoreError(path=paths.given)
    with AtomicFile(paths.index, stat) as file:
        build(columns, IndexFile(FileSink(file)), stat.st_size, stat.st_mtime_ns)
        commit(file)


def keys_of(columns: Columns) -> Iterator[Key]:
    """Every look-up key of a checkpoint; of equal ones the last counts."""
    for row, key in enumerate(columns.keys) if columns.keys.base is not None else ():
        if key and not columns.tombstones[row]:
            yield Key(keys.key_bytes("K", key.encode()), NO_ID, int(columns.ids[row]), "K", 1)
    for event in columns.events:
        digest = sha256_digest(event.payload)[:16]
        name = event_keys.event_key(event.label, event.event_id, event.scope_key)
        yield Key(name, digest, event.record_id, "P", event.status)
        if ops.LABELS[event.label] == "EPISODE":
            name = event_keys.source_key(event.scope_key, event.session, event.source_event)
            yield Key(name, digest, event.record_id, "S", event.status)
    for value in columns.values:
        yield Key(event_keys.value_key(value.value_key), NO_ID, 0, "V", 0 if value.lifted else 1)


def rebuild_keys(paths: StorePaths) -> None:
    """Write the key table anew from the HDF5 file. Raises as `schema.load`; that it cannot be written is no error."""
    with open_columns(paths) as columns:
        try:
            _write_keys(paths, columns)
        except StorageError:
            return  # the caller asks the file itself then


def find_key_in_file(paths: StorePaths, kind: str, key: bytes) -> Key | None:
    """The key as the HDF5 file alone has it, or None. Raises as `schema.load`."""
    found = None
    with open_columns(paths) as columns:
        for one in keys_of(columns):
            if one.kind == kind and one.key == key:
                found = one
    return found


def open_columns(paths: StorePaths) -> Columns:
    """The columns of the store's file; closing them closes it. Raises NoStoreError and as `schema.load`."""
    fd = fs.open_existing(paths.real)
    if fd is None:
        raise NoStoreError(path=paths.given)
    try:
        columns = schema.load(fd, paths.real)
    except BaseException:
        fs.close(fd)
        raise
    columns.fd = fd
    return columns
