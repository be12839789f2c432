"""Seeded damage: to bytes, to JSON documents, and to the structure of HDF5 files."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


def damaged(data: bytes, rng: random.Random, others: list[bytes] | None = None) -> bytes:
    """One to four pieces of damage to bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(_DAMAGES)(changed, rng)
    if others and rng.random() < 0.1:
        other = rng.choice(others)
        cut = rng.randrange(len(changed) + 1)
        changed[cut:] = other[rng.randrange(len(other) + 1) :]
    return bytes(changed)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((2, 4, 8))
    if len(data) > size:
        at = rng.randrange(len(data) - size)
        value = rng.choice(_EDGES) + rng.choice((0, 0, 1, -1))
        data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big")))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randrange(1, 40)]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, 20))


def _copy(data: bytearray, rng: random.Random) -> None:
    start, at = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    data[at:at] = data[start : start + rng.randrange(1, 600)]


def _zero(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 8, 64, 512)))
    data[at:end] = bytes(end - at)


def _extend(data: bytearray, rng: random.Random) -> None:
    data += rng.choice((bytes(rng.randrange(1, 600)), rng.randbytes(rng.randrange(1, 600))))


_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flip, _set, _set, _number, _number, _cut, _remove, _insert, _copy, _zero, _extend,
)  # fmt: skip


# ---------------------------------------------------------------- JSON

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, 1e308, -0.0, 2**53, 2**63, 10**400, "", "a", "\0", "é", "\ud800", "x" * 7000,
    "2024-01-01T00:00:00Z", "9999999999999999", [], {}, [None], [[[[]]]], {"a": {"b": {}}}, [0.1] * 400, "NaN",
)  # fmt: skip


def damaged_json(data: bytes, rng: random.Random) -> bytes:
    """A JSON document with other values, members more or less, or bytes damaged."""
    try:
        value = json.loads(data)
    except ValueError:
        return damaged(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _change(value, rng)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        text = b"[" * rng.choice((100, 100_000)) + text
    return damaged(text, rng) if rng.random() < 0.2 else text


def _value(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(_VALUES))  # what is put in may be changed in its turn


def _change(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        how = rng.randrange(5)
        if how == 0:
            del value[key]
        elif how == 1:
            value[rng.choice(("x", "__proto__", "id", "", "é" * 50))] = _value(rng)
        else:
            value[key] = _change(value[key], rng) if rng.random() < 0.4 else _value(rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.7:
        value[rng.randrange(len(value))] = _value(rng)
        return value
    return _value(rng)


# ---------------------------------------------------------------- HDF5


def restructured(data: bytes, rng: random.Random) -> bytes:
    """An HDF5 file with objects missing, or of another type, shape, size or kind."""
    file = io.BytesIO(data)
    with h5py.File(file, "r+") as store:
        for _ in range(rng.choice((1, 1, 2))):
            _restructure(store, rng)
    return file.getvalue()


def _objects(store: h5py.File) -> tuple[list[str], list[str]]:
    groups, datasets = ["/"], []

    def visit(name: str, thing: Any) -> None:
        (datasets if isinstance(thing, h5py.Dataset) else groups).append(f"/{name}")

    store.visititems(visit)
    return sorted(groups), sorted(datasets)


def _restructure(store: h5py.File, rng: random.Random) -> None:
    groups, datasets = _objects(store)
    if not datasets:
        return
    how = rng.randrange(7)
    if how == 0:
        del store[rng.choice([*groups[1:], *datasets])]
    elif how == 1:
        _attribute(store[rng.choice([*groups, *datasets])], rng)
    elif how == 2:
        name = rng.choice(datasets)
        del store[name]
        target = rng.choice((rng.choice(groups), "/", name + "x"))
        store[name] = rng.choice((h5py.SoftLink(target), h5py.ExternalLink("/dev/zero", "/x"), h5py.SoftLink(name)))
    elif how == 3:
        name = rng.choice(datasets)
        del store[name]
        store.create_group(name)
    else:
        _other_dataset(store, rng.choice(datasets), rng)


def _attribute(thing: Any, rng: random.Random) -> None:
    names = sorted(thing.attrs) or ["x"]
    name = rng.choice(names)
    how = rng.randrange(4)
    if how == 0 and name in thing.attrs:
        del thing.attrs[name]
    else:
        value = rng.choice((
            -1, 0, 1 << 62, 1.5, float("nan"), "", "x" * 3000, np.zeros((3, 3)), np.zeros(0), "1.9", "2.0",
            h5py.Empty("f4"), np.array(["a", "b"], "S3"), b"\xff\xfe", np.float16(2),
        ))  # fmt: skip
        thing.attrs[name] = value


def _other_dataset(store: h5py.File, name: str, rng: random.Random) -> None:
    old = store[name]
    shape, dtype = list(old.shape or ()), old.dtype
    values = old[()] if old.shape is not None and 0 not in shape else None
    del store[name]
    how = rng.randrange(6)
    if how == 0:  # another length
        if shape:
            shape[0] = max(0, shape[0] + rng.choice((-1, 1, 5, 1000)))
        store.create_dataset(name, tuple(shape), dtype)
    elif how == 1:  # another rank
        store.create_dataset(name, (*shape, 2) if rng.random() < 0.5 else (), dtype)
    elif how == 2:  # another type
        store.create_dataset(name, tuple(shape), rng.choice(("i1", "u8", ">f8", "S5", "S1", "f2", "c16", "?")))
    elif how == 3:  # lengths nobody has, without a byte behind them
        huge = tuple(max(1, axis) * (1 << rng.choice((20, 32, 40))) for axis in shape[:1]) + tuple(shape[1:])
        store.create_dataset(name, huge or (1 << 40,), dtype, chunks=(1024, *[max(1, axis) for axis in shape[1:]]))
    elif how == 4 and values is not None and dtype.kind in "fiu" and np.size(values):  # values nobody means
        values = np.array(values)
        flat = values.reshape(-1)
        edges = (np.nan, np.inf, -1.0) if dtype.kind == "f" else (np.iinfo(dtype).max, np.iinfo(dtype).min)
        flat[rng.randrange(len(flat))] = rng.choice(edges)
        store.create_dataset(name, data=values)
    else:
        store.create_dataset(name, tuple(shape), h5py.string_dtype() if rng.random() < 0.5 else dtype)
