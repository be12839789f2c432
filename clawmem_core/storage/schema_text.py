"""String columns and byte arrays on disk: layout rules, writing and opening.

A string column is fixed-length NULLPAD UTF-8 iff rows × width ≤ max(4 × text bytes, 64 MiB), else variable-length, so
one huge text never inflates a column (design § 3). The width is a multiple of 64 and grows only, unless rows are
dropped. From 4 KiB on it is cut into chunks of a fixed number of rows, deflated at level 1 without shuffle; full chunks
whose rows and width did not change are copied as they are, which makes a checkpoint of few records into many cheap.

Invariants: an unchanged column is written back in the same chunks, byte for byte; no text is ever cut short, whatever a
tool made of datasets, filters and attributes in between; the file's size bounds what is read.
"""

from __future__ import annotations

import zlib
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError
from clawmem_core.storage import hdf5_file
from clawmem_core.storage.columns import BLOCK, TextColumn

DEFLATE_FROM = 4096  # bytes; smaller datasets stay contiguous
WIDTH_STEP = 64
FIXED_LIMIT = 64 << 20
CHUNK_BYTES = 4 << 20
LEVEL = 1
TEXT_BYTES, TEXT_WIDTH = "text_bytes", "text_width"  # attributes: sum and maximum, so that the rule needs no scan
#: no filter a store uses expands its input more than this; bounds what a small file can make us allocate
MAX_EXPANSION = 1032


