"""Stores of the 2.1.0 tools load whole, file and log, and are never changed."""

from __future__ import annotations

import json
import os
import shutil
import struct
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pytest

from clawmem_core.errors import ClawmemError, DamagedError, NoStoreError, NotAStoreError
from clawmem_core.storage import legacy_hdf5
from clawmem_core.storage.legacy_mend import lookup3, mended
from tests.core.storage import h5

DATA = Path(__file__).parents[2] / "data" / "clawhdf5-2.1.0"
EVAL_DATA = os.environ.get("CLAWMEM_EVAL_DATA", "")


@pytest.fixture
def kg(tmp_path: Path) -> Path:
    """A copy of the store with one record and a graph."""
    for name in ("kg.h5", "kg.h5.wal"):
        shutil.copy(DATA / name, tmp_path / name)
    return tmp_path / "kg.h5"


def save_entry(chunk: str, vector: list[float], timestamp: float = 2.0) -> bytes:
    """A Save entry of an EHWL log."""
    texts = [text.encode() for text in (chunk, "chat", "s", "k")]
    parts = [struct.pack("<I", len(text)) + text for text in texts]
    values = struct.pack(f"<I{len(vector)}f", len(vector), *vector)
    return struct.pack("<Bd", 1, timestamp) + parts[0] + values + b"".join(parts[1:])


def log_of(*entries: bytes, version: int = 2) -> bytes:
    """An EHWL log."""
    data, chain = b"EHWL" + bytes([version]) + bytes(4), sha256(b"EHWL\x02").digest()
    for entry in entries:
        chain = sha256(chain + entry).digest()
        data += entry + (chain if version == 2 else b"")
    return data


def test_lookup3() -> None:
    """Known values of the checksum, and those of HDF5's own headers."""
    assert 0xDEADBEEF == lookup3(b"")
    assert 0x17770551 == lookup3(b"Four score and seven years ago")
    data = (DATA / "kg.h5").read_bytes()
    assert lookup3(data[:44]) == int.from_bytes(data[44:48], "little")  # the superblock


def test_graph_store(kg: Path) -> None:
    """The store with a graph loads as documented; times become seconds, the session ends where the rows do."""
    before = kg.read_bytes()
    with legacy_hdf5.load(str(kg)) as found:
        assert ("ag", 2, False) == (found.config.agent_id, found.config.dim, found.config.float16)
        assert [["x"], ["chat"], ["s"], ["k"]] == [list(getattr(found, name)) for name in h5.TEXTS[:4]]
        assert [[1.0, 0.0]] == found.embeddings.read(0, 1).tolist()
        assert ([1.0], [1.0], [1.0], [0]) == tuple(
            getattr(found, name).tolist() for name in ("timestamps", "norms", "activation", "tombstones")
        )
        assert [(0, "Alice", 0, "person"), (1, "Bob", -1, "person")] == [
            (row.id, row.name, row.record_id, row.type) for row in found.entity_rows
        ]
        assert [(0, 1, "knows", 0.5, 1796034955)] == [
            (row.source, row.target, row.type, row.weight, int(row.timestamp)) for row in found.relation_rows
        ]
        assert [("my friend", 0)] == [(row.name, row.entity_id) for row in found.alias_rows]
        assert [("s1", 0, 0, 1796034955)] == [
            (row.id, row.start, row.end, int(row.timestamp)) for row in found.session_rows
        ]
    assert before == kg.read_bytes()
    assert ["kg.h5", "kg.h5.wal"] == sorted(os.listdir(kg.parent))


def test_empty_store() -> None:
    """A store without records loads as one."""
    with legacy_hdf5.load(str(DATA / "empty.h5")) as found:
        assert (0, 4, "default") == (found.count, found.config.dim, found.config.agent_id)


@pytest.mark.parametrize("version", [1, 2])
def test_pending_log(kg: Path, version: int) -> None:
    """Saves and tombstones of the log are applied in order; a reference into the log's rows holds."""
    entries = (save_entry("y", [0.0, 2.0]), struct.pack("<BdI", 2, 0.0, 0), save_entry("z", [3.0, 4.0]))
    Path(f"{kg}.wal").write_bytes(log_of(*entries, version=version))
    with legacy_hdf5.load(str(kg)) as found:
        assert ["x", "y", "z"] == list(found.chunks)
        assert [1, 0, 0] == found.tombstones.tolist()
        assert [1.0, 2.0, 5.0] == found.norms.tolist()
        assert [0, 1, 2] == found.ids.tolist()
        assert (0, 2) == (found.session_rows[0].start, found.session_rows[0].end)
        assert [] == found.warnings


