"""The lock-free reader: one consistent pair, whatever a writer does meanwhile, and never a trace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawmem_core import clock
from clawmem_core.errors import NewerFormatError, NoStoreError, StorageError
from clawmem_core.storage import fs
from clawmem_core.storage.log_format import HEADER_SIZE, NO_ID, Identity, LogState
from clawmem_core.storage.pair import Pair, open_pair
from clawmem_core.storage.paths import StorePaths
from tests.core.storage import support
from tests.core.storage.support import Session, entries_of, identity_of, numbers_of, save, write_file

WRITER = """
import random, sys
from tests.core.storage.support import *
paths, seed = StorePaths(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
from clawmem_core.storage.atomic import remove_stale_temps
print("ready", flush=True)
while True:
    with Session(paths) as log:
        remove_stale_temps(paths)
        for _ in range(rng.randrange(1, 6)):
            for _ in range(rng.choice((1, 1, 4))):
                stage(log, log.state.next_record_id, rng.choice((10, 3000)))
            log.commit(False)
        checkpoint(paths, log)
"""


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    """A store without entries."""
    return support.create(str(tmp_path / "m.h5"))


def _read(paths: StorePaths) -> tuple[list[int], Pair]:
    pair = open_pair(paths, identity_of)
    try:
        return entries_of(pair.h5_fd) + numbers_of(pair.frames), pair
    finally:
        fs.close(pair.h5_fd)


def _codes(pair: Pair) -> list[str]:
    return [report.code for report in pair.reports]


def test_base_and_pending(paths: StorePaths) -> None:
    """Frames, counters and pending entries of a log that continues the file."""
    save(paths, 1, 2)
    entries, pair = _read(paths)
    assert ([1, 2], 2, 2, []) == (entries, pair.pending, pair.state.rows, pair.reports)
    assert os.path.getsize(paths.log) == pair.log_bytes


def test_log_of_before_the_checkpoint(paths: StorePaths) -> None:
    """A log that was not rotated yet: what the file holds is not applied again, what it does not hold is."""
    save(paths, 1, 2)
    with Session(paths) as log:
        state, log_id, size, chain = log.state, log.header.log_id, log.size, log.chain
    save(paths, 3)
    write_file(paths, [1, 2], state, log_id, size, chain)
    entries, pair = _read(paths)
    assert ([1, 2, 3], 1, []) == (entries, pair.pending, pair.reports)


def test_reader_leaves_no_trace(paths: StorePaths) -> None:
    """Reading, also of a torn log, creates and changes nothing."""
    save(paths, 1)
    with open(paths.log, "ab") as file:
        file.write(b"torn")
    os.unlink(paths.lock)
    before = {name: (Path(paths.directory) / name).read_bytes() for name in os.listdir(paths.directory)}
    assert [1] == _read(paths)[0]
    assert before == {name: (Path(paths.directory) / name).read_bytes() for name in os.listdir(paths.directory)}


def test_disagreement_is_reported_and_the_file_served(paths: StorePaths) -> None:
    """A log that does not belong to the file is believed to be wrong after two looks, and left out."""
    save(paths, 1)
    log = Path(paths.log).read_bytes()
    os.unlink(paths.log)
    assert ["log-missing"] == _codes(_read(paths)[1])
    Path(paths.log).write_bytes(b"")
    assert ["log-empty"] == _codes(_read(paths)[1])
    Path(paths.log).write_bytes(log[:100])
    assert ["log-header-bad"] == _codes(_read(paths)[1])
    Path(paths.log).write_bytes(log)
    write_file(paths, [7], LogState())
    entries, pair = _read(paths)
    assert ([7], ["log-other-checkpoint"], 0, None) == (entries, _codes(pair), pair.pending, pair.header)


def test_passing_disagreement_is_not_believed(paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of two checkpoints later than the log is looked at again, and nothing is reported."""
    save(paths, 1)
    looks = []

    def find(fd: int) -> Identity:
        looks.append(fd)
        if len(looks) == 1:
            identity = identity_of(fd)
            identity.checkpoint_id = b"two checkpoints."
            return identity
        return identity_of(fd)

    pair = open_pair(paths, find)
    fs.close(pair.h5_fd)
    assert (2, [], [1]) == (len(looks), pair.reports, numbers_of(pair.frames))


def test_two_looks_are_apart(paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is believed only 10 ms after it was first seen."""
    os.unlink(paths.log)
    slept: list[float] = []
    monkeypatch.setattr(clock, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(clock, "sleep", slept.append)
    assert ["log-missing"] == _codes(_read(paths)[1])
    assert sum(slept) >= 0.010
    assert max(slept) <= 0.010


def test_damage_is_reported(paths: StorePaths) -> None:
    """Damage in the middle stops the reading with a report; a legacy log is named."""
    for number in range(4):
        save(paths, number)
    data = bytearray(Path(paths.log).read_bytes())
    data[HEADER_SIZE + 300] ^= 1
    Path(paths.log).write_bytes(data)
    entries, pair = _read(paths)
    assert ([0], ["log-corrupt"]) == (entries, _codes(pair))
    Path(paths.log).write_bytes(b"EHWL\x02" + bytes(100))
    assert ["log-legacy"] == _codes(_read(paths)[1])


def test_newer_formats_are_refused(paths: StorePaths) -> None:
    """Readers, too, do not guess what a newer log says."""
    for head in (b"EHWL\x03", b"CLAWMWAL\x05\0"):
        Path(paths.log).write_bytes(head + bytes(600))
        with pytest.raises(NewerFormatError):
            _read(paths)


def test_missing_files(paths: StorePaths) -> None:
    """No store is NoStoreError; a log that may not be read is an error, not an empty one."""
    os.unlink(paths.real)
    with pytest.raises(NoStoreError):
        _read(paths)
    write_file(paths, [], LogState())
    os.unlink(paths.log)
    os.symlink("/dev/null", paths.log)
    with pytest.raises(StorageError):
        _read(paths)


def test_file_without_checkpoint_id_has_no_log_to_miss(paths: StorePaths) -> None:
    """A file of the ancestor that never had a log of ours is read in silence."""
    os.unlink(paths.log)
    data = bytearray(Path(paths.real).read_bytes())
    data[support.ID_OFFSET : support.ID_OFFSET + 16] = NO_ID
    Path(paths.real).write_bytes(data)
    assert [] == _codes(_read(paths)[1])


def test_no_descriptor_leaks(paths: StorePaths) -> None:
    """Errors and retries close what they opened."""

    def broken(fd: int) -> Identity:
        raise ZeroDivisionError

    before = os.listdir("/proc/self/fd")
    with pytest.raises(ZeroDivisionError):
        open_pair(paths, broken)
    os.unlink(paths.log)
    _read(paths)
    Path(paths.log).write_bytes(b"EHWL\x07" + bytes(20))
    with pytest.raises(NewerFormatError):
        _read(paths)
    assert before == os.listdir("/proc/self/fd")


def test_reader_against_a_rotating_writer(paths: StorePaths) -> None:
    """While a writer appends, checkpoints and is killed, every look shows a gapless state that never goes back."""
    writers = 0
    reads = last = 0
    deadline = clock.monotonic() + 4
    while clock.monotonic() < deadline:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, paths.real, str(writers)], stdout=subprocess.PIPE,
                                  env={**os.environ, "PYTHONPATH": os.getcwd()})  # fmt: skip
        assert writer.stdout is not None
        assert b"ready\n" == writer.stdout.readline()
        writers += 1
        stop = clock.monotonic() + 0.4
        while clock.monotonic() < stop:
            entries, pair = _read(paths)
            assert entries == list(range(len(entries)))
            assert [] == pair.reports
            assert len(entries) >= last
            last, reads = len(entries), reads + 1
        writer.kill()
        writer.communicate()
    assert last > 50
    assert reads > 50
