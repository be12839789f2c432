"""What the clawhdf5 2.1.0 reader requires of a file (docs/format.md § 2): one assertion a rule.

`check` reads with h5py at the lowest level, so that it sees encodings and layouts, not h5py's view of them.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

TEXTS = {
    "memory": ("chunks", "source_channel", "session_ids", "tags"),
    "sessions": ("ids", "channels", "summaries"),
    "knowledge_graph": ("entity_names", "entity_types", "relation_types", "alias_strings"),
}
SIGNED = {
    "sessions": ("start_idxs", "end_idxs"),
    "knowledge_graph": ("entity_ids", "entity_emb_idxs", "relation_srcs", "relation_tgts", "alias_entity_ids"),
}
SAFE_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def check(file: h5py.File) -> None:
    """Assert every rule on an open store file."""
    groups(file)
    attributes(file["meta"])
    count = rows(file["memory"])
    vectors(file["memory"], count, int(file["meta"].attrs["embedding_dim"]))
    texts(file)
    tables(file)
    filters(file)
    no_compact_columns(file)


def groups(file: h5py.File) -> None:
    """All four groups are mandatory."""
    assert {"meta", "memory", "sessions", "knowledge_graph"} <= set(file)


def attributes(meta: h5py.Group) -> None:
    """Mandatory attributes: texts of any encoding but size 0, signed integers; no stale Merkle root."""
    assert _text(meta, "schema_version") == "1.0"
    for name in ("created_at", "agent_id", "embedder"):
        assert isinstance(_text(meta, name), str)
        kind = meta.attrs.get_id(name).get_type()
        assert kind.is_variable_str() or kind.get_size() > 0
    for name in ("embedding_dim", "chunk_size", "overlap"):
        kind = meta.attrs.get_id(name).get_type()
        assert kind.get_class() == h5py.h5t.INTEGER
        assert kind.get_sign() == h5py.h5t.SGN_2
    assert "_merkle_root" not in meta.attrs


def rows(memory: h5py.Group) -> int:
    """The number of rows comes from `chunks`; every other column must have as many."""
    assert memory["chunks"].ndim == 1
    count = int(memory["chunks"].shape[0])
    for name in ("source_channel", "session_ids", "tags", "timestamps", "tombstones"):
        assert memory[name].shape == (count,)
    assert memory["tombstones"].dtype.kind in "iu"  # a boolean is an HDF5 enum, which is refused
    assert set(np.unique(memory["tombstones"][...])) <= {0, 1}
    for name in ("norms", "activation_weights"):
        assert memory[name].shape == (count,)
        assert memory[name].dtype == np.float32
    assert memory["timestamps"].dtype == np.float64
    return count


def vectors(memory: h5py.Group, count: int, dim: int) -> None:
    """Embeddings are numbers, [rows, dim]: the shape is not checked there, too few values make it panic."""
    assert memory["embeddings"].shape == (count, dim)
    assert memory["embeddings"].dtype.kind in "fiu"


def texts(file: h5py.File) -> None:
    """String columns are fixed-length; ours are UTF-8, padded with NULs, at least one byte wide."""
    for group, names in TEXTS.items():
        for name in names:
            if name in file[group]:
                kind = file[group][name].id.get_type()
                assert kind.get_class() == h5py.h5t.STRING
                assert not kind.is_variable_str()
                assert kind.get_strpad() == h5py.h5t.STR_NULLPAD
                assert kind.get_cset() == h5py.h5t.CSET_UTF8
                assert kind.get_size() >= 1


def tables(file: h5py.File) -> None:
    """Sessions and graph: all columns of one length, signed numbers; what must exist even when empty does."""
    sessions, graph = file["sessions"], file["knowledge_graph"]
    count = sessions["ids"].shape
    for name in ("start_idxs", "end_idxs", "channels", "summaries", "timestamps"):
        assert sessions[name].shape == count
    for first, others in (
        ("entity_ids", ("entity_names", "entity_types", "entity_emb_idxs")),
        ("relation_srcs", ("relation_tgts", "relation_types", "relation_weights", "relation_ts")),
    ):
        for name in others:
            assert graph[name].shape == graph[first].shape
    if "alias_strings" in graph:
        assert graph["alias_strings"].shape == graph["alias_entity_ids"].shape
    for group, names in SIGNED.items():
        for name in names:
            if name in file[group]:
                assert file[group][name].dtype == np.int64


def filters(file: h5py.File) -> None:
    """Only filters that the binary has compiled in."""
    for group in ("memory", "sessions", "knowledge_graph"):
        for name in file[group]:
            settings = file[group][name].id.get_create_plist()
            assert {settings.get_filter(at)[0] for at in range(settings.get_nfilters())} <= SAFE_FILTERS


def no_compact_columns(file: h5py.File) -> None:
    """A compact dataset that grows past 64 KiB makes the file unreadable (defect C3)."""
    for name in file["memory"]:
        assert file["memory"][name].id.get_create_plist().get_layout() != h5py.h5d.COMPACT


def _text(meta: h5py.Group, name: str) -> str:
    value: Any = meta.attrs[name]
    return value.decode() if isinstance(value, bytes) else str(value)
