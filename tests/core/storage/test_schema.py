"""The HDF5 layout: what is written reads back equal, a fault names its dataset, foreign objects survive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.model import StoreConfig
from clawmem_core.storage.columns import Columns, TextColumn, VectorColumn, norms_of
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
            values[name] = {"agent_id": "", "embedder": "", "tokenizer": "plain-1"}.get(name, "changed ü")
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


def _rewrite(path: Path, name: str, **how: Any) -> None:
    """What a tool that repacks files does: the same values and attributes in another layout."""
    with h5py.File(path, "r+", locking=False) as file:
        group = file["memory"]
        old = group[name]
        values, attributes = old[()], dict(old.attrs)
        how = {"dtype": old.dtype, "chunks": old.chunks, **how}
        del group[name]
        group.create_dataset(name, data=values, **how).attrs.update(attributes)


REPACKED: list[tuple[str, dict[str, Any]]] = [
    ("chunks", {}),
    ("chunks", {"compression": "gzip", "compression_opts": 9}),
    ("chunks", {"compression": "gzip", "shuffle": True}),
    ("chunks", {"compression": "lzf"}),
    ("chunks", {"compression": "gzip", "fletcher32": True}),
    ("chunks", {"dtype": h5py.string_dtype("utf-8"), "chunks": None}),
    ("chunks", {"dtype": h5py.string_dtype("utf-8", 4096), "chunks": None}),
    ("embeddings", {"shuffle": True}),
    ("embeddings", {"compression": "lzf"}),
]


@pytest.mark.parametrize(("name", "how"), REPACKED)
def test_a_repacked_file_loses_nothing(tmp_path: Path, name: str, how: dict[str, Any]) -> None:
    """Chunks are copied as they are only into the very same layout."""
    h5.write(tmp_path / "a.h5", _long_texts())
    _rewrite(tmp_path / "a.h5", name, **how)
    _checkpointed_unharmed(tmp_path)


def test_a_chunk_that_skipped_its_filters_is_copied_with_that_mark(tmp_path: Path) -> None:
    """HDF5 keeps for each chunk which filters it went through."""
    h5.write(tmp_path / "a.h5", _long_texts())
    with h5py.File(tmp_path / "a.h5", "r+", locking=False) as file:
        dataset = file["memory/chunks"]
        rows, width = dataset.chunks[0], dataset.dtype.itemsize
        plain = dataset[:rows].tobytes().ljust(rows * width, b"\0")
        dataset.id.write_direct_chunk((0,), plain, 1)
    _checkpointed_unharmed(tmp_path)


@pytest.mark.parametrize("name", ["text_width", "text_bytes"])
@pytest.mark.parametrize("value", [-64, 0, 1, 16, 1 << 50])
def test_attributes_of_texts_never_cost_a_text(tmp_path: Path, name: str, value: int) -> None:
    """Nobody signs them, so nothing rests on them."""
    h5.write(tmp_path / "a.h5", _long_texts())
    with h5py.File(tmp_path / "a.h5", "r+", locking=False) as file:
        for column in ("chunks", "keys"):
            file["memory"][column].attrs[name] = value
    _checkpointed_unharmed(tmp_path)


def _long_texts() -> Columns:
    """Several chunks of texts longer than one step of width, and keys."""
    columns = h5.columns_of(1100)
    columns.chunks = TextColumn.of([f"{row} ".ljust(100, "x") for row in range(1100)])
    columns.keys = TextColumn.of([f"key {row}" for row in range(1100)])
    return columns


def _checkpointed_unharmed(folder: Path) -> None:
    """A next file with one record more holds what the first one held."""
    with h5.load(folder / "a.h5") as found:
        expected = [found.chunks[:], found.keys[:], found.embeddings.read(0, 1100).tolist()]
        _append(found, b"more")
        h5.write(folder / "b.h5", found)
    with h5.load(folder / "b.h5") as found:
        assert expected == [found.chunks[:1100], found.keys[:1100], found.embeddings.read(0, 1100).tolist()]


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
    """Variable-length strings, boolean tombstones, float64 vectors, no norms, weights or ids."""
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
