"""Whatever is wrong with a store file is refused by name, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from clawmem_core.errors import (
    DamagedError,
    LegacyStoreError,
    NewerFormatError,
    NoStoreError,
    NotAStoreError,
)
from clawmem_core.storage import fs, schema
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Session
from tests.core.storage import h5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store file with 100 records and something in every table."""
    columns = h5.columns_of(100)
    h5.fill_tables(columns)
    h5.write(tmp_path / "a.h5", columns)
    return tmp_path / "a.h5"


Edit = Callable[[h5py.File], None]


def _replaced(path: str, change: Callable[[np.ndarray[Any, Any]], Any]) -> tuple[str, Edit]:
    """An edit that replaces a dataset by a changed one; its name is the expected error's."""

    def edit(file: h5py.File) -> None:
        data = file[path]
        value = change(data[...]) if data.shape else change(data[()])
        dtype = data.dtype if h5py.check_string_dtype(data.dtype) and np.asarray(value).dtype.kind == "S" else None
        del file[path]
        file.create_dataset(path, data=value, dtype=dtype)

    return path, edit


def _without(path: str) -> tuple[str, Edit]:
    return path, lambda file: file.__delitem__(path)


def _attribute(name: str, value: Any) -> tuple[str, Edit]:
    return name, lambda file: file["meta"].attrs.__setitem__(name, value)


def _with(path: str, row: int, value: Any) -> tuple[str, Edit]:
    def edit(file: h5py.File) -> None:
        file[path][row] = value

    return path, edit


def _short(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values[:-1]


EVERY_COLUMN = [
    *(f"/memory/{name}" for name in ("source_channel", "session_ids", "tags", "timestamps", "tombstones", "norms",
                                     "activation_weights", "ids", "embeddings", "hidden")),
    *(f"/sessions/{name}" for name in ("channels", "summaries", "start_idxs", "end_idxs", "timestamps")),
    *(f"/knowledge_graph/{name}" for name in ("entity_names", "entity_types", "entity_emb_idxs", "relation_tgts",
                                              "relation_types", "relation_weights", "relation_ts", "alias_entity_ids")),
    *(f"/events/{name}" for name in ("statuses", "versions", "record_ids", "confidences", "event_ids", "scope_keys",
                                     "reasons", "payloads_offsets", "values_expires", "values_scope_keys")),
]  # fmt: skip
EDITS = [
    *(_replaced(path, _short) for path in EVERY_COLUMN),
    *(_without(path) for path in EVERY_COLUMN if path != "/memory/hidden"),
    _without("/memory/chunks"),
    _without("/meta/checkpoint_id"),
    _without("/meta/log_state"),
    _replaced("/meta/log_state", _short),
    _replaced("/memory/chunks", lambda values: np.zeros(len(values))),
    _replaced("/memory/chunks", lambda values: values.reshape(10, 10)),
    _replaced("/memory/embeddings", lambda values: values[:, :-1]),
    _replaced("/memory/embeddings", lambda values: values.astype("f4")),
    _replaced("/memory/timestamps", lambda values: [b"x"] * len(values)),
    _with("/memory/timestamps", 3, np.nan),
    _with("/memory/timestamps", 3, np.inf),
    _with("/memory/norms", 3, -1.0),
    _with("/memory/activation_weights", 3, 4.5),
    _with("/memory/activation_weights", 3, np.nan),
    _with("/memory/ids", 3, 2),
    _with("/memory/ids", 0, -1),
    _with("/memory/embeddings", 3, np.inf),
    _with("/sessions/start_idxs", 0, -2),
    _with("/sessions/end_idxs", 0, 100),
    _with("/sessions/start_idxs", 0, 3),
    _with("/sessions/timestamps", 0, np.nan),
    _with("/knowledge_graph/entity_ids", 0, -1),
    _with("/knowledge_graph/entity_ids", 0, 7),
    _with("/knowledge_graph/entity_emb_idxs", 0, 1 << 40),
    _with("/knowledge_graph/relation_srcs", 0, -1),
    _with("/knowledge_graph/relation_weights", 0, np.nan),
    _with("/knowledge_graph/alias_entity_ids", 0, -1),
    _with("/events/labels", 0, 3),
    _with("/events/statuses", 0, 0),
    _with("/events/trusts", 0, 9),
    _with("/events/versions", 0, 0),
    _with("/events/record_ids", 0, -1),
    _with("/events/valid_from", 0, np.nan),
    _with("/events/payloads_offsets", 1, 1 << 40),
    _with("/events/values_lifted", 0, 2),
    _with("/events/values_expires", 0, np.nan),
    _replaced("/audit/lines", lambda values: values[:, :-1]),
    _attribute("embedding_dim", 0),
    _attribute("embedding_dim", 1 << 20),
    _attribute("embedding_dim", "three"),
    _attribute("agent_id", 3),
    _attribute("wal_applied_log", "xyz"),
    _attribute("store_id", ""),
    _attribute("wal_max_entries", -5),
    _attribute("decay_factor", np.nan),
    _attribute("chunk_size", np.arange(3)),
]


@pytest.mark.parametrize("at", range(len(EDITS)), ids=lambda at: f"{at}-{EDITS[at][0].strip('/')}")
def test_every_fault_names_its_dataset(tmp_path: Path, at: int) -> None:
    """Whatever is wrong with a file is a DamagedError that says where (defects C11, C19)."""
    name, edit = EDITS[at]
    columns = h5.columns_of(100)
    h5.fill_tables(columns)
    columns.events[0].recorded_to = 6
    columns.events.append(h5.event(5, status=1))
    h5.write(tmp_path / "a.h5", columns)
    with h5.edited(tmp_path / "a.h5") as file:
        edit(file)
    with pytest.raises(DamagedError) as caught, h5.load(tmp_path / "a.h5") as found:
        h5.content(found)
    expected = name.replace("start_idxs", "end_idxs") if at and "ends before" in caught.value.message else name
    assert expected.rsplit("/", 1)[-1].removesuffix("_offsets") in caught.value.message
    assert str(tmp_path / "a.h5") in caught.value.message


@pytest.mark.parametrize("group", ["memory", "sessions", "knowledge_graph"])
def test_missing_group(store: Path, group: str) -> None:
    """A mandatory group that is missing, or no group, is named."""
    with h5.edited(store) as file:
        del file[group]
    with pytest.raises(DamagedError, match=group):
        h5.load(store)
    with h5.edited(store) as file:
        file[group] = 1
    with pytest.raises(DamagedError, match=group):
        h5.load(store)


def test_invalid_utf8_is_named(store: Path) -> None:
    """A text that is no UTF-8 is refused with its row, not repaired (defect C17)."""
    with h5.edited(store) as file:
        file["memory/chunks"][42] = b"\xff\xfe"
    with h5.load(store) as found, pytest.raises(DamagedError, match=r"/memory/chunks, row 42"):
        list(found.chunks)
    with h5.load(store) as found, pytest.raises(DamagedError, match=r"/memory/chunks, row 42"):
        found.chunks[42]


def test_a_lying_shape_is_refused_before_it_is_allocated(store: Path) -> None:
    """A dataset that claims far more than its file could hold is not read."""
    with h5.edited(store) as file:
        memory = file["memory"]
        del memory["chunks"]
        memory.create_dataset("chunks", (1 << 40,), "S64", chunks=(1 << 20,), compression="gzip")
    with pytest.raises(DamagedError, match="claims"):
        h5.load(store)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("schema_version", "2.0", NewerFormatError),
        ("clawmem_format", "2.0", NewerFormatError),
        ("schema_version", "0.9", NotAStoreError),
        ("schema_version", "one", NotAStoreError),
        ("clawmem_format", "", NotAStoreError),
    ],
)
def test_other_versions(store: Path, name: str, value: str, kind: type[Exception]) -> None:
    """A newer major version is refused as such, anything else as no store; a newer minor one is read."""
    with h5.edited(store) as file:
        file["meta"].attrs[name] = value
    with pytest.raises(kind):
        h5.load(store)


