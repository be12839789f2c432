"""Cuts at every length and flips in every byte of a small log: nothing acknowledged is lost, nothing wrong is read."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawmem_core.storage.log_format import HEADER_SIZE, LogHeader
from clawmem_core.storage.log_recovery import recover
from clawmem_core.storage.log_scan import FrameReader, examine_tail, replay
from clawmem_core.storage.pair import open_pair
from clawmem_core.storage.paths import StorePaths
from tests.core.storage import support
from tests.core.storage.support import Session, numbers_of, save, stage, stored
from tests.faults.simulated import DIRECTORY, SimulatedLayer, simulated

ENTRIES = 6


class SmallLog:
    """A log of a few frames on a simulated disk, to be damaged again and again. `ends`: where its frames end."""

    def __init__(self, layer: SimulatedLayer) -> None:
        self.layer = layer
        self.paths: StorePaths = support.create(f"{DIRECTORY}/m.h5")
        self.ends = [HEADER_SIZE]
        with Session(self.paths) as log:
            for number in range(ENTRIES):
                stage(log, number, 10 + 7 * number, keyed=number % 2 == 0)
                log.commit()
                self.ends.append(log.size)
        self.inode = layer.names[self.paths.log]
        self.data = bytes(self.inode.data)
        self.salt = self.data[32:40]

    def become(self, data: bytes) -> None:
        """Put these bytes in the log's place and forget what earlier recoveries left."""
        self.layer.names[self.paths.log] = self.inode
        self.inode.data[:] = data
        for name in self.paths.quarantined():
            del self.layer.names[name]

    def kept(self) -> list[bytes]:
        """The quarantined logs."""
        return [bytes(self.layer.names[name].data) for name in self.paths.quarantined()]


@pytest.fixture(scope="module")
def small() -> Iterator[SmallLog]:
    """A log of six entries, each synced before the next."""
    with simulated() as layer:
        yield SmallLog(layer)


def _good(small: SmallLog, at: int) -> int:
    """Entries that lie whole before byte `at`."""
    return sum(end <= at for end in small.ends[1:])


def test_cut_at_every_length(small: SmallLog) -> None:
    """A log cut anywhere keeps its whole entries, and an entry saved then stands right behind them."""
    for length in range(HEADER_SIZE, len(small.data) + 1):
        small.become(small.data[:length])
        pair = open_pair(small.paths, support.identity_of)
        expected = list(range(_good(small, length)))
        assert expected == numbers_of(pair.frames)
        assert [] == pair.reports, "a cut tail is no news to a reader"
        assert length == len(small.inode.data), "a reader changes nothing"
        log = save(small.paths, 99)
        clean = length in small.ends
        assert ([] if clean else ["log-torn"]) == [report.code for report in log.reports]
        assert [] == small.kept()
        assert [*expected, 99] == stored(small.paths)


def test_cut_inside_the_header(small: SmallLog) -> None:
    """A log shorter than its header is quarantined, below nine bytes it is empty."""
    for length in range(0, HEADER_SIZE, 13):
        small.become(small.data[:length])
        log = save(small.paths, 99)
        assert ["log-empty" if length <= 8 else "log-header-bad"] == [report.code for report in log.reports]
        assert [99] == stored(small.paths)
        assert ([] if length <= 8 else [small.data[:length]]) == small.kept()


@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_flip_in_every_byte(small: SmallLog, bits: int) -> None:
    """A flipped byte never yields a wrong entry; all bytes behind it are kept; later saves work; ids are not reused."""
    for at in range(HEADER_SIZE, len(small.data)):
        data = bytearray(small.data)
        data[at] ^= bits
        small.become(bytes(data))
        good = _good(small, at)
        pair = open_pair(small.paths, support.identity_of)
        assert list(range(good)) == numbers_of(pair.frames)
        with Session(small.paths) as log:
            assert list(range(good)) == numbers_of(log.frames())
            expected = "log-torn" if good == ENTRIES - 1 else "log-corrupt"
            assert [expected] == [report.code for report in log.reports]
            assert log.state.next_record_id >= ENTRIES, "an acknowledged id would be given again"
        assert [bytes(data)] == small.kept()
        save(small.paths, 99)
        assert [*range(good), 99] == stored(small.paths)