def chunk_rows(width: int) -> int:
    """Rows of a string chunk of this width."""
    return max(1, min(BLOCK, CHUNK_BYTES // width))


def measure(column: TextColumn) -> tuple[int, int]:
    """(width, text bytes) of the column on disk; both only grow while all base rows are kept, so nothing is scanned.

    The text bytes choose the layout and no more: 0 stands for a column without texts, another number may be wrong where
    somebody changed the attribute. The width is that of the texts in any case.
    """
    base = column.base
    width, total = 1, 0
    if column.measured is not None:
        width, total = max(1, column.measured[0]), column.measured[1]
    elif base is None or (ours(column) and column.keep is None and base.dtype.kind == "S"):
        if base is not None:
            width = base.dtype.itemsize
            with hdf5_file.reading(column.path, column.name):
                total = min(max(int(base.attrs[TEXT_BYTES]), 1), len(base) * width)
        lengths = [len(text) for text in (*column.changed.values(), *column.added)]
        width, total = max([width, *lengths]), total + sum(lengths)
    else:
        for start in range(0, len(column), BLOCK):
            lengths = [len(text) for text in column.read(start, start + BLOCK)]
            width, total = max([width, *lengths]), total + sum(lengths)
    return -(-width // WIDTH_STEP) * WIDTH_STEP, total


def ours(column: TextColumn) -> bool:
    """Whether a column's base is a dataset that `write` wrote."""
    base = column.base
    with hdf5_file.reading(column.path, column.name):
        return isinstance(base, h5py.Dataset) and TEXT_BYTES in base.attrs and TEXT_WIDTH in base.attrs


def write(group: h5py.Group, name: str, column: TextColumn) -> None:
    """Write a string column as dataset `name`."""
    rows = len(column)
    width, total = measure(column)
    fixed = rows * width <= max(4 * total, FIXED_LIMIT)
    if not rows:
        dataset = group.create_dataset(name, (0,), h5py.string_dtype("utf-8", 1))
    elif not fixed:
        dataset = group.create_dataset(name, (rows,), h5py.string_dtype("utf-8"))
        for start in range(0, rows, BLOCK):
            dataset[start : start + BLOCK] = column.read(start, start + BLOCK)
    elif rows * width < DEFLATE_FROM:
        dataset = group.create_dataset(name, (rows,), h5py.string_dtype("utf-8", width))
        dataset[...] = np.array(column.read(0, rows), dataset.dtype)
    else:
        dataset = _deflated(group, name, (rows,), h5py.string_dtype("utf-8", width), (min(chunk_rows(width), rows),))
        _write_chunks(dataset, column, rows, width)
    dataset.attrs[TEXT_BYTES] = total
    dataset.attrs[TEXT_WIDTH] = width


def _deflated(group: h5py.Group, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> Any:
    return group.create_dataset(name, shape, dtype, chunks=chunks, compression="gzip", compression_opts=LEVEL)


def _write_chunks(dataset: h5py.Dataset, column: TextColumn, rows: int, width: int) -> None:
    step = dataset.chunks[0]
    base = column.base
    same = ours(column) and layout(base) == layout(dataset)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        if same and column.untouched(start, stop) and (stop - start == step or stop == len(base)):
            with hdf5_file.reading(column.path, column.name):
                skipped, packed = base.id.read_direct_chunk((start,))
        else:
            skipped = 0
            texts = np.array(column.read(start, stop), f"S{width}").tobytes()
            packed = zlib.compress(texts.ljust(step * width, b"\0"), LEVEL)
        dataset.id.write_direct_chunk((start,), packed, skipped)


def layout(dataset: h5py.Dataset) -> tuple[Any, ...]:
    """What has to be equal for chunks of one dataset to be chunks of another: shape, type and filters in their order.

    `skipped` filters stand with each chunk.
    """
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(place) for place in range(plist.get_nfilters())]
    return dataset.chunks, dataset.dtype, [(code, values) for code, _, values, _ in filters]


def write_bytes(group: h5py.Group, name: str, data: npt.NDArray[Any]) -> None:
    """Write an array, deflated in 1 MiB chunks of whole rows from 4 KiB on."""
    if data.nbytes < DEFLATE_FROM:
        group.create_dataset(name, data=data)
        return
    row = data.nbytes // len(data)
    step = max(1, min(len(data), (1 << 20) // row))
    dataset = _deflated(group, name, data.shape, data.dtype, (step, *data.shape[1:]))
    for start in range(0, len(data), step):
        packed = zlib.compress(data[start : start + step].tobytes().ljust(step * row, b"\0"), LEVEL)
        dataset.id.write_direct_chunk((start, *(0,) * (data.ndim - 1)), packed)


def open_column(group: h5py.Group, name: str, path: str, rows: int | None, optional: bool = False) -> TextColumn:
    """A string dataset as a column; `rows` None: any number. An optional one that is missing is all "".

    Raises DamagedError where it is missing, no string dataset of one dimension, of another length, or its size is
    beyond anything the file could hold.
    """
    full = f"{group.name}/{name}"
    dataset = hdf5_file.find(group, name, path)
    if dataset is None:
        if optional:
            return TextColumn(path, full, None, rows or 0)
        raise DamagedError(path=path, detail=f"{full} is missing")
    with hdf5_file.reading(path, full):
        is_text = isinstance(dataset, h5py.Dataset) and h5py.check_string_dtype(dataset.dtype) is not None
    if not is_text:
        raise DamagedError(path=path, detail=f"{full} is no string dataset")
    check_shape(dataset, path, None if rows is None else (rows,), 1)
    return TextColumn(path, full, dataset, dataset.shape[0])


def check_shape(dataset: h5py.Dataset | h5py.Group, path: str, shape: tuple[int, ...] | None, dimensions: int) -> None:
    """Raises DamagedError where this is no dataset, or has another shape, or more bytes than its file can stand for."""
    if not isinstance(dataset, h5py.Dataset):
        raise DamagedError(path=path, detail=f"{dataset.name} is no dataset")
    found = dataset.shape
    if found is None or len(found) != dimensions or (shape is not None and found != shape):
        raise DamagedError(path=path, detail=f"{dataset.name} has shape {found}, not {shape or f'{dimensions}-d'}")
    if dataset.nbytes > MAX_EXPANSION * dataset.file.id.get_filesize() + (1 << 20):
        raise DamagedError(path=path, detail=f"{dataset.name} claims {dataset.nbytes} bytes")