def test_newer_minor_version_is_read(store: Path) -> None:
    """A later minor version only adds."""
    with h5.edited(store) as file:
        file["meta"].attrs["clawmem_format"] = "1.9"
    with h5.load(store) as found:
        assert 100 == found.count


def test_other_hdf5_files_are_no_store(tmp_path: Path) -> None:
    """An HDF5 file without our /meta is no store."""
    for name, content in (("a", None), ("b", "group"), ("c", "dataset")):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            if content == "group":
                file.create_group("meta")
            elif content == "dataset":
                file["meta"] = 1
        with pytest.raises(NotAStoreError, match="schema_version"):
            h5.load(tmp_path / f"{name}.h5")


def test_legacy_file_is_named(tmp_path: Path) -> None:
    """A file of the 2.1.0 tools is refused with the way to import it."""
    for name in ("empty.h5", "kg.h5"):
        path = Path(__file__).parents[2] / "data" / "clawhdf5-2.1.0" / name
        with pytest.raises(LegacyStoreError) as caught:
            h5.load(path)
        assert "clawmem-migrate" in caught.value.hint


def test_no_store(tmp_path: Path) -> None:
    """A path without a file is no store; nothing is made there."""
    with pytest.raises(NoStoreError):
        schema.open_columns(StorePaths(str(tmp_path / "none.h5")))
    assert [] == fs.listdir(str(tmp_path))


def test_sessions_with_one_id(store: Path) -> None:
    """Of sessions with one id, which the ancestor could write, the last counts, and a warning says so."""
    with h5.edited(store) as file:
        file["sessions/ids"][...] = [b"s1", b"s1"]
    with h5.load(store) as found:
        assert [h5.fields(Session("s1", -1, -1, "", "", 0.0))] == [h5.fields(row) for row in found.session_rows]
        assert ["/sessions/ids: of sessions with one id the last was taken"] == found.warnings
