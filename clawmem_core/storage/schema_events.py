"""/events and /audit: versions of events, tombstones on values, audit lines (docs/format.md § 2).

Invariants: both groups exist only when they hold something; payloads are kept byte for byte (a blob and offsets), as is
the source event, whose text may hold lone surrogates; rows are in the order the versions were recorded.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError
from clawmem_core.storage import hdf5_file, row_ops, schema_text
from clawmem_core.storage.columns import Columns, TextColumn
from clawmem_core.storage.row_ops import EventRow, ValueRow

_NUMBERS = {  # field of EventRow → (dataset, dtype)
    "label": ("labels", "u1"), "status": ("statuses", "u1"), "trust": ("trusts", "u1"), "marked": ("marked", "u1"),
    "version": ("versions", "<i8"), "record_id": ("record_ids", "<i8"), "confidence": ("confidences", "<f8"),
    "valid_from": ("valid_from", "<f8"), "valid_until": ("valid_until", "<f8"),
    "recorded_from": ("recorded_from", "<i8"), "recorded_to": ("recorded_to", "<i8"),
}  # fmt: skip
_IDS = {"event_id": "event_ids", "scope_key": "scope_keys", "supersedes": "supersedes",
        "superseded_by": "superseded_by"}  # fmt: skip
_TEXTS = {"session": "session_ids", "reason": "reasons", "actor": "actors"}
_BLOBS = {"payload": "payloads", "source_event": "source_events"}

_VALUE_NUMBERS = {"recorded": ("values_recorded", "<i8"), "expires": ("values_expires", "<f8"),
                  "lifted": ("values_lifted", "u1")}  # fmt: skip
_VALUE_IDS = {"value_key": "values_keys", "scope_key": "values_scope_keys", "replacement": "values_replacements"}
_VALUE_TEXTS = {"reason": "values_reasons", "actor": "values_actors"}

DATASETS = frozenset(
    [name for name, _ in (*_NUMBERS.values(), *_VALUE_NUMBERS.values())]
    + [*_IDS.values(), *_TEXTS.values(), *_VALUE_IDS.values(), *_VALUE_TEXTS.values()]
    + [name + suffix for name in _BLOBS.values() for suffix in ("", "_offsets")]
)
AUDIT_LINE = 72
ACTIVE = row_ops.STATUSES.index("active")
_MAXIMA = {
    "label": len(row_ops.LABELS) - 1,
    "status": len(row_ops.STATUSES) - 1,
    "trust": len(row_ops.TRUSTS) - 1,
    "marked": 1,
}


def write(file: h5py.File, columns: Columns) -> None:
    """Write /events and /audit where there is something to hold."""
    if columns.events or columns.values:
        group = file.create_group("events")
        _write_rows(group, columns.events, _NUMBERS, _IDS, _TEXTS)
        for field, name in _BLOBS.items():
            _write_blob(group, name, [_blob(getattr(row, field)) for row in columns.events])
        _write_rows(group, columns.values, _VALUE_NUMBERS, _VALUE_IDS, _VALUE_TEXTS)
    if columns.audit:
        lines = np.frombuffer(columns.audit, np.uint8).reshape(-1, AUDIT_LINE)
        schema_text.write_bytes(file.create_group("audit"), "lines", lines)


def _write_rows(group: h5py.Group, rows: Any, numbers: Any, ids: dict[str, str], texts: dict[str, str]) -> None:
    for field, (name, dtype) in numbers.items():
        group.create_dataset(name, data=np.array([getattr(row, field) for row in rows], dtype))
    for field, name in ids.items():
        joined = b"".join([getattr(row, field) for row in rows])
        schema_text.write_bytes(group, name, np.frombuffer(joined, np.uint8).reshape(-1, 32))
    for field, name in texts.items():
        schema_text.write(group, name, TextColumn.of([getattr(row, field) for row in rows]))


def _blob(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


def _write_blob(group: h5py.Group, name: str, items: list[bytes]) -> None:
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    group.create_dataset(name + "_offsets", data=offsets)
    schema_text.write_bytes(group, name, np.frombuffer(b"".join(items), np.uint8))


# ---------------------------------------------------------------- reading


def load(file: h5py.File, columns: Columns) -> None:
    """Fill events, values and audit lines of `columns`. Raises DamagedError naming the dataset."""
    path = columns.path
    group, audit = hdf5_file.find(file, "events", path), hdf5_file.find(file, "audit", path)
    if isinstance(group, h5py.Group):
        count = len(_array(group, "labels", path, np.dtype("u1"), None))
        columns.defer_events(count, lambda: _load_events(group, path))
        columns.values = _load_values(group, path)
    if isinstance(audit, h5py.Group) and hdf5_file.find(audit, "lines", path) is not None:
        columns.audit = _array(audit, "lines", path, np.dtype("u1"), None, AUDIT_LINE).tobytes()


def _load_events(group: h5py.Group, path: str) -> list[EventRow]:
    fields = _load_rows(group, path, _NUMBERS, _IDS, _TEXTS)
    count = len(fields["label"])
    for field, name in _BLOBS.items():
        fields[field] = _load_blob(group, name, path, count)
    for field, maximum in _MAXIMA.items():
        _check(group, path, _NUMBERS[field][0], fields[field], 0 if field == "marked" else 1, maximum)
    for field, least in (("version", 1), ("record_id", 0), ("recorded_from", 0), ("recorded_to", 0)):
        _check(group, path, _NUMBERS[field][0], fields[field], least, (1 << 63) - 1)
    for field in ("confidence", "valid_from", "valid_until"):
        if any(value != value for value in fields[field]):
            raise DamagedError(path=path, detail=f"/events/{_NUMBERS[field][0]} holds a NaN")
    try:
        fields["source_event"] = [item.decode("utf-8", "surrogatepass") for item in fields["source_event"]]
    except UnicodeDecodeError:
        raise DamagedError(path=path, detail="/events/source_events: no valid UTF-8") from None
    fields["marked"] = [bool(value) for value in fields["marked"]]
    names = list(fields)
    return [EventRow(**dict(zip(names, row, strict=True))) for row in zip(*fields.values(), strict=True)]


def _load_values(group: h5py.Group, path: str) -> list[ValueRow]:
    fields = _load_rows(group, path, _VALUE_NUMBERS, _VALUE_IDS, _VALUE_TEXTS)
    _check(group, path, "values_lifted", fields["lifted"], 0, 1)
    _check(group, path, "values_recorded", fields["recorded"], 0, (1 << 63) - 1)
    if any(value != value for value in fields["expires"]):
        raise DamagedError(path=path, detail="/events/values_expires holds a NaN")
    fields["lifted"] = [bool(value) for value in fields["lifted"]]
    names = list(fields)
    return [ValueRow(**dict(zip(names, row, strict=True))) for row in zip(*fields.values(), strict=True)]


def _load_rows(
    group: h5py.Group, path: str, numbers: Any, ids: dict[str, str], texts: dict[str, str]
) -> dict[str, list[Any]]:
    fields: dict[str, list[Any]] = {}
    count: int | None = None
    for field, (name, dtype) in numbers.items():
        fields[field] = _array(group, name, path, np.dtype(dtype), count).tolist()
        count = len(fields[field])
    for field, name in ids.items():
        joined = _array(group, name, path, np.dtype("u1"), count, 32).tobytes()
        fields[field] = [joined[at : at + 32] for at in range(0, len(joined), 32)]
    for field, name in texts.items():
        fields[field] = list(schema_text.open_column(group, name, path, count))
    return fields


def _array(
    group: h5py.Group, name: str, path: str, dtype: np.dtype[Any], rows: int | None, width: int = 0
) -> npt.NDArray[Any]:
    full = f"{group.name}/{name}"
    dataset = hdf5_file.find(group, name, path)
    with hdf5_file.reading(path, full):
        right = isinstance(dataset, h5py.Dataset) and dataset.dtype == dtype
    if not right:
        raise DamagedError(path=path, detail=f"{full} is missing or no {dtype.name} dataset")
    length = dataset.shape[0] if rows is None and dataset.shape else rows or 0
    schema_text.check_shape(dataset, path, (length, width) if width else (length,), 2 if width else 1)
    with hdf5_file.reading(path, full):
        found: npt.NDArray[Any] = dataset[...]
    return found


def _load_blob(group: h5py.Group, name: str, path: str, count: int) -> list[bytes]:
    offsets = _array(group, name + "_offsets", path, np.dtype("<i8"), count + 1)
    data = _array(group, name, path, np.dtype("u1"), None).tobytes()
    if offsets[0] != 0 or offsets[-1] != len(data) or (np.diff(offsets) < 0).any():
        raise DamagedError(path=path, detail=f"/events/{name}_offsets do not fit /events/{name}")
    edges = offsets.tolist()
    return [data[edges[row] : edges[row + 1]] for row in range(count)]


def _check(group: h5py.Group, path: str, name: str, values: list[int], least: int, most: int) -> None:
    if values and not least <= min(values) <= max(values) <= most:
        raise DamagedError(path=path, detail=f"{group.name}/{name}: a value is outside {least} to {most}")
