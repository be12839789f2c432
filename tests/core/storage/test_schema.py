"""The HDF5 layout: what is written reads back equal, a fault names its dataset, foreign objects survive."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.errors import (
    DamagedError,
    LegacyStoreError,
    NewerFormatError,
    NoStoreError,
    NotAStoreError,
)
from clawmem_core.model import StoreConfig
from clawmem_core.storage import fs, schema
from clawmem_core.storage.columns import Columns, TextColumn, VectorColumn, norms_of
from clawmem_core.storage.ops import Session
from clawmem_core.storage.paths import StorePaths
from tests import rust_reader_rules
from tests.core.storage import h5

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store file with 100 records and something in every table."""
    columns = h5.columns_of(100)
    h5.fill_tables(columns)
    h5.write(tmp_path / "a.h5", columns)
    return tmp_path / "a.h5"


# ---------------------------------------------------------------- round trip


@settings(max_examples=25, deadline=None)
@given(data=st.data(), count=st.integers(0, 12), dim=st.integers(1, 5), float16=st.booleans())
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, count: int, dim: int, float16: bool
) -> None:
    """Any columns read back equal, and again after a second writing."""
    columns = h5.columns_of(count, dim, float16=float16)
    for name in h5.TEXTS:
        setattr(columns, name, TextColumn.of(data.draw(st.lists(TEXT, min_size=count, max_size=count))))
    ids = data.draw(st.lists(st.integers(0, 1 << 40), min_size=count, max_size=count, unique=True))
    columns.ids = np.array(sorted(ids), np.int64)
    values = st.floats(-1e4, 1e4, width=16)
    base = np.array(data.draw(st.lists(values, min_size=count * dim, max_size=count * dim)))
    base = base.reshape(count, dim).astype(columns.embeddings.dtype)
    columns.embeddings = VectorColumn("", "", base, count, dim, base.dtype)
    columns.norms = norms_of(base)
    columns.tombstones = np.array(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)), np.uint8)
    times = st.floats(-1e10, 1e10)
    columns.timestamps = np.array(data.draw(st.lists(times, min_size=count, max_size=count)), np.float64)
    first, second = (tmp_path_factory.mktemp("h5") / "a.h5" for _ in range(2))
    h5.write(first, columns)
    with h5.load(first) as found:
        assert h5.content(columns) == h5.content(found)
        h5.write(second, found)
    with h5.load(second) as found:
        assert h5.content(columns) == h5.content(found)


@pytest.mark.parametrize("count", [1, 63, 64, 999, 1000, 1001, 1023, 1024, 1025, 2048, *range(65531, 65538)])
def test_every_size(tmp_path: Path, count: int) -> None:
    """Chunk borders and the 64 KiB border of compact datasets make no difference (defect C3)."""
    h5.write(tmp_path / "a.h5", h5.columns_of(count, dim=2))
    with h5.load(tmp_path / "a.h5") as found:
        assert count == found.count
        assert f"text {count - 1}" == found.chunks[count - 1]
        assert (np.arange(count * 2).reshape(count, 2) % 50 + 1).tolist() == found.embeddings.read(0, count).tolist()
    with h5py.File(tmp_path / "a.h5") as file:
        rust_reader_rules.check(file)


def test_tables_round_trip(store: Path) -> None:
    """Sessions, graph, events with their exact payloads, value tombstones and audit lines read back equal."""
    columns = h5.columns_of(100)
    h5.fill_tables(columns)
    with h5.load(store) as found:
        assert h5.content(columns) == h5.content(found)
        assert (b"store-id-16bytes", "1.0") == (found.store_id, found.format)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_ancestor_reads_it(tmp_path: Path, count: int) -> None:
    """Every rule of the 2.1.0 reader holds, with and without rows."""
    columns = h5.columns_of(count)
    if count > 3:
        h5.fill_tables(columns)
    h5.write(tmp_path / "a.h5", columns)
    with h5py.File(tmp_path / "a.h5") as file:
        rust_reader_rules.check(file)


def test_superseded_event_text_is_hidden_from_the_ancestor(tmp_path: Path) -> None:
    """A row whose event has no current, active version has tombstone 1 on disk, and is live for us."""
    columns = h5.columns_of(4)
    columns.events = [h5.event(1), h5.event(2, status=1), h5.event(3, recorded_to=9)]
    columns.tombstones[3] = 1
    h5.write(tmp_path / "a.h5", columns)
    with h5py.File(tmp_path / "a.h5") as file:
        assert [0, 0, 1, 1] == file["memory/tombstones"][...].tolist()
    with h5.load(tmp_path / "a.h5") as found:
        assert [0, 0, 0, 1] == found.tombstones.tolist()


