"""Digests of everything in a store's HDF5 file that is no record: settings, sessions, graph, events, audit lines.

Invariants: those of content.py, through which everything is read; the order of a table's rows does not matter, every
dataset of the product's groups is covered, known or not. Hash inputs: docs/format.md § 7.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from clawmem_core.integrity.content import (
    NUMBERS,
    TEXTS,
    Findings,
    StoredColumn,
    has,
    is_text,
    open_dataset,
    open_group,
)
from clawmem_core.integrity.merkle import TABLE_ROW, encode_rows, hash_rows, table_digest
from clawmem_core.storage.hdf5_file import FAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Final

#: tables whose row order means nothing: name -> (group, numeric columns, text columns) in hashing order
TABLES: Final = {
    "sessions": (
        "sessions",
        (("start_idxs", "i8"), ("end_idxs", "i8"), ("timestamps", "f8")),
        ("ids", "channels", "summaries"),
    ),
    "entities": (
        "knowledge_graph",
        (("entity_ids", "i8"), ("entity_emb_idxs", "i8")),
        ("entity_names", "entity_types"),
    ),
    "relations": (
        "knowledge_graph",
        (("relation_srcs", "i8"), ("relation_tgts", "i8"), ("relation_weights", "f4"), ("relation_ts", "f8")),
        ("relation_types",),
    ),
    "aliases": ("knowledge_graph", (("alias_entity_ids", "i8"),), ("alias_strings",)),
}
GROUPS: Final = ("meta", "memory", "sessions", "knowledge_graph", "events", "audit")


def settings(file: Any, findings: Findings) -> dict[str, str]:
    """Every attribute of /meta as `int:…`, `float:…` (16 hex digits of the IEEE double), `text:…` or `other:…`."""
    group = open_group(file, "meta")
    found: dict[str, str] = {}
    if group is None:
        findings.add("group-missing", "/meta is missing or cannot be opened", dataset="/meta")
        return found
    try:
        names = list(group.attrs)
    except FAULTS:
        findings.add("settings-unreadable", "the attributes of /meta cannot be read", dataset="/meta")
        return found
    for name in names:
        try:
            found[name] = setting_text(group.attrs[name])
        except FAULTS:
            findings.add("settings-unreadable", f"attribute {name!r} of /meta cannot be read", setting=name)
    return found


def setting_text(value: Any) -> str:
    """Canonical text of an attribute's value."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        return f"text:{value}"
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return f"int:{int(value)}"
    if isinstance(value, (float, np.floating)):
        return f"float:{np.array(value, '>f8').tobytes().hex()}"
    array = np.asarray(value)
    content = repr(value).encode("utf-8", "surrogateescape") if array.dtype.hasobject else array.tobytes()
    return f"other:{array.dtype.str}:{array.shape}:{sha256(content).hexdigest()}"


def setting_value(text: str) -> Any:
    """The value behind a canonical text, for reports."""
    kind, _, rest = text.partition(":")
    if kind == "int":
        return int(rest)
    if kind == "float":
        value = float(np.frombuffer(bytes.fromhex(rest), ">f8")[0])
        return value if np.isfinite(value) else str(value)
    return rest.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def tables(file: Any, findings: Findings) -> dict[str, dict[str, Any]]:
    """Row count and digest of sessions, entities, relations and aliases."""
    found = {}
    for name, (group_name, numbers, texts) in TABLES.items():
        group = open_group(file, group_name)
        kinds = [*numbers, *((text, "text") for text in texts)]
        absent = group is None or not any(has(group, column) for column, _ in kinds)  # as good as an empty table
        columns = [StoredColumn(group, column, kind, findings, optional=absent) for column, kind in kinds]
        count = max(column.rows for column in columns)
        if any(column.rows != count for column in columns if column.dataset is not None):
            findings.add("column-length", f"the columns of {name} differ in length", table=name)
        values = [column.read(0, count, findings)[0] for column in columns]
        leaves = hash_rows(encode_rows(TABLE_ROW, values[: len(numbers)], values[len(numbers) :])) if count else []
        found[name] = {"rows": count, "digest": table_digest(leaves).hex()}
    return found


def columns(file: Any, findings: Findings) -> dict[str, str]:
    """Digest of every other dataset of the product's groups, by path: /meta, /events, /audit and whatever was added."""
    named = {f"/memory/{name}" for name, _, _ in (*NUMBERS, *TEXTS)}
    for group_name, numbers, texts in TABLES.values():
        named |= {f"/{group_name}/{name}" for name in (*(number for number, _ in numbers), *texts)}
    found: dict[str, str] = {}
    for group_name in GROUPS:
        group = open_group(file, group_name)
        if group is None:
            continue
        try:
            names = list(group)
        except FAULTS:
            findings.add("group-unreadable", f"/{group_name} cannot be listed", dataset=f"/{group_name}")
            continue
        for name in names:
            if f"/{group_name}/{name}" not in named:
                found[f"/{group_name}/{name}"] = _dataset_digest(group, name, findings)
    return found


def _dataset_digest(group: Any, name: str, findings: Findings) -> str:
    """SHA-256 over a line `type:dimensions` and the values; "unreadable" or "other" where there are none to hash."""
    dataset = open_dataset(group, name, findings)
    if dataset is None:
        return "other"
    try:
        values = dataset[()]
        text = is_text(dataset.dtype)
    except FAULTS:
        findings.add("column-unreadable", f"{dataset.name} cannot be read", dataset=dataset.name)
        return "unreadable"
    shape = "x".join(map(str, dataset.shape))
    if text:
        items = [item if isinstance(item, bytes) else str(item).encode() for item in _flat(values)]
        lengths = np.fromiter(map(len, items), "<u4", len(items)).tobytes()
        return sha256(b"".join((f"text:{shape}\n".encode(), lengths, *items))).hexdigest()
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        return "other"
    return sha256(f"{array.dtype.str}:{shape}\n".encode() + array.tobytes()).hexdigest()


def _flat(values: Any) -> Iterable[Any]:
    flat: Sequence[Any] = np.asarray(values).ravel().tolist()
    return flat
