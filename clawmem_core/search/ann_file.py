"""The bytes of `<store>.ann`, and whether native code may have them: hnswlib believes every number in its state.

    .ann: magic "CLAWMANN", u16 major, u16 0, u32 number of parts, checkpoint id[16], u64 length and u32 CRC-32 of the
    parts, u32 CRC-32 of these 44 bytes; then the parts: u8 length and name, u8 length and dtype, u64 bytes, data

Invariants: `state_of` gives a state only after every size in it follows from the others, every link leads to a node of
that level and every label is a row; whatever is wrong with a file is UnusableIndex. hnswlib is not needed here.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.storage import fs

Array = npt.NDArray[Any]

MAGIC = b"CLAWMANN"
MAJOR = 1

_HEADER = struct.Struct("<8sHHI16sQI")
_NUMBERS = (
    "ser_version", "dim", "num_threads", "seed", "offset_level0", "max_elements", "cur_element_count",
    "size_data_per_element", "label_offset", "offset_data", "max_level", "enterpoint_node", "max_M", "max_M0", "M",
    "ef_construction", "ef", "size_links_per_element",
)  # fmt: skip
_FLAGS = ("index_inited", "ep_added", "normalize", "has_deletions", "allow_replace_deleted")
_TYPES = {
    **dict.fromkeys((*_NUMBERS, *_FLAGS), "<i8"), "mult": "<f8", "label_lookup_external": "<u8",
    "label_lookup_internal": "<u4", "element_levels": "<i4", "data_level0": "|i1", "link_lists": "|i1",
}  # fmt: skip
_ARRAYS = ("label_lookup_external", "label_lookup_internal", "element_levels", "data_level0", "link_lists")
_MOST_LINKS, _MOST_LEVELS, _MOST_EF = 4096, 64, 1 << 20


def encode(checkpoint_id: bytes, state: dict[str, Any]) -> tuple[bytes, bytes]:
    """Header and parts of hnswlib's state of a graph."""
    parts = [_part(name, np.array(state[name]).astype(kind)) for name, kind in _TYPES.items()]
    body = b"".join(parts)
    head = _HEADER.pack(MAGIC, MAJOR, 0, len(parts), checkpoint_id, len(body), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)), body


def _part(name: str, values: Array) -> bytes:
    kind = values.dtype.str.encode()
    data = values.tobytes()
    return bytes((len(name),)) + name.encode() + bytes((len(kind),)) + kind + struct.pack("<Q", len(data)) + data


def read(path: str) -> tuple[bytes, int, memoryview]:
    """Checkpoint id, number of parts and parts of a file whose checksums hold. Raises UnusableIndex, StorageError."""
    data = fs.read_all(path, fs.size(path))
    if data is None:
        raise UnusableIndex("missing")
    size = _HEADER.size
    if len(data) < size + 4 or zlib.crc32(data[:size]) != struct.unpack_from("<I", data, size)[0]:
        raise UnusableIndex("damaged header")
    magic, major, _, count, checkpoint_id, length, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[size + 4 :]
    if (magic, major) != (MAGIC, MAJOR):
        raise UnusableIndex("other version")
    if length != len(body) or zlib.crc32(body) != crc:
        raise UnusableIndex("damaged")
    return checkpoint_id, count, body


def state_of(count: int, body: memoryview, dim: int, rows: int) -> dict[str, Any]:
    """hnswlib's state in `count` parts, for vectors of `dim` numbers and labels below `rows`. Raises UnusableIndex."""
    try:
        state = _state(count, body)
        consistent = state.keys() == _TYPES.keys() | {"space"} and _sized(state, dim, rows) and _linked(state)
    except (struct.error, ValueError, LookupError):
        consistent = False
    if not consistent:
        raise UnusableIndex("damaged graph")
    return state


def _state(count: int, body: memoryview) -> dict[str, Any]:
    state: dict[str, Any] = {"space": "cosine"}
    at = 0
    for _ in range(count):
        name, at = _short(body, at)
        kind, at = _short(body, at)
        (size,) = struct.unpack_from("<Q", body, at)
        values = np.frombuffer(body[at + 8 : at + 8 + size], _TYPES[name])
        at += 8 + size
        if kind != _TYPES[name] or values.nbytes != size or (name not in _ARRAYS and len(values) != 1):
            raise ValueError(name)
        state[name] = values.copy() if name in _ARRAYS else bool(values[0]) if name in _FLAGS else values[0].item()
    return state


