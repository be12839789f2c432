"""The writer: counters, groups, keys, and damage met on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawmem_core import MemoryEntry, MemoryStore, door
from clawmem_core.contract import audit
from clawmem_core.errors import StorageError
from clawmem_core.storage import fs, ops
from clawmem_core.writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty store."""
    MemoryStore.create(tmp_path / "m.h5", dim=2).close()
    return tmp_path / "m.h5"


def save(writer: Writer, chunk: str, key: str = "") -> tuple[str, int]:
    """Stage one record."""
    return writer.save(door.entry_record(MemoryEntry(chunk, key=key), 2, True))


def test_group_has_one_audit_line(path: Path) -> None:
    """Three frames, one line that counts them, its chain in the state."""
    with Writer.open(path, actor="somebody") as writer:
        for text in ("a", "b", "c"):
            save(writer, text)
        writer.commit()
        frames = writer.log.frames()
        lines = [value for frame in frames for op, _, value in ops.decode(frame.payload) if op == ops.AUDIT]
        assert 3 == len(frames)
        assert 1 == len(lines) == writer.state.audit_seq
        line = audit.parse_line(lines[0])
        assert ("save", "somebody", 3) == (line.op, line.actor, line.count)
        assert writer.state.audit_head == lines[0][-32:]
        assert audit.verify_lines(lines[0], writer.state.audit_head) is None


def test_failed_commit_leaves_the_counters(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a group that could not be written counts, and the next process gives its ids again."""
    with Writer.open(path) as writer:
        save(writer, "kept")
        writer.commit()
        before = writer.state.pack()

        class FullDisk(fs.RealLayer):
            """Every write fails."""

            @staticmethod
            def pwrite(*_: object) -> int:
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(fs, "layer", FullDisk())
            save(writer, "lost")
            with pytest.raises(StorageError):
                writer.commit()
        assert before == writer.state.pack()
    with Writer.open(path) as writer:
        assert ("saved", 1) == save(writer, "next")


def test_staged_key_is_known(path: Path) -> None:
    """Two records with one key in one group: the second updates the first."""
    with Writer.open(path) as writer:
        assert [("saved", 0), ("updated", 0)] == [save(writer, "a", "k"), save(writer, "b", "k")]
        writer.commit()
        assert (1, 1) == (writer.state.rows, writer.state.active)


def test_damage_met_while_looking_for_a_key(path: Path) -> None:
    """A frame on the way to a key is broken: the log is repaired, and counters follow what is left."""
    with Writer.open(path) as writer:
        for number in range(6):
            save(writer, f"number {number}", f"key {number}")
            writer.commit()
    log = path.with_name("m.h5.wal")
    data = bytearray(log.read_bytes())
    data[data.find(b"number 1")] ^= 1
    log.write_bytes(data)
    with Writer.open(path) as writer:
        assert writer.find_key("key 0") == 0
        assert ["log-corrupt"] == [report.code for report in writer.reports]
        status, index = save(writer, "after", "key 9")
        writer.commit()
        assert "saved" == status
        assert index >= 6
        assert 2 == writer.state.rows
    with MemoryStore.open_read_only(path) as store:
        assert ["number 0", "after"] == [record.chunk for record in store.records()]