def test_every_setting_persists(tmp_path: Path) -> None:
    """All settings survive, whatever their value."""
    values: dict[str, Any] = {}
    for name, default in StoreConfig.FIELDS.items():
        if isinstance(default, bool):
            values[name] = not default
        elif isinstance(default, str):
            values[name] = "" if name in ("agent_id", "embedder") else "changed ü"
        else:
            values[name] = default + 1
    columns = Columns(StoreConfig(**values))
    columns.log_state, columns.store_id = bytes(104), b"s" * 16
    h5.write(tmp_path / "a.h5", columns)
    with h5.load(tmp_path / "a.h5") as found:
        assert values == found.config.as_dict()


@pytest.mark.parametrize("level", [0, 6])
def test_compressed_embeddings(tmp_path: Path, level: int) -> None:
    """With `compression` the vectors are deflated, lie nowhere as they are, and read back equal twice."""
    columns = h5.columns_of(3000, compression=True, compression_level=level)
    h5.write(tmp_path / "a.h5", columns)
    with h5.load(tmp_path / "a.h5") as found:
        assert found.embedding_offsets is None
        h5.write(tmp_path / "b.h5", found)
    with h5.load(tmp_path / "b.h5") as found:
        assert columns.embeddings.base.tolist() == found.embeddings.read(0, 3000).tolist()
    with h5py.File(tmp_path / "b.h5") as file:
        assert (level or 3) == file["memory/embeddings"].compression_opts
        rust_reader_rules.check(file)


# ---------------------------------------------------------------- layout


def test_one_huge_text_does_not_inflate_the_column(tmp_path: Path) -> None:
    """1 MB among 5,000 short texts: variable-length, a small file; without it fixed-length (defect C15)."""
    columns = h5.columns_of(5001)
    columns.chunks = TextColumn.of(["x" * 1_000_000, *(f"short {row}" for row in range(5000))])
    h5.write(tmp_path / "a.h5", columns)
    assert os.path.getsize(tmp_path / "a.h5") < 12_000_000
    with h5py.File(tmp_path / "a.h5") as file:
        assert h5py.check_string_dtype(file["memory/chunks"].dtype).length is None
    with h5.load(tmp_path / "a.h5") as found:
        assert list(columns.chunks) == list(found.chunks)
        found.chunks.change(None, {0: b"small now"}, [])
        h5.write(tmp_path / "b.h5", found)
    with h5.load(tmp_path / "b.h5") as found:
        assert ["small now", *columns.chunks[1:]] == list(found.chunks)


def test_full_chunks_are_copied_as_they_are(tmp_path: Path) -> None:
    """Adding a record leaves every full chunk of texts and vectors byte for byte; a wider text rewrites them."""
    h5.write(tmp_path / "a.h5", h5.columns_of(3000))
    before = _chunks(tmp_path / "a.h5")
    for text, same in ((b"one more", True), (b"w" * 100, False)):
        with h5.load(tmp_path / "a.h5") as found:
            _append(found, text)
            h5.write(tmp_path / "b.h5", found)
        after = _chunks(tmp_path / "b.h5")
        assert before["embeddings"][:2] == after["embeddings"][:2]
        assert same == (before["chunks"][:2] == after["chunks"][:2])
        with h5.load(tmp_path / "b.h5") as found:
            assert [*(f"text {row}" for row in range(3000)), text.decode()] == list(found.chunks)


def _append(columns: Columns, text: bytes) -> None:
    columns.chunks.change(None, {}, [text])
    for name in h5.TEXTS[1:]:
        getattr(columns, name).change(None, {}, [b""])
    columns.embeddings.change(None, {}, [b""])
    columns.ids = np.append(columns.ids, columns.ids[-1] + 1)
    for name in h5.NUMBERS[1:]:
        values = getattr(columns, name)
        setattr(columns, name, np.append(values, values.dtype.type(0)))


def _chunks(path: Path) -> dict[str, list[bytes]]:
    with h5py.File(path) as file:
        found = {}
        for name in ("chunks", "embeddings"):
            data = file["memory"][name]
            corners = [(start, 0)[: data.ndim] for start in range(0, len(data), data.chunks[0])]
            found[name] = [data.id.read_direct_chunk(corner)[1] for corner in corners]
        return found