def test_what_no_store_can_hold_is_left_out_with_a_warning(kg: Path) -> None:
    """Vectors of another length or not finite, a NUL, a time that is none: the text is kept, the rest is named."""
    entries = (
        save_entry("short", [1.0]),
        save_entry("nan", [float("nan"), 1.0]),
        save_entry("a\0b", [1.0, 1.0]),
        save_entry("late", [1.0, 1.0], float("inf")),
        save_entry("none", []),
        save_entry("zero", [0.0, 0.0]),
    )
    Path(f"{kg}.wal").write_bytes(log_of(*entries))
    with legacy_hdf5.load(str(kg)) as found:
        assert ["short", "nan", "a\ufffdb", "late", "none", "zero"] == found.chunks[1:]
        assert [True, False, False, True, True, False, False] == [bool(norm) for norm in found.norms]
        assert 0.0 == found.timestamps[4]
        assert [1, 2, 3, 4] == [int(warning.split()[1].rstrip(":")) for warning in found.warnings]


def test_broken_chain_keeps_what_was_before(kg: Path) -> None:
    """Entries behind a broken one are not guessed; a warning says where the reading stopped."""
    data = bytearray(log_of(save_entry("y", [0.0, 2.0]), save_entry("z", [0.0, 2.0])))
    data[-40] ^= 1
    Path(f"{kg}.wal").write_bytes(data)
    with legacy_hdf5.load(str(kg)) as found:
        assert ["x", "y"] == list(found.chunks)
        assert "understood up to byte" in found.warnings[0]


def test_log_name_of_the_ancestor() -> None:
    """The 2.1.0 tools replace the last extension (defect B4)."""
    assert ["m.h5.wal", "m.h5.wal", "d.x/agent.h5.wal"] == [
        legacy_hdf5.log_path(path) for path in ("m.h5", "m.hdf5", "d.x/agent.v1")
    ]


def test_a_file_of_ours_is_no_legacy_store(tmp_path: Path) -> None:
    """The importer refuses a store of this toolchain."""
    h5.write(tmp_path / "a.h5", h5.columns_of(3))
    with pytest.raises(NotAStoreError, match=r"not of the 2\.1\.0 tools"):
        legacy_hdf5.load(str(tmp_path / "a.h5"))


def test_other_files(tmp_path: Path) -> None:
    """Missing, other and cut files are named as such."""
    with pytest.raises(NoStoreError):
        legacy_hdf5.load(str(tmp_path / "none.h5"))
    (tmp_path / "a.h5").write_bytes(b"text")
    with pytest.raises(NotAStoreError):
        legacy_hdf5.load(str(tmp_path / "a.h5"))
    (tmp_path / "a.h5").write_bytes((DATA / "kg.h5").read_bytes()[:3000])
    with pytest.raises(DamagedError):
        legacy_hdf5.load(str(tmp_path / "a.h5"))


def test_mending_leaves_other_bytes_alone() -> None:
    """A file without the two faults is not changed at all, nor is a header whose checksum was wrong."""
    data = mended((DATA / "kg.h5").read_bytes())
    assert data == mended(data)
    raw = bytearray((DATA / "kg.h5").read_bytes())
    at = raw.find(b"OHDR", raw.find(b"OHDR") + 4)
    raw[at + 20] ^= 1
    end = raw.find(b"OHDR", at + 4)
    assert raw[at:end] == mended(bytes(raw))[at:end]


def test_garbled_legacy_file_never_gives_a_traceback(tmp_path: Path) -> None:
    """Whatever byte is hit: the content or an error of ours."""
    data = (DATA / "kg.h5").read_bytes()
    for at in range(0, len(data), 23):
        (tmp_path / "kg.h5").write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            with legacy_hdf5.load(str(tmp_path / "kg.h5")) as found:
                h5.content(found)
        except ClawmemError:
            continue


def test_vectors_are_those_of_the_file(kg: Path) -> None:
    """The mended copy opens in plain h5py with the datatypes it should have had."""
    copy = kg.with_name("mended.h5")
    copy.write_bytes(mended(kg.read_bytes()))
    with h5py.File(copy) as file:
        assert np.float32 == file["memory/embeddings"].dtype
        assert [[1.0, 0.0]] == file["memory/embeddings"][...].tolist()


@pytest.mark.skipif(not EVAL_DATA, reason="CLAWMEM_EVAL_DATA is not set")
def test_store_with_pending_log_of_the_measuring_data() -> None:
    """The store of 60 rows and 9 pending saves holds the first 69 turns of its conversation, with their vectors."""
    folder = Path(EVAL_DATA)
    with (folder / "locomo" / "conv-30.turns.jsonl").open() as lines:
        turns = [json.loads(line) for line in lines][:69]
    vectors = np.load(folder / "locomo" / "conv-30.turns.npy")[:69].astype("f8")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with legacy_hdf5.load(str(folder / "clawhdf5-2.1.0" / "legacy-60.h5")) as found:
        assert ("conv-30", 384, 69) == (found.config.agent_id, found.config.dim, found.count)
        assert [turn["content"] for turn in turns] == list(found.chunks)
        assert [turn["id"] for turn in turns] == list(found.tags)
        assert {"chat"} == set(found.source_channel)
        starts = [datetime.fromisoformat(turn["ts"]).replace(tzinfo=UTC).timestamp() for turn in turns]
        assert [start + turn["pos"] for start, turn in zip(starts, turns, strict=True)] == found.timestamps.tolist()
        assert np.allclose(vectors, found.embeddings.read(0, 69), atol=1e-6)
