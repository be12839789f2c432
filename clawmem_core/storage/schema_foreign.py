"""Objects of a store file that are not ours: they survive a checkpoint.

Unknown groups, datasets and attributes are copied from the old file to the new one, soft and external links as links.
Object references and dimension scales do not survive (HDF5 copies them as null); a warning names where they were. A
hard link to one of our datasets becomes a link to the new one, not a copy of the old.

Invariants: an object we know is never copied; nothing we cannot copy is dropped without a warning.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from clawmem_core.storage import hdf5_file, schema_events, schema_meta
from clawmem_core.storage.columns import Columns

#: our datasets by group; /integrity belongs to whoever signs
KNOWN: dict[str, frozenset[str]] = {
    "meta": frozenset(schema_meta.DATASETS),
    "memory": frozenset((
        "ids", "chunks", "source_channel", "session_ids", "tags", "keys", "source_ids", "embeddings", "timestamps",
        "tombstones", "hidden", "norms", "activation_weights",
    )),
    "sessions": frozenset(("ids", "channels", "summaries", "start_idxs", "end_idxs", "timestamps")),
    "knowledge_graph": frozenset((
        "entity_ids", "entity_emb_idxs", "entity_names", "entity_types", "relation_srcs", "relation_tgts",
        "relation_types", "relation_weights", "relation_ts", "alias_strings", "alias_entity_ids",
    )),
    "events": schema_events.DATASETS,
    "audit": frozenset(("lines",)),
    "integrity": frozenset(),
}  # fmt: skip
_OWN_ATTRIBUTES = frozenset(("text_bytes", "text_width"))
_SCALES = frozenset(("DIMENSION_LIST", "REFERENCE_LIST"))


def copy(columns: Columns, target: h5py.File) -> list[str]:
    """Copy what is not ours from the file behind `columns`; returns warnings. Raises DamagedError naming the object."""
    source = columns.file
    if source is None:
        return []
    warnings: list[str] = []
    with hdf5_file.reading(columns.path, "/"):
        ours = _addresses(source)
        _attributes(source, target, warnings)
        for name in source:
            if name not in KNOWN:
                _object(source, target, name, ours, warnings)
    for group, known in KNOWN.items():
        with hdf5_file.reading(columns.path, f"/{group}"):
            old = source.get(group)
            if not isinstance(old, h5py.Group) or group == "integrity":
                continue
            extra = [name for name in old if name not in known]
            if group not in target and (extra or len(old.attrs)):
                target.create_group(group)
            if group in target:
                _attributes(old, target[group], warnings)
                for name in extra:
                    _object(old, target[group], name, ours, warnings)
                for name in known.intersection(old, target[group]):
                    _attributes(old[name], target[group][name], warnings)
    return warnings


def _addresses(file: h5py.File) -> dict[Any, str]:
    """Path by address of our objects in a file."""
    found = {}
    for group, known in KNOWN.items():
        held = file.get(group)
        if isinstance(held, h5py.Group):
            found[_address(held)] = f"/{group}"
            for name in known.intersection(held):
                found[_address(held[name])] = f"/{group}/{name}"
    return found


def _address(held: Any) -> Any:
    return h5py.h5o.get_info(held.id).addr


def _object(source: h5py.Group, target: h5py.Group, name: str, ours: dict[Any, str], warnings: list[str]) -> None:
    link = source.get(name, getlink=True)
    if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
        target[name] = link
        return
    held = source[name]
    place = ours.get(_address(held))
    if place is not None:
        if place in target.file:
            target[name] = target.file[place]
        return
    source.copy(held, target, name)
    _warn_of_references(held, warnings)
    if isinstance(held, h5py.Group):
        held.visititems(lambda _, child: _warn_of_references(child, warnings))


def _warn_of_references(held: Any, warnings: list[str]) -> None:
    if (isinstance(held, h5py.Dataset) and _holds_references(held.dtype)) or _SCALES.intersection(held.attrs):
        warnings.append(f"{held.name}: object references and dimension scales do not survive a checkpoint")


def _holds_references(dtype: np.dtype[Any]) -> bool:
    if dtype.fields:
        return any(_holds_references(field[0]) for field in dtype.fields.values())
    return h5py.check_ref_dtype(dtype.base) is not None


def _attributes(source: Any, target: Any, warnings: list[str]) -> None:
    """Copy attributes that the target has not and that are not ours."""
    ours = schema_meta.ATTRIBUTES if source.name == "/meta" else _OWN_ATTRIBUTES
    for name in source.attrs:
        if name in target.attrs or name in ours:
            continue
        try:
            old = source.attrs.get_id(name)
            if _holds_references(old.dtype) or name in _SCALES:
                raise TypeError("holds object references")
            values = np.empty(old.shape, old.dtype)
            if old.get_space().get_simple_extent_type() != h5py.h5s.NULL:
                old.read(values)
            new = h5py.h5a.create(target.id, name.encode(), old.get_type(), old.get_space())
            if old.get_space().get_simple_extent_type() != h5py.h5s.NULL:
                new.write(values)
        except (TypeError, OSError) as error:
            warnings.append(f"{source.name}, attribute {name}: does not survive a checkpoint ({error})")