def _short(body: memoryview, at: int) -> tuple[str, int]:
    end = at + 1 + body[at]
    return bytes(body[at + 1 : end]).decode(), end


def _sized(state: dict[str, Any], dim: int, rows: int) -> bool:
    """Whether every size is what hnswlib itself makes of M, dim and the number of elements."""
    count, links = state["cur_element_count"], state["M"]
    external, internal, levels = (state[name] for name in _ARRAYS[:3])
    if not (0 < count <= rows and 2 <= links <= _MOST_LINKS and len(levels) == count):
        return False
    data_at = 4 + 8 * links
    expected = {
        "ser_version": 1, "dim": dim, "offset_level0": 0, "max_elements": count, "max_M": links, "max_M0": 2 * links,
        "offset_data": data_at, "label_offset": data_at + 4 * dim, "size_data_per_element": data_at + 4 * dim + 8,
        "size_links_per_element": 4 + 4 * links, "max_level": int(levels.max()), "index_inited": True,
        "ep_added": True, "normalize": True, "has_deletions": False, "allow_replace_deleted": False,
    }  # fmt: skip
    return (
        all(state[name] == value for name, value in expected.items())
        and 0 <= int(levels.min()) <= int(levels.max()) <= _MOST_LEVELS
        and 0 <= state["enterpoint_node"] < count
        and int(levels[state["enterpoint_node"]]) == state["max_level"]
        and all(0 < state[name] <= _MOST_EF for name in ("ef", "ef_construction", "num_threads"))
        and np.isfinite(state["mult"])
        and len(state["data_level0"]) == count * expected["size_data_per_element"]
        and len(state["link_lists"]) == int(levels.sum(dtype=np.int64)) * expected["size_links_per_element"]
        and len(external) == len(internal) == count
        and np.array_equal(np.sort(internal), np.arange(count))
        and int(external.max()) < rows
        and len(np.unique(external)) == count
        and np.array_equal(labels(state)[internal], external)
    )


def _linked(state: dict[str, Any]) -> bool:
    """Whether every link leads to an element that is there, on its level."""
    count, links, levels = state["cur_element_count"], state["M"], state["element_levels"]
    ground = np.ascontiguousarray(_elements(state)[:, : state["offset_data"]]).view("<u4")
    if not _lists_hold(ground, 2 * links, np.zeros(count, np.int64), levels):
        return False
    upper = state["link_lists"].view("<u4").reshape(-1, 1 + links)
    above = levels.astype(np.int64)
    on = np.arange(len(upper)) - np.repeat(np.cumsum(above) - above, above) + 1  # level of each list
    return _lists_hold(upper, links, on, levels)


def _lists_hold(lists: Array, most: int, on: Array, levels: Array) -> bool:
    """Lists u32[n, 1 + most] of level `on[n]`: length (no deletion mark above it), then elements on that level."""
    sizes = lists[:, 0]
    if len(sizes) and int(sizes.max()) > most:
        return False
    used = np.arange(most)[None, :] < sizes[:, None]
    targets = lists[:, 1:][used]
    if len(targets) and int(targets.max()) >= len(levels):
        return False
    return bool((levels[targets] >= np.repeat(on, sizes)).all())


def _elements(state: dict[str, Any]) -> Array:
    found: Array = state["data_level0"].view(np.uint8).reshape(state["cur_element_count"], -1)
    return found


def labels(state: dict[str, Any]) -> Array:
    """The rows the elements stand for, u64[n]."""
    at = state["label_offset"]
    return np.ascontiguousarray(_elements(state)[:, at : at + 8]).view("<u8").ravel()


def vectors(state: dict[str, Any]) -> Array:
    """The unit vectors of the elements, f32[n, dim]."""
    return np.ascontiguousarray(_elements(state)[:, state["offset_data"] : state["label_offset"]]).view("<f4")
