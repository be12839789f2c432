"""The HDF5 layout of a store: `load` and `write` (docs/format.md § 2, spec/store.md § 2-3).

Invariants: what `write` writes, `load` reads back equal; every dataset is checked for presence, kind, shape and range
before it is used, and a fault is a DamagedError naming it; a growing column is never stored compact; nothing is
converted from other units or repaired here. Files of other tools in the ancestor's layout load too, as far as current
HDF5 reads them (`Columns.format` is "" then).
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError, LegacyStoreError, NoStoreError
from clawmem_core.storage import fs, hdf5_file, schema_events, schema_foreign, schema_graph, schema_meta, schema_text
from clawmem_core.storage.columns import BLOCK, Columns, VectorColumn, finite, norms_of
from clawmem_core.storage.paths import StorePaths

MAX_ACTIVATION = 4.0
#: how current HDF5 refuses float32 and empty datasets of the 2.1.0 tools
_LEGACY_REASONS = ("sign bit position", "invalid dataset size")
_TEXTS = ("chunks", "source_channel", "session_ids", "tags")
_OPTIONAL_TEXTS = ("keys", "source_ids")


# ---------------------------------------------------------------- load


def load(fd: int, path: str) -> Columns:
    """The content of the store file in descriptor `fd`, which must stay open until the columns are closed.

    Texts and vectors stay in the file until they are read. Raises NotAStoreError, NewerFormatError, LegacyStoreError
    (a 2.1.0 file that HDF5 refuses), DamagedError naming the dataset, StorageError.
    """
    return load_file(hdf5_file.open_for_reading(fd, path), path)


def open_columns(paths: StorePaths) -> Columns:
    """The columns of the store's file; closing them closes it. Raises NoStoreError and as `load`."""
    fd = fs.open_existing(paths.real)
    if fd is None:
        raise NoStoreError(path=paths.given)
    try:
        columns = load(fd, paths.real)
    except BaseException:
        fs.close(fd)
        raise
    columns.fd = fd
    return columns


def load_file(file: h5py.File, path: str) -> Columns:
    """`load` from an open HDF5 file, which belongs to the columns from here on and is closed if they cannot be read."""
    try:
        columns = schema_meta.load(file, path)
        try:
            _load_memory(_group(file, "memory", path), columns)
            schema_graph.load(file, columns)
            schema_events.load(file, columns)
        except DamagedError as error:
            if not columns.format and any(reason in error.message for reason in _LEGACY_REASONS):
                raise LegacyStoreError(path=path) from None
            raise
    except BaseException:
        file.close()
        raise
    return columns


def _group(file: h5py.File, name: str, path: str) -> h5py.Group:
    group = hdf5_file.find(file, name, path)
    if not isinstance(group, h5py.Group):
        raise DamagedError(path=path, detail=f"group /{name} is missing")
    return group


def _load_memory(group: h5py.Group, columns: Columns) -> None:
    path = columns.path
    columns.chunks = schema_text.open_column(group, "chunks", path, None)
    count = len(columns.chunks)
    foreign = not columns.format
    for name in _TEXTS[1:]:
        setattr(columns, name, schema_text.open_column(group, name, path, count, optional=not count and foreign))
    for name in _OPTIONAL_TEXTS:
        setattr(columns, name, schema_text.open_column(group, name, path, count, optional=True))
    columns.embeddings = _open_embeddings(group, columns, count)
    columns.timestamps = _numbers(group, "timestamps", path, count, "<f8", optional=not count)
    columns.tombstones = (_numbers(group, "tombstones", path, count, "u1", optional=not count) != 0).astype(np.uint8)
    hidden = _numbers(group, "hidden", path, count, "u1", optional=True)  # event texts hidden from the ancestor only
    columns.tombstones[hidden != 0] = 0
    columns.ids = _numbers(group, "ids", path, count, "<i8", optional=foreign, default=np.arange(count))
    if count and (columns.ids[0] < 0 or (np.diff(columns.ids) <= 0).any()):
        raise DamagedError(path=path, detail="/memory/ids are not ascending from 0 on")
    columns.norms = _norms(group, columns, count)
    columns.activation = _numbers(group, "activation_weights", path, count, "<f4", optional=foreign, default=1.0)
    if foreign:  # the ancestor's weights have no upper bound
        np.minimum(columns.activation, MAX_ACTIVATION, out=columns.activation)
    for name, values, most in (
        ("timestamps", columns.timestamps, np.inf), ("norms", columns.norms, np.inf),
        ("activation_weights", columns.activation, MAX_ACTIVATION),
    ):  # fmt: skip
        least = -np.inf if name == "timestamps" else 0
        if not finite(values) or (count and not least <= values.min() <= values.max() <= most):
            raise DamagedError(path=path, detail=f"/memory/{name}: a value is out of range")


def _numbers(
    group: h5py.Group, name: str, path: str, count: int, dtype: str, optional: bool = False, default: Any = 0
) -> npt.NDArray[Any]:
    """A column of `count` numbers or booleans as `dtype`; an optional one that is missing is `default`."""
    full = f"{group.name}/{name}"
    dataset = hdf5_file.find(group, name, path)
    if dataset is None:
        if optional:
            return np.full(count, default, dtype)
        raise DamagedError(path=path, detail=f"{full} is missing")
    with hdf5_file.reading(path, full):
        kind = dataset.dtype.kind if isinstance(dataset, h5py.Dataset) else ""
    if kind not in ("biuf" if dtype != "<i8" else "iu"):
        raise DamagedError(path=path, detail=f"{full} is no column of numbers")
    schema_text.check_shape(dataset, path, (count,), 1)
    with hdf5_file.reading(path, full):
        values = dataset[...]
    if dtype == "u1" and kind != "b":
        values = values != 0
    if dtype == "<i8" and values.dtype == np.uint64 and count and values.max() >= 1 << 63:
        raise DamagedError(path=path, detail=f"{full}: a value is out of range")
    with np.errstate(over="ignore"):  # becomes infinite and is refused as such
        return np.ascontiguousarray(values, dtype)


