"""Ways to change a store file behind its back, by h5py and by single bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

COLUMNS = (
    "chunks", "source_channel", "session_ids", "tags", "keys", "source_ids", "embeddings", "timestamps", "tombstones",
    "hidden", "norms", "activation_weights", "ids",
)  # fmt: skip
Edit = Callable[[h5py.File], None]


def set_row(column: str, row: int, value: Any, group: str = "memory") -> Edit:
    """Put a value into a row of a column."""

    def edit(file: h5py.File) -> None:
        dataset = file[group][column]
        values = dataset[...]
        values[row] = value
        dataset[...] = values

    return edit


def replace(path: str, values: Any) -> Edit:
    """Put another dataset in a dataset's place; None only removes it."""

    def edit(file: h5py.File) -> None:
        if path in file:
            del file[path]
        if values is not None:
            file[path] = values

    return edit


def rearrange(order: list[int]) -> Edit:
    """Write the rows of /memory in another order, or with rows left out or repeated."""

    def edit(file: h5py.File) -> None:
        for name in COLUMNS:
            if name in file["memory"]:
                kind, values = file["memory"][name].dtype, file["memory"][name][...]
                del file["memory"][name]
                file["memory"].create_dataset(name, data=np.asarray(values)[order], dtype=kind)

    return edit


def attribute(name: str, value: Any) -> Edit:
    """Set a setting, or remove it with None."""

    def edit(file: h5py.File) -> None:
        if value is None:
            del file["meta"].attrs[name]
        else:
            file["meta"].attrs[name] = value

    return edit


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(file: h5py.File) -> None:
        for step in edits:
            step(file)

    return edit


def retype(column: str, kind: Any) -> Edit:
    """Rewrite a column of /memory in another type."""

    def edit(file: h5py.File) -> None:
        values = file["memory"][column][...].astype(kind)
        del file["memory"][column]
        file["memory"].create_dataset(column, data=values)

    return edit


def link_away(file: h5py.File) -> None:
    """Have a column come from elsewhere."""
    file["memory"].move("chunks", "moved")
    file["memory"]["chunks"] = h5py.SoftLink("/memory/moved")


