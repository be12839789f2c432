"""/meta: settings, identity and the mark of the last checkpoint as attributes (docs/format.md § 2).

Invariants: every setting is written and read back equal; an absent one means what StoreConfig.LEGACY says; integers are
signed 64-bit and strings never of size 0, so that the ancestor's reader accepts them; which versions are too new is
decided here and nowhere else.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from clawmem_core.errors import DamagedError, InvalidInputError, NewerFormatError, NotAStoreError
from clawmem_core.model import StoreConfig
from clawmem_core.search.tokenizer import tokenizer
from clawmem_core.storage import hdf5_file
from clawmem_core.storage.columns import Columns, Mark

SCHEMA_VERSION = "1.0"
FORMAT = "1.0"  # clawmem_format: an older reader refuses another major, and reads any minor
WRITER = "0.8.0"  # edgehdf5_version: the ancestor's layout that ours extends
MAX_DIM = 65_536
STATE_BYTES = 104
#: settings whose attribute has another name
NAMES = {"dim": "embedding_dim", "neighbour_weight": "context_neighbour_weight"}
#: settings every file must have
REQUIRED = ("agent_id", "embedder", "dim", "chunk_size", "overlap", "created_at")
#: attributes of /meta that are no settings
OTHER = (
    "schema_version", "edgehdf5_version", "clawmem_format", "store_id", "signed", "wal_applied_log", "wal_applied_len",
    "wal_applied_crc", "ann_generation", "_merkle_root",
)  # fmt: skip
DATASETS = ("_marker", "checkpoint_id", "log_state")
ATTRIBUTES = frozenset((*OTHER, *(NAMES.get(name, name) for name in StoreConfig.FIELDS)))


def write(group: h5py.Group, columns: Columns) -> int:
    """Write /meta; returns the byte offset of checkpoint_id in the file."""
    attributes: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "edgehdf5_version": WRITER,
        "clawmem_format": FORMAT,
        "store_id": columns.store_id.hex(),
        "signed": int(columns.signed),
        "wal_applied_log": columns.mark.log_id.hex(),
        "wal_applied_len": columns.mark.length,
        "wal_applied_crc": columns.mark.crc,
        "ann_generation": columns.generation,
    }
    attributes.update((NAMES.get(name, name), value) for name, value in columns.config.as_dict().items())
    for name, value in attributes.items():
        group.attrs[name] = value if isinstance(value, str | float) else np.int64(value)
    group.create_dataset("_marker", data=np.ones(1, np.uint8))
    group.create_dataset("log_state", data=np.frombuffer(columns.log_state, np.uint8))
    identity = group.create_dataset("checkpoint_id", data=np.frombuffer(columns.checkpoint_id, np.uint8))
    offset: int = identity.id.get_offset()
    return offset


def load(file: h5py.File, path: str) -> Columns:
    """Empty columns with the settings, identity and mark of a file.

    Raises NotAStoreError, NewerFormatError, DamagedError naming the attribute.
    """
    group = hdf5_file.find(file, "meta", path)
    with hdf5_file.reading(path, "/meta"):
        attributes = dict(_readable(group)) if isinstance(group, h5py.Group) else {}
    if "schema_version" not in attributes:
        raise NotAStoreError(path=path, detail="there is no /meta with a schema_version")
    _check_versions(attributes, path)
    columns = Columns(_config(attributes, path))
    columns.path, columns.file = path, file
    columns.format = _text(attributes, "clawmem_format", path, "")
    if not columns.format and "store_id" in attributes:
        raise DamagedError(path=path, detail="/meta lost its attribute clawmem_format")
    columns.signed = bool(_integer(attributes, "signed", path, 0))
    columns.generation = _integer(attributes, "ann_generation", path, 0)
    columns.mark = Mark(
        _identity(attributes, "wal_applied_log", path),
        _integer(attributes, "wal_applied_len", path, 0),
        _integer(attributes, "wal_applied_crc", path, 0),
    )
    if columns.format:
        columns.store_id = _identity(attributes, "store_id", path)
        columns.checkpoint_id = _bytes(group, "checkpoint_id", 16, path)
        columns.log_state = _bytes(group, "log_state", STATE_BYTES, path)
        with hdf5_file.reading(path, "/meta/checkpoint_id"):
            columns.checkpoint_id_offset = group["checkpoint_id"].id.get_offset() or 0
        if not columns.checkpoint_id_offset or not any(columns.store_id):
            raise DamagedError(path=path, detail="/meta: no store_id, or checkpoint_id is not contiguous")
    return columns


def _readable(group: h5py.Group) -> Any:
    """The attributes we know; others may be of any type and are not looked at."""
    for name in group.attrs:
        if name in ATTRIBUTES:
            yield name, group.attrs[name]


def _check_versions(attributes: dict[str, Any], path: str) -> None:
    for name, supported in (("schema_version", SCHEMA_VERSION), ("clawmem_format", FORMAT)):
        found = _text(attributes, name, path, supported)
        major, _, minor = found.partition(".")
        if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
            raise NotAStoreError(path=path, detail=f"{name} is {found!r}")
        if int(major) > int(supported.partition(".")[0]):
            raise NewerFormatError(path=path, found=f"{name} {found}", supported=supported)
        if int(major) < 1:
            raise NotAStoreError(path=path, detail=f"{name} is {found!r}")


def _config(attributes: dict[str, Any], path: str) -> StoreConfig:
    settings: dict[str, Any] = {}
    for field, default in StoreConfig.FIELDS.items():
        name = NAMES.get(field, field)
        if name not in attributes:
            if field in REQUIRED:
                raise DamagedError(path=path, detail=f"/meta has no attribute {name}")
            settings[field] = StoreConfig.LEGACY.get(field, default)
        elif isinstance(default, str):
            settings[field] = _text(attributes, name, path, "")
        elif isinstance(default, float):
            settings[field] = _number(attributes, name, path)
        else:
            value = _integer(attributes, name, path, 0)
            settings[field] = bool(value) if isinstance(default, bool) else value
    if not 1 <= settings["dim"] <= MAX_DIM:
        raise DamagedError(path=path, detail=f"/meta attribute embedding_dim is {settings['dim']}")
    try:
        tokenizer(settings["tokenizer"])
    except InvalidInputError as error:
        raise DamagedError(path=path, detail=f"/meta attribute {error.message}") from None
    return StoreConfig(**settings)


def _one(attributes: dict[str, Any], name: str, path: str) -> Any:
    """A scalar, also where it was stored as an array of one."""
    value = attributes[name]
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise DamagedError(path=path, detail=f"/meta attribute {name} is no single value")
        value = value.reshape(-1)[0]
    return value


def _text(attributes: dict[str, Any], name: str, path: str, default: str) -> str:
    if name not in attributes:
        return default
    value = _one(attributes, name, path)
    try:
        return value.decode() if isinstance(value, bytes) else str(value.encode(), "utf-8")
    except (UnicodeError, AttributeError):
        raise DamagedError(path=path, detail=f"/meta attribute {name} is no text") from None


def _integer(attributes: dict[str, Any], name: str, path: str, default: int) -> int:
    if name not in attributes:
        return default
    value = _one(attributes, name, path)
    if not isinstance(value, np.integer | np.bool_) or not 0 <= int(value) < 1 << 63:
        raise DamagedError(path=path, detail=f"/meta attribute {name} is no whole number from 0 on")
    return int(value)


def _number(attributes: dict[str, Any], name: str, path: str) -> float:
    value = _one(attributes, name, path)
    if not isinstance(value, np.integer | np.floating) or not np.isfinite(value):
        raise DamagedError(path=path, detail=f"/meta attribute {name} is no finite number")
    return float(value)


def _identity(attributes: dict[str, Any], name: str, path: str) -> bytes:
    text = _text(attributes, name, path, "")
    try:
        value = bytes.fromhex(text) if text else bytes(16)
    except ValueError:
        value = b""
    if len(value) != 16:
        raise DamagedError(path=path, detail=f"/meta attribute {name} is no identity of 16 bytes")
    return value


def _bytes(group: h5py.Group, name: str, size: int, path: str) -> bytes:
    with hdf5_file.reading(path, f"/meta/{name}"):
        dataset = group[name]
        if dataset.shape != (size,) or dataset.dtype != np.uint8:
            raise DamagedError(path=path, detail=f"/meta/{name} is no uint8[{size}]")
        return bytes(dataset[...].tobytes())