def _open_embeddings(group: h5py.Group, columns: Columns, count: int) -> VectorColumn:
    path, dim = columns.path, columns.config.dim
    column = VectorColumn(path, "/memory/embeddings", None, count, dim, columns.embeddings.dtype)
    if not count:
        return column
    dataset = hdf5_file.find(group, "embeddings", path)
    with hdf5_file.reading(path, "/memory/embeddings"):
        kind = dataset.dtype.kind if isinstance(dataset, h5py.Dataset) else ""
    if kind not in "iuf" or not kind or (column.dtype.itemsize == 2 and dataset.dtype != column.dtype):
        raise DamagedError(path=path, detail=f"/memory/embeddings is missing or no dataset of {column.dtype.name}")
    schema_text.check_shape(dataset, path, (count, dim), 2)
    column.base = dataset
    with hdf5_file.reading(path, "/memory/embeddings"):
        columns.embedding_offsets = _block_offsets(dataset, column.dtype)
    return column


def _block_offsets(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> list[int] | None:
    """Byte offset of each BLOCK rows where these lie in the file as they are, else None."""
    count, dim = dataset.shape
    if dataset.dtype != dtype or dataset.id.get_create_plist().get_nfilters():
        return None
    starts = range(0, count, BLOCK)
    if dataset.chunks is None:
        base = dataset.id.get_offset()
        return None if base is None else [base + start * dim * dtype.itemsize for start in starts]
    if dataset.chunks != (min(count, BLOCK), dim):
        return None
    offsets = [dataset.id.get_chunk_info_by_coord((start, 0)).byte_offset for start in starts]
    return None if None in offsets else offsets


def _norms(group: h5py.Group, columns: Columns, count: int) -> npt.NDArray[np.float32]:
    """Stored norms; where a foreign file has none, computed from the vectors."""
    if columns.format or hdf5_file.find(group, "norms", columns.path) is not None:
        return _numbers(group, "norms", columns.path, count, "<f4")
    blocks = [norms_of(columns.embeddings.read(start, start + BLOCK)) for start in range(0, count, BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)


# ---------------------------------------------------------------- write


def write(file: h5py.File, columns: Columns) -> list[str]:
    """Write all of `columns`, and the foreign objects of the file behind them, into an empty HDF5 file.

    Returns warnings about foreign objects that cannot survive. Raises DamagedError where the old file cannot be read.
    """
    schema_meta.write(file.create_group("meta"), columns)
    group = file.create_group("memory")
    for name in _TEXTS:
        schema_text.write(group, name, getattr(columns, name))
    for name in _OPTIONAL_TEXTS:
        if schema_text.measure(getattr(columns, name))[1]:
            schema_text.write(group, name, getattr(columns, name))
    _write_embeddings(group, columns)
    hidden = _hidden(columns)
    group.create_dataset("ids", data=columns.ids)
    group.create_dataset("timestamps", data=columns.timestamps)
    group.create_dataset("tombstones", data=columns.tombstones | hidden)
    if hidden.any():
        group.create_dataset("hidden", data=hidden)
    group.create_dataset("norms", data=columns.norms)
    group.create_dataset("activation_weights", data=columns.activation)
    schema_graph.write(file, columns)
    schema_events.write(file, columns)
    return schema_foreign.copy(columns, file)


def _hidden(columns: Columns) -> npt.NDArray[np.uint8]:
    """1 for live rows with the text of an event that has no current, active version: hidden from the ancestor."""
    hidden = np.zeros(columns.count, np.uint8)
    shown: dict[int, bool] = {}
    for event in columns.events:
        current = event.recorded_to == 0 and event.status == schema_events.ACTIVE
        shown[event.record_id] = current or shown.get(event.record_id, False)
    rows = [columns.row_of(id) for id, visible in shown.items() if not visible]
    hidden[[row for row in rows if row >= 0 and not columns.tombstones[row]]] = 1
    return hidden


def _write_embeddings(group: h5py.Group, columns: Columns) -> None:
    column, config = columns.embeddings, columns.config
    count, dim = len(column), column.dim
    if not count:
        group.create_dataset("embeddings", (0, dim), column.dtype)
        return
    step = min(BLOCK, count)
    filters: dict[str, Any] = {}
    if config.compression:
        filters = {"compression": "gzip", "compression_opts": min(config.compression_level, 9) or 3, "shuffle": True}
    dataset = group.create_dataset("embeddings", (count, dim), column.dtype, chunks=(step, dim), **filters)
    base = column.base
    same = columns.format and isinstance(base, h5py.Dataset) and schema_text.layout(base) == schema_text.layout(dataset)
    for start in range(0, count, step):
        stop = min(start + step, count)
        if same and column.untouched(start, stop) and (stop - start == step or stop == len(base)):
            with hdf5_file.reading(column.path, column.name):
                mask, chunk = base.id.read_direct_chunk((start, 0))
            dataset.id.write_direct_chunk((start, 0), chunk, mask)
        elif config.compression:
            dataset[start:stop] = column.read(start, stop)
        else:
            block = np.zeros((step, dim), column.dtype)
            block[: stop - start] = column.read(start, stop)
            dataset.id.write_direct_chunk((start, 0), block.data)
