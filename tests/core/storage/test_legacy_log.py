"""The ancestor's log: what it holds is read, what is wrong with it is said, no length is believed."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from zlib import crc32

import pytest

from clawmem_core.errors import NewerFormatError
from clawmem_core.storage.legacy_log import HEADER_SIZE, LegacySave, LegacyTombstone, parse, read
from clawmem_core.storage.log_format import Identity, LogState


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def _save(chunk: str, vector: tuple[float, ...] = (1.0, 2.0), time: float = 5.0) -> bytes:
    numbers = struct.pack(f"<I{len(vector)}f", len(vector), *vector)
    return struct.pack("<Bd", 1, time) + _text(chunk) + numbers + _text("cli") + _text("s1") + _text("")


TOMBSTONE = struct.pack("<BdI", 2, 6.0, 3)
ACTIVATION = struct.pack("<Bd", 3, 7.0)
ENTRIES = [_save("one"), TOMBSTONE, ACTIVATION, _save("zwei ü", ()), _save("x" * 70_000)]


def _log(version: int, entries: list[bytes]) -> bytes:
    chain = hashlib.sha256(b"EHWL\x02").digest()
    data = b"EHWL" + bytes([version]) + struct.pack("<I", 77)
    for entry in entries:
        chain = hashlib.sha256(chain + entry).digest()
        data += entry + (chain if version == 2 else b"")
    return data


@pytest.mark.parametrize("version", [1, 2])
def test_every_entry_is_read(version: int) -> None:
    """Saves with all fields, tombstones, and nothing for the reserved type; the header's count is not believed."""
    log = parse(_log(version, ENTRIES))
    assert ("", version) == (log.damage, log.version)
    assert log.end == log.size
    first, second, third, fourth = log.entries
    assert isinstance(first, LegacySave) and isinstance(second, LegacyTombstone)
    assert ("one", 5.0, "cli", "s1", "", struct.pack("<2f", 1, 2)) == (
        first.chunk, first.timestamp, first.source_channel, first.session_id, first.tags, first.vector,
    )  # fmt: skip
    assert 3 == second.position
    assert isinstance(third, LegacySave) and ("zwei ü", b"") == (third.chunk, third.vector)
    assert isinstance(fourth, LegacySave) and 70_000 == len(fourth.chunk)


@pytest.mark.parametrize("version", [1, 2])
def test_cut_anywhere_keeps_the_whole_entries(version: int) -> None:
    """A torn tail is dropped and called torn."""
    data = _log(version, ENTRIES[:4])
    ends = [len(_log(version, ENTRIES[:count])) for count in range(5)]
    for length in range(HEADER_SIZE, len(data)):
        log = parse(data[:length])
        assert max(end for end in ends if end <= length) == log.end
        assert ("" if length in ends else "torn") == log.damage


def test_flip_in_version_2_stops_the_reading() -> None:
    """Any changed byte ends the reading before that entry."""
    data = _log(2, ENTRIES[:4])
    first = len(_log(2, ENTRIES[:1]))
    for at in range(first, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x20
        log = parse(bytes(broken))
        assert log.damage
        assert log.end <= at
        assert "one" == log.entries[0].chunk  # type: ignore[union-attr]


@pytest.mark.parametrize("tail", [b"\0" * 50, b"\x09" + bytes(20)])
def test_unknown_type_is_damage(tail: bytes) -> None:
    """Other bytes where an entry should start are not passed over in silence."""
    log = parse(_log(1, ENTRIES[:1]) + tail)
    assert "unknown entry type" in log.damage
    assert 1 == len(log.entries)


def test_lengths_are_not_believed() -> None:
    """4 GiB of text or 16 GiB of vector are torn, and nobody allocates them."""
    huge = struct.pack("<BdI", 1, 0.0, 0xFFFFFFFF)
    vector = struct.pack("<Bd", 1, 0.0) + _text("x") + struct.pack("<I", 0xFFFFFFFF) + bytes(40)
    for entry in (huge, vector):
        assert ("torn", []) == (parse(_log(1, []) + entry).damage, parse(_log(1, []) + entry).entries)


def test_text_that_is_no_utf8_is_damage() -> None:
    """It is not replaced by other characters."""
    entry = struct.pack("<BdI", 1, 0.0, 1) + b"\xff" + struct.pack("<4I", 0, 0, 0, 0)
    assert "utf-8" in parse(_log(2, [entry])).damage


def test_marked_prefix_is_left_out(tmp_path: Path) -> None:
    """A legacy mark that matches hides what the file holds already; one that does not, hides nothing."""
    path = tmp_path / "m.h5.wal"
    data = _log(2, [_save("one"), _save("two"), _save("three")])
    path.write_bytes(data)
    length = len(_log(2, [_save("one"), _save("two")]))

    def identity(**mark: object) -> Identity:
        fields = {"mark_length": length, "mark_crc": crc32(data[:length]), **mark}
        return Identity(store_id=bytes(16), checkpoint_id=bytes(16), h5_id_offset=0, state=LogState(), **fields)  # type: ignore[arg-type]

    def chunks(of: Identity | None) -> list[str]:
        log = read(str(path), of)
        assert log is not None
        return [entry.chunk for entry in log.entries if isinstance(entry, LegacySave)]

    assert ["three"] == chunks(identity())
    for other in (None, identity(mark_crc=1), identity(mark_log_id=b"x" * 16), identity(mark_length=10**9)):
        assert ["one", "two", "three"] == chunks(other)


def test_other_files(tmp_path: Path) -> None:
    """No file, another kind of file and a short one are no legacy log; version 3 is of a newer version."""
    path = tmp_path / "log"
    assert read(str(path)) is None
    for data in (b"", b"EHWL", b"CLAWMWAL" + bytes(600), b"EHWL\0" + bytes(10)):
        path.write_bytes(data)
        assert read(str(path)) is None
    path.write_bytes(b"EHWL\x03" + bytes(100))
    with pytest.raises(NewerFormatError):
        read(str(path))