def test_flip_in_every_byte_of_the_header(small: SmallLog) -> None:
    """A damaged header means that nothing of the log is applied, and that all of it is kept."""
    for at in range(0, HEADER_SIZE, 3):
        data = bytearray(small.data)
        data[at] ^= 0x10
        if 8 <= at < 10:
            continue  # the major version: another test
        small.become(bytes(data))
        with Session(small.paths) as log:
            assert ["log-header-bad"] == [report.code for report in log.reports]
            assert log.state.next_record_id >= ENTRIES
        assert [bytes(data)] == small.kept()


def test_zeros_behind_the_end_are_torn(small: SmallLog) -> None:
    """A file that grew before its data came is cut back without a quarantine."""
    small.become(small.data + bytes(700))
    assert ["log-torn"] == [report.code for report in save(small.paths, 99).reports]
    assert [] == small.kept()


@pytest.mark.parametrize("what", ["garbage", "doubled", "moved"])
def test_other_bytes_behind_the_end_are_kept(small: SmallLog, what: str) -> None:
    """Bytes that are no frame of this place are quarantined and never applied, a doubled frame included."""
    first, second = small.ends[:2]
    extra = {"garbage": b"\x17" * 300, "doubled": small.data[small.ends[-2] :], "moved": small.data[first:second]}[what]
    small.become(small.data + extra)
    with Session(small.paths) as log:
        assert list(range(ENTRIES)) == numbers_of(log.frames())
        assert 1 == len(log.reports)
    assert [small.data + extra] == small.kept()


def test_swapped_and_missing_frames_stop_the_reading(small: SmallLog) -> None:
    """Two frames in the wrong order, or one cut out of the middle, end the reading there."""
    cut = [small.data[start:end] for start, end in zip(small.ends, small.ends[1:], strict=False)]
    swapped = small.data[:HEADER_SIZE] + b"".join([cut[0], cut[2], cut[1], *cut[3:]])
    missing = small.data[:HEADER_SIZE] + b"".join([cut[0], *cut[2:]])
    for data in (swapped, missing):
        small.become(data)
        assert [0] == numbers_of(open_pair(small.paths, support.identity_of).frames)
        with Session(small.paths) as log:
            assert [0] == numbers_of(log.frames())
        assert [data] == small.kept()


def test_unsynced_window_lost() -> None:
    """A hole before frames that were written before it was synced is a power failure, not damage."""
    with simulated() as layer:
        paths = support.create(f"{DIRECTORY}/m.h5")
        save(paths, 0)
        ends = []
        with Session(paths) as log:
            for number in range(1, 4):
                stage(log, number)
                log.commit(sync=False)
                ends.append(log.size)
        layer.names[paths.log].data[ends[0] - 40 : ends[0]] = bytes(40)
        with Session(paths) as log:
            assert ["log-unsynced-lost"] == [report.code for report in log.reports]
            assert [0] == numbers_of(log.frames())
            assert log.state.next_record_id >= 4
        assert 1 == len(paths.quarantined())


def test_quarantine_is_durable_before_the_log_is_replaced(small: SmallLog) -> None:
    """The bytes and their second name are synced first."""
    small.become(small.data + b"garbage")
    calls: list[str] = []
    small.layer.before = lambda operation, path: calls.append(f"{operation} {path}")
    recover(small.paths, support.identity_of)
    small.layer.before = lambda operation, path: None
    (kept,) = small.paths.quarantined()
    linked, made = calls.index(f"link {kept}"), next(at for at, call in enumerate(calls) if ".wal.tmp-" in call)
    assert f"fsync {small.paths.log}" in calls[:linked]
    assert f"fsync {DIRECTORY}" in calls[linked:made]
    assert made < calls.index(f"replace {small.paths.log}")


def test_recovery_twice_keeps_one_copy(small: SmallLog) -> None:
    """A crash between the quarantine and the new log does not pile up copies."""
    small.become(small.data + b"garbage")

    def crash(operation: str, path: str) -> None:
        if operation == "replace":
            raise KeyboardInterrupt

    for _ in range(3):
        small.layer.before = crash
        with pytest.raises(KeyboardInterrupt):
            recover(small.paths, support.identity_of)
        small.layer.before = lambda operation, path: None
    save(small.paths, 99)
    assert [small.data + b"garbage"] == small.kept()