COUNT = 20
#: name: (edit, code of a finding, ids it names)
EDITS: dict[str, tuple[Edit, str, list[int]]] = {
    "text": (set_row("chunks", 7, b"memory number 70"), "record-changed", [7]),
    "channel": (set_row("source_channel", 8, b"mail"), "record-changed", [8]),
    "session of a record": (set_row("session_ids", 9, b"s9"), "record-changed", [9]),
    "tags": (set_row("tags", 11, b"tag99"), "record-changed", [11]),
    "key": (set_row("keys", 0, b"other"), "record-changed", [0]),
    "source id": (set_row("source_ids", 1, b"old-x"), "record-changed", [1]),
    "vector": (set_row("embeddings", 5, [2, 2, 3, 6]), "record-changed", [5]),
    "time": (set_row("timestamps", 3, 0.0), "record-changed", [3]),
    "deleted flag set": (set_row("tombstones", 4, 1), "record-changed", [4]),
    "deleted flag cleared": (set_row("tombstones", 2, 0), "record-changed", [2]),
    "deleted flag of another value": (set_row("tombstones", 2, 2), "record-changed", [2]),
    "activation": (set_row("activation_weights", 12, 2.0), "record-changed", [12]),
    "norm": (set_row("norms", 14, 7.0), "record-changed", [14]),
    "stable id": (set_row("ids", 13, 99), "record-missing", [13]),
    "two ids swapped": (both(set_row("ids", 5, 6), set_row("ids", 6, 5)), "record-changed", [5, 6]),
    "id twice": (set_row("ids", 13, 12), "record-added", [12]),
    "tail cut": (rearrange([*range(COUNT - 1)]), "record-missing", [19]),
    "middle record removed": (rearrange([n for n in range(COUNT) if n != 6]), "record-missing", [6]),
    "two records swapped": (rearrange([0, 2, 1, *range(3, COUNT)]), "record-reordered", [1, 2]),
    "record repeated": (rearrange([*range(COUNT), 3]), "record-added", [3]),
    "forged record": (both(rearrange([*range(COUNT), 3]), set_row("ids", COUNT, COUNT)), "record-added", [20]),
    "all records removed": (rearrange([]), "record-missing", [*range(COUNT)]),
    "column removed": (replace("memory/tags", None), "column-missing", []),
    "optional column removed": (replace("memory/keys", None), "record-changed", [0, 3]),
    "column too short": (replace("memory/timestamps", np.zeros(7)), "column-length", []),
    "column too long": (replace("memory/norms", np.zeros(25, "f4")), "column-length", []),
    "column of another type": (retype("timestamps", "f4"), "column-type", []),
    "whole numbers of another type": (retype("ids", "i4"), "column-type", []),
    "numbers of the other byte order": (retype("ids", ">i8"), "column-type", []),
    "vectors of the other byte order": (retype("embeddings", ">f2"), "column-type", []),
    "event numbers of the other byte order": (
        lambda file: replace("events/versions", file["events/versions"][()].astype(">i8"))(file), "events-changed", [],
    ),
    "texts in numbers' place": (replace("memory/timestamps", np.array([b"x"] * COUNT)), "column-type", []),
    "numbers in texts' place": (replace("memory/chunks", np.zeros(COUNT)), "column-type", []),
    "flat vectors": (replace("memory/embeddings", np.zeros(4 * COUNT, "f2")), "column-type", []),
    "vectors of another width": (replace("memory/embeddings", np.zeros((COUNT, 3), "f2")), "record-changed", [0]),
    "column behind a link": (link_away, "link", []),
    "column added": (replace("memory/hidden", np.ones(COUNT, "u1")), "record-changed", [2]),
    "unknown data added": (lambda file: file["memory"].create_dataset("extra", data=1), "data-changed", []),
    "settings: agent id": (attribute("agent_id", "evil"), "settings-changed", []),
    "settings: a number": (attribute("wal_max_entries", np.int64(7)), "settings-changed", []),
    "settings: type of a number": (attribute("wal_max_entries", 500.0), "settings-changed", []),
    "settings: removed": (attribute("decay_factor", None), "settings-changed", []),
    "settings: added": (attribute("new", "x"), "settings-changed", []),
    "settings: an array": (attribute("agent_id", np.arange(3)), "settings-changed", []),
    "settings: precision": (attribute("float16", np.int64(0)), "settings-changed", []),
    "settings: says it is unsigned": (attribute("signed", np.int64(0)), "settings-changed", []),
    "log counters": (set_row("log_state", 3, 9, "meta"), "settings-changed", []),
    "checkpoint id": (set_row("checkpoint_id", 3, 9, "meta"), "settings-changed", []),
    "session row": (set_row("summaries", 0, b"other", "sessions"), "sessions-changed", []),
    "session bounds": (set_row("start_idxs", 1, 6, "sessions"), "sessions-changed", []),
    "sessions removed": (replace("sessions/ids", None), "column-missing", []),
    "entity": (set_row("entity_names", 0, b"Eve", "knowledge_graph"), "graph-changed", []),
    "entity's record": (set_row("entity_emb_idxs", 0, 3, "knowledge_graph"), "graph-changed", []),
    "relation weight": (set_row("relation_weights", 0, 0.75, "knowledge_graph"), "graph-changed", []),
    "alias": (set_row("alias_entity_ids", 0, 1, "knowledge_graph"), "graph-changed", []),
    "event status": (set_row("statuses", 0, 3, "events"), "events-changed", []),
    "event payload": (set_row("payloads", 5, 50, "events"), "events-changed", []),
    "value tombstone": (set_row("values_lifted", 0, 1, "events"), "events-changed", []),
    "events removed": (replace("events", None), "events-changed", []),
    "audit line": (set_row("lines", 1, 7, "audit"), "audit-changed", []),
    "audit cut": (replace("audit/lines", np.zeros((1, 72), "u1")), "audit-changed", []),
    "audit removed": (replace("audit", None), "audit-changed", []),
    "group removed": (replace("memory", None), "group-missing", []),
    "meta removed": (replace("meta", None), "group-missing", []),
    "group behind a link": (
        both(lambda file: file.move("memory", "m2"), lambda file: file.__setitem__("memory", h5py.SoftLink("/m2"))),
        "group-missing", [],
    ),
    "signature stripped": (replace("integrity", None), "unsigned", []),
    "signature altered": (set_row("signature", 5, 1, "integrity"), "signature-invalid", []),
    "manifest altered": (set_row("manifest", 40, 1, "integrity"), "manifest-invalid", []),
    "manifest: a digit": (set_row("manifest", -4, 0x31, "integrity"), "signature-invalid", []),
    "manifest of no bytes": (replace("integrity/manifest", np.zeros(0, "u1")), "manifest-invalid", []),
    "leaf hash": (set_row("leaves", (3, 3), 1, "integrity"), "leaves-changed", []),
    "leaf hashes removed": (replace("integrity/leaves", None), "integrity-unreadable", []),
    "id runs": (replace("integrity/id_runs", np.array([[1, 20]])), "leaves-changed", []),
    "id runs without end": (replace("integrity/id_runs", np.array([[0, 2**62]])), "integrity-unreadable", []),
    "chain": (replace("integrity/chain", np.ones((1, 32), "u1")), "chain-changed", []),
    "integrity is no group": (replace("integrity", 5), "integrity-unreadable", []),
}  # fmt: skip