@pytest.mark.parametrize("count", [1, 1000, 1024, 2500])
def test_vectors_can_be_read_without_hdf5(tmp_path: Path, count: int) -> None:
    """The recorded offsets lead to the vectors, and the one of the checkpoint id to its bytes."""
    columns = h5.columns_of(count)
    h5.write(tmp_path / "a.h5", columns)
    data = (tmp_path / "a.h5").read_bytes()
    with h5.load(tmp_path / "a.h5") as found:
        offsets, id_offset = found.embedding_offsets, found.checkpoint_id_offset
    assert offsets is not None
    row_bytes = 3 * 2
    for row in (0, count // 2, count - 1):
        at = offsets[row // 1024] + row % 1024 * row_bytes
        assert columns.embeddings.base[row].tobytes() == data[at : at + row_bytes]
    assert columns.checkpoint_id == data[id_offset : id_offset + 16]


def test_text_column_is_a_sequence(store: Path) -> None:
    """Index, slice, length and iteration agree, with a selection, changes and additions laid over."""
    with h5.load(store) as found:
        column = found.chunks
        column.change(np.array([0, 5, 99]), {1: b"changed"}, [b"new"])
        expected = ["text 0", "changed", "text 99", "new"]
        assert expected == list(column)
        assert expected == [column[row] for row in range(-4, 0)]
        assert expected[1:3] == column[1:3]
        assert expected[::-1] == column[::-1]
        assert 4 == len(column)
        with pytest.raises(IndexError):
            column[4]


# ---------------------------------------------------------------- files of other tools


def test_other_encodings_are_read(store: Path) -> None:
    """Variable-length strings, boolean tombstones, float64 vectors, no norms, weights or ids: what 2.1.0 would write."""
    with h5.edited(store) as file:
        memory = file["memory"]
        texts = [text.decode() for text in memory["chunks"][...]]
        for name in ("chunks", "norms", "activation_weights", "ids"):
            del memory[name]
        memory.create_dataset("chunks", data=texts, dtype=h5py.string_dtype())
        tombstones = memory["tombstones"][...] != 0
        del memory["tombstones"]
        memory["tombstones"] = tombstones
        vectors = memory["embeddings"][...].astype("f8")
        del memory["embeddings"]
        memory["embeddings"] = vectors
        for name in ("clawmem_format", "float16", "decay_factor", "quantized_index", "store_id"):
            del file["meta"].attrs[name]
    with h5.load(store) as found:
        assert ("", 0.98, False, False) == (
            found.format, found.config.decay_factor, found.config.float16, found.config.quantized_index
        )  # fmt: skip
        assert [f"text {row}" for row in range(100)] == list(found.chunks)
        assert list(range(100)) == found.ids.tolist()
        assert [1.0] * 100 == found.activation.tolist()
        assert norms_of(vectors.astype("f4")).tolist() == found.norms.tolist()
        assert vectors.tolist() == found.embeddings.read(0, 100).tolist()


def test_tombstones_other_than_0_and_1_count_as_deleted(store: Path) -> None:
    """Any other value is normalised (defect F25)."""
    with h5.edited(store) as file:
        file["memory/tombstones"][5] = 7
    with h5.load(store) as found:
        assert 1 == found.tombstones[5]
        assert 99 == found.active


def test_foreign_objects_survive(store: Path, tmp_path: Path) -> None:
    """Groups, datasets, attributes and links that are not ours are in the next file; `_merkle_root` is not."""
    with h5.edited(store) as file:
        file.attrs["root"] = "kept"
        file.create_group("extra/deep").attrs["n"] = np.arange(3)
        file["memory"]["more"] = np.arange(10)
        file["memory/chunks"].attrs["note"] = b"bytes"
        file["meta"].attrs["vlen"] = ["a", "bc"]
        file["meta"].attrs["_merkle_root"] = "stale"
        file["soft"] = h5py.SoftLink("/memory/chunks")
        file["hard"] = file["memory/tags"]
        file["space"] = h5py.Empty("f4")
        file["notes/private"] = "text"
    with h5.load(store) as found:
        assert [] == h5.write(tmp_path / "b.h5", found)
    with h5py.File(tmp_path / "b.h5") as file:
        assert "kept" == file.attrs["root"]
        assert [0, 1, 2] == file["extra/deep"].attrs["n"].tolist()
        assert list(range(10)) == file["memory/more"][...].tolist()
        assert "bytes" == file["memory/chunks"].attrs["note"]
        assert ["a", "bc"] == list(file["meta"].attrs["vlen"])
        assert "_merkle_root" not in file["meta"].attrs
        assert "/memory/chunks" == file.get("soft", getlink=True).path
        assert file["hard"] == file["memory/tags"]
        assert file["space"].shape is None
        assert b"text" == file["notes/private"][()]


def test_references_and_scales_are_warned_about(store: Path, tmp_path: Path) -> None:
    """What HDF5 cannot copy is named."""
    with h5.edited(store) as file:
        file.create_dataset("refs", data=np.array([file["memory"].ref], h5py.ref_dtype))
        file["axis"] = np.arange(100)
        file["axis"].make_scale("row")
        file["values"] = np.arange(100)
        file["values"].dims[0].attach_scale(file["axis"])
        file["meta"].attrs["ref"] = file["memory"].ref
    with h5.load(store) as found:
        warnings = h5.write(tmp_path / "b.h5", found)
    for name in ("/refs", "/axis", "/values", "/meta, attribute ref"):
        assert any(warning.startswith(name) for warning in warnings), name


# ---------------------------------------------------------------- refusals

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