def test_reader_reads_in_pieces(small: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames larger than the read step, and steps that end inside a frame, change nothing."""
    small.become(small.data)
    for step in (40, 100, 200, 333):
        monkeypatch.setattr("clawmem_core.storage.log_scan._STEP", step)
        assert list(range(ENTRIES)) == numbers_of(open_pair(small.paths, support.identity_of).frames)
        data = bytearray(small.data)
        data[small.ends[2] + 1] ^= 1
        small.become(bytes(data))
        with Session(small.paths) as log:
            assert [0, 1] == numbers_of(log.frames())
            assert ["log-corrupt"] == [report.code for report in log.reports]
        small.become(small.data)


def test_announced_lengths_are_bounded(small: SmallLog) -> None:
    """A frame that announces 4 GiB makes nobody read or allocate them."""
    data = bytearray(small.data)
    data[small.ends[3] + 8 : small.ends[3] + 12] = b"\xff\xff\xff\xff"
    small.become(bytes(data))
    small.layer.read_bytes = 0
    with Session(small.paths) as log:
        assert [0, 1, 2] == numbers_of(log.frames())
    assert small.layer.read_bytes < 20 * len(data)


def test_mark_anywhere_but_at_a_frame_end_is_no_mark(small: SmallLog) -> None:
    """A mark matches only where a frame ends with the marked checksum."""
    header = LogHeader.unpack(small.data[:HEADER_SIZE], "")
    assert header is not None
    small.become(small.data)
    fd = small.layer.open(small.paths.log, 0)
    identity = support.current(small.paths)
    identity.mark_log_id = header.log_id
    for length in range(HEADER_SIZE - 1, len(small.data) + 2):
        identity.mark_length = length
        identity.mark_crc = int.from_bytes(small.data[length - 8 : length - 4], "little")
        if length == HEADER_SIZE:
            identity.mark_crc = header.crc
        found = replay(fd, header, identity, len(small.data))
        assert (length in small.ends) == found.found
        assert (ENTRIES - small.ends.index(length) if found.found else 0) == len(found.frames)
        identity.mark_crc ^= 1
        assert not replay(fd, header, identity, len(small.data)).found
        if length not in small.ends:
            end = next((end for end in small.ends if end > length), len(small.data))
            identity.mark_crc = int.from_bytes(small.data[end - 8 : end - 4], "little")
            assert not replay(fd, header, identity, len(small.data)).found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=60)), max_size=3),
       cut=st.integers(0, 2000))  # fmt: skip
def test_any_damage_leaves_a_prefix(small: SmallLog, edits: list[tuple[int, bytes]], cut: int) -> None:
    """Whatever is written over a log behind its header: what is read is a prefix, and saving works again."""
    data = bytearray(small.data)
    for at, written in edits:
        data[HEADER_SIZE + at : HEADER_SIZE + at + len(written)] = written
    del data[HEADER_SIZE + cut :]
    small.become(bytes(data))
    found = numbers_of(open_pair(small.paths, support.identity_of).frames)
    assert list(range(len(found))) == found
    with Session(small.paths) as log:
        assert found == numbers_of(log.frames())
    save(small.paths, 99)
    assert [*found, 99] == stored(small.paths)


def test_forged_salt_costs_no_more_than_reading(small: SmallLog) -> None:
    """A tail full of frame beginnings is searched in time, and nothing of it is taken for a frame."""
    forged = (small.salt + (40).to_bytes(4, "little") + bytes(28)) * 500
    small.become(small.data + forged)
    fd = small.layer.open(small.paths.log, 0)
    size = len(small.inode.data)
    reader = FrameReader(fd, small.salt, size, HEADER_SIZE, crc32(small.data[: HEADER_SIZE - 4]))
    frames = list(reader)
    assert len(small.data) == reader.offset
    tail = examine_tail(fd, small.salt, reader.offset, size, frames[-1].state)
    assert ("log-torn", True) == (tail.code, tail.keep)
