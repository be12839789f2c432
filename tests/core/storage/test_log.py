"""The log writer: constant-time opening, groups, failures, keys, rotation."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawmem_core.errors import (
    ClosedError,
    DamagedError,
    InvalidInputError,
    NewerFormatError,
    NoStoreError,
    StorageError,
    UncertainWriteError,
)
from clawmem_core.storage import fs
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import UNSYNCED_LIMIT, LogWriter
from clawmem_core.storage.log_format import HEADER_SIZE, NO_ID, Key, LogHeader, LogState, encode_frame
from clawmem_core.storage.log_recovery import CheckpointFirst, create_log
from clawmem_core.storage.paths import StorePaths
from tests.core.storage import support
from tests.core.storage.support import Session, checkpoint, current, key_of, numbers_of, save, stage, stored, write_file
from tests.faults.simulated import DIRECTORY, SimulatedLayer, simulated


@pytest.fixture
def disk() -> Iterator[SimulatedLayer]:
    """A simulated file system under the storage shim."""
    with simulated() as layer:
        yield layer


@pytest.fixture
def paths(disk: SimulatedLayer) -> StorePaths:
    """A store without entries on the simulated file system."""
    return support.create(f"{DIRECTORY}/m.h5")


def test_saves_of_many_processes_are_there_in_order(paths: StorePaths) -> None:
    """Each process finds the end of the log and appends behind it."""
    for number in range(10):
        assert [] == save(paths, number, sync=number % 3 > 0).reports
    assert list(range(10)) == stored(paths)
    with Session(paths) as log:
        assert 10 == log.pending
        assert (10, 10, 10) == (log.state.seq, log.state.rows, log.state.next_record_id)


@pytest.mark.parametrize("entries", [1, 50, 1000])
def test_opening_reads_the_same_whatever_the_length(disk: SimulatedLayer, paths: StorePaths, entries: int) -> None:
    """A synced append reads at most 8 KiB of log and store file together."""
    with Session(paths) as log:
        for number in range(entries):
            stage(log, number, 1300)
            log.commit()
    disk.read_bytes, disk.counts = 0, {}
    save(paths, entries, size=1300)
    assert disk.read_bytes <= 8192
    assert 2 == disk.counts["fdatasync"]
    assert disk.counts["pread"] <= 6


def test_group_commit_is_one_write_and_one_sync(disk: SimulatedLayer, paths: StorePaths) -> None:
    """64 staged frames cost one pwrite and one fdatasync."""
    with Session(paths) as log:
        stage(log, 0)
        log.commit()
        disk.counts = {}
        for number in range(1, 65):
            stage(log, number)
        log.commit()
        assert (1, 1) == (disk.counts["pwrite"], disk.counts["fdatasync"])
    assert list(range(65)) == stored(paths)


def test_no_sync_syncs_only_beyond_the_limit(disk: SimulatedLayer, paths: StorePaths) -> None:
    """--no-sync leaves at most 256 KiB unsynced, so opening verifies no more than that."""
    disk.counts = {}
    size = 10_000
    for number in range(UNSYNCED_LIMIT // size - 1):
        save(paths, number, sync=False, size=size)
    assert 0 == disk.counts.get("fdatasync", 0)
    for number in range(100, 105):
        save(paths, number, sync=False, size=size)
    assert 1 == disk.counts["fdatasync"]
    disk.read_bytes = 0
    save(paths, 200, sync=False)
    assert disk.read_bytes < UNSYNCED_LIMIT + 3 * size


def test_a_stream_syncs_when_it_settles(disk: SimulatedLayer, paths: StorePaths) -> None:
    """With a larger limit nothing is synced in between; a small rest is left alone."""
    disk.counts = {}
    with Session(paths) as log:
        for number in range(60):
            stage(log, number, size=10_000)
            log.commit(sync=False, unsynced=1 << 20)
        assert 0 == disk.counts.get("fdatasync", 0)
        log.settle()
        assert 1 == disk.counts["fdatasync"]
        stage(log, 100)
        log.commit(sync=False, unsynced=1 << 20)
        log.settle()
        assert 1 == disk.counts["fdatasync"]
    assert 61 == len(stored(paths))


def test_failed_write_is_cut_back_and_poisons(disk: SimulatedLayer, paths: StorePaths) -> None:
    """After a write error the log is as before and the handle refuses everything; a new one goes on."""
    save(paths, 1)
    before = bytes(disk.names[paths.log].data)
    with Session(paths) as log:
        disk.space = 100
        stage(log, 2)
        with pytest.raises(StorageError, match="No space") as caught:
            log.commit()
        assert "io" == caught.value.code
        disk.space = None
        assert before == bytes(disk.names[paths.log].data)
        with pytest.raises(StorageError, match="open the store again"):
            stage(log, 3)
        with pytest.raises(StorageError, match="open the store again"):
            log.commit()
    save(paths, 4)
    assert [1, 4] == stored(paths)


def _failing(operation: str) -> Any:
    def before(called: str, path: str) -> None:
        if called == operation:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    return before


def test_failed_sync_is_uncertain(disk: SimulatedLayer, paths: StorePaths) -> None:
    """An error of fdatasync says that the entry may be stored, and the handle is dead."""
    with Session(paths) as log:
        stage(log, 1)
        disk.before = _failing("fdatasync")
        with pytest.raises(UncertainWriteError, match="may or may not"):
            log.commit()
        disk.before = lambda operation, path: None
        with pytest.raises(StorageError, match="open the store again"):
            log.sync()
    assert [1] == stored(paths)


def test_failed_write_that_cannot_be_cut_back_is_uncertain(disk: SimulatedLayer, paths: StorePaths) -> None:
    """A group whose first frame may be whole on disk is not called unsaved."""
    with Session(paths) as log:
        stage(log, 1)
        stage(log, 2)
        disk.space = 320
        disk.before = _failing("ftruncate")
        with pytest.raises(UncertainWriteError):
            log.commit()
    disk.before, disk.space = lambda operation, path: None, None
    assert [1] == stored(paths)


def test_interrupt_in_a_commit_poisons(disk: SimulatedLayer, paths: StorePaths) -> None:
    """Control-C between write and sync leaves a handle that refuses to go on."""
    with Session(paths) as log:
        stage(log, 1)

        def interrupt(operation: str, path: str) -> None:
            if operation == "fdatasync":
                raise KeyboardInterrupt

        disk.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            log.commit()
        disk.before = lambda operation, path: None
        with pytest.raises(StorageError, match="did not finish"):
            log.commit()


def test_foreign_change_of_the_log_is_noticed(disk: SimulatedLayer, paths: StorePaths) -> None:
    """A log somebody cut or extended behind the lock's back is not written to."""
    with Session(paths) as log:
        stage(log, 1)
        disk.names[paths.log].data.extend(b"x")
        with pytest.raises(StorageError, match="another program"):
            log.commit()


def test_a_short_write_is_completed(disk: SimulatedLayer, paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes 7 bytes at a time gets all of them, and EINTR is retried."""
    whole = disk.pwrite
    calls = []

    def seven(fd: int, data: bytes, offset: int) -> int:
        calls.append(1)
        if len(calls) % 5 == 0:
            raise InterruptedError
        return whole(fd, bytes(data)[:7], offset)

    monkeypatch.setattr(disk, "pwrite", seven)
    save(paths, 1, 2)
    assert [1, 2] == stored(paths)


def test_too_large_a_frame_is_refused_before_anything_is_written(
    paths: StorePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths have 32 bits; a frame beyond is refused and the log stays usable."""
    monkeypatch.setattr("clawmem_core.storage.log_format.LARGEST_FRAME", 1000)
    with Session(paths) as log:
        stage(log, 1, 2000)
        with pytest.raises(InvalidInputError):
            log.commit()
        log.rollback()
        stage(log, 2)
        log.commit()
    assert [2] == stored(paths)


def test_closed_writer_refuses(paths: StorePaths) -> None:
    """A closed handle raises ClosedError, also with the lock still held."""
    with Session(paths) as log:
        log.close()
        with pytest.raises(ClosedError):
            log.commit()
        log.close()


# ---------------------------------------------------------------- keys


def test_find_key_takes_the_newest(paths: StorePaths) -> None:
    """Keys are found from the log's end, staged ones first; other kinds and unknown keys are not."""
    with Session(paths) as log:
        for number, status in ((7, 1), (8, 1), (7, 2)):
            state = support.next_state(log)
            log.append(b"1", [Key(key_of(number), bytes(16), state.seq, "K", status)], state)
            log.commit()
        stage(log, 1, keyed=False)
        log.commit()
    with Session(paths) as log:
        found = log.find_key(key_of(7), "K")
        assert found is not None and (3, 2) == (found.record_id, found.status)
        assert log.find_key(key_of(8), "K") is not None
        assert log.find_key(key_of(7), "P") is None
        assert log.find_key(key_of(9), "K") is None
        stage(log, 9)
        assert log.find_key(key_of(9), "K") is not None
        log.rollback()
        assert log.find_key(key_of(9), "K") is None


def test_find_key_repairs_a_damaged_frame(disk: SimulatedLayer, paths: StorePaths) -> None:
    """A flipped byte on the way is damage: quarantined, reported, and the answer is about what is left."""
    for number in range(5):
        save(paths, number)
    disk.names[paths.log].data[HEADER_SIZE + 400] ^= 1
    with Session(paths) as log:
        assert [] == log.reports
        assert log.find_key(key_of(99), "K") is None
        assert log.find_key(key_of(4), "K") is None
        assert ["log-corrupt"] == [report.code for report in log.reports]
        assert log.find_key(key_of(0), "K") is not None
        assert log.state.next_record_id >= 5


def test_damage_found_with_frames_staged_is_an_error(disk: SimulatedLayer, paths: StorePaths) -> None:
    """What is staged counts on what is damaged, so nothing of it is written."""
    for number in range(3):
        save(paths, number)
    disk.names[paths.log].data[HEADER_SIZE + 50] ^= 1
    with Session(paths) as log:
        stage(log, 3, keyed=False)
        with pytest.raises(DamagedError):
            log.find_key(key_of(0), "K")


# ---------------------------------------------------------------- which log is it


def test_rejected_frame_is_damage(paths: StorePaths) -> None:
    """A frame whose payload the door refuses goes to quarantine with all behind it; its id is not given again."""
    for number in range(4):
        save(paths, number)
    with Session(paths) as log:
        log.reject(log.frames()[2])
        assert ["log-corrupt"] == [report.code for report in log.reports]
        assert [0, 1] == numbers_of(log.frames())
        assert log.state.next_record_id >= 4
    assert 1 == len(paths.quarantined())


def test_rotation_starts_a_fresh_log(paths: StorePaths) -> None:
    """After a checkpoint the log is empty, counts no pending entry and goes on with the counters."""
    save(paths, 1, 2)
    with Session(paths) as log:
        old = log.header.log_id
        checkpoint(paths, log)
        assert (0, HEADER_SIZE) == (log.pending, log.size)
        assert old != log.header.log_id
        stage(log, 3)
        log.commit()
        assert 1 == log.pending
    assert [1, 2, 3] == stored(paths)


def test_checkpoint_without_rotation_applies_nothing_twice(paths: StorePaths) -> None:
    """A crash between checkpoint and rotation: the next writer finishes the rotation and says so."""
    save(paths, 1, 2)
    with Session(paths) as log:
        checkpoint(paths, log, rotate=False)
    with Session(paths) as log:
        assert ["log-already-applied"] == [report.code for report in log.reports]
        assert 0 == log.pending
    assert [1, 2] == stored(paths)


def test_an_applied_log_put_back_applies_nothing(disk: SimulatedLayer, paths: StorePaths) -> None:
    """The old log copied over the fresh one is recognised by the mark."""
    save(paths, 1, 2)
    old = bytes(disk.names[paths.log].data)
    with Session(paths) as log:
        checkpoint(paths, log)
    disk.names[paths.log].data[:] = old
    assert [1, 2] == stored(paths)


def test_entries_behind_the_mark_are_carried_over(disk: SimulatedLayer, paths: StorePaths) -> None:
    """Frames appended to a log after the checkpoint took its part are kept by the rotation, keys included."""
    save(paths, 1, 2)
    with Session(paths) as log:
        state, log_id, size, chain = log.state, log.header.log_id, log.size, log.chain
    save(paths, 3)
    save(paths, 4)
    write_file(paths, [1, 2], state, log_id, size, chain)
    with Session(paths) as log:
        assert [3, 4] == numbers_of(log.frames())
        assert 2 == log.pending
        assert log.find_key(key_of(3), "K") is not None
        assert log.find_key(key_of(2), "K") is None


def test_failed_rotation_is_tried_again(disk: SimulatedLayer, paths: StorePaths) -> None:
    """If the fresh log cannot be made, the old one stays valid and the next append rotates first."""
    save(paths, 1)
    with Session(paths) as log:
        checkpoint(paths, log, rotate=False)
        disk.before = _failing("replace")
        with pytest.raises(StorageError):
            log.rotate(current(paths))
        with pytest.raises(StorageError):
            stage(log, 2)
        disk.before = lambda operation, path: None
        stage(log, 2)
        log.commit()
        assert 1 == log.pending
    assert [1, 2] == stored(paths)


def test_checkpoint_that_failed_after_the_rename(paths: StorePaths) -> None:
    """A process that goes on after such a checkpoint does not get the frames again that the file holds."""
    save(paths, 1, 2)
    with Session(paths) as log:
        checkpoint(paths, log, rotate=False)
        stage(log, 3)
        log.commit()
        assert [3] == numbers_of(log.frames())
        assert ["log-already-applied"] == [report.code for report in log.reports]
        assert 1 == log.pending
        checkpoint(paths, log)
    assert [1, 2, 3] == stored(paths)


def _mixed_up(disk: SimulatedLayer, paths: StorePaths, code: str) -> None:
    """Make the log be what the code word says."""
    log = disk.names[paths.log]
    if code == "log-missing":
        del disk.names[paths.log]
    elif code == "log-empty":
        log.data[:] = bytes(600)
    elif code == "log-header-bad":
        log.data[40] ^= 1
    elif code == "log-foreign":
        log.data[16:32] = b"another store id"
        log.data[:HEADER_SIZE] = _sealed(log.data)
        log.data[48] ^= 1
        log.data[:HEADER_SIZE] = _sealed(log.data)
    elif code == "log-other-checkpoint":
        write_file(paths, [], LogState())
    elif code == "log-mark-broken":
        header = LogHeader.unpack(bytes(log.data[:HEADER_SIZE]), "")
        assert header is not None
        write_file(paths, [], LogState(), header.log_id, len(log.data), 12345)


def _sealed(data: bytearray) -> bytes:
    from zlib import crc32

    return bytes(data[: HEADER_SIZE - 4]) + crc32(bytes(data[: HEADER_SIZE - 4])).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("code", "kept", "next_id"),
    [("log-missing", False, 0), ("log-empty", False, 0), ("log-header-bad", True, 3), ("log-foreign", True, 0),
     ("log-other-checkpoint", True, 3), ("log-mark-broken", True, 3)],
)  # fmt: skip
def test_which_log_is_it(disk: SimulatedLayer, paths: StorePaths, code: str, kept: bool, next_id: int) -> None:
    """Every row of the table: what is reported and kept, and that no id of the same store is given twice."""
    save(paths, 0, 1, 2)
    _mixed_up(disk, paths, code)
    before = bytes(disk.names[paths.log].data) if kept else b""
    with Session(paths) as log:
        assert [code] == [report.code for report in log.reports]
        assert [] == log.frames()
        assert next_id <= log.state.next_record_id <= next_id + 40
        assert 0 == log.pending
    names = paths.quarantined()
    assert [before] * kept == [bytes(disk.names[name].data) for name in names]
    assert [] == save(paths, 7).reports
    assert [7] == stored(paths)


@pytest.mark.parametrize("size", range(9))
def test_a_log_of_a_few_bytes_is_empty(disk: SimulatedLayer, paths: StorePaths, size: int) -> None:
    """0 to 8 bytes, as the ancestor leaves them after a crash, are an empty log."""
    disk.names[paths.log].data[:] = b"CLAWMWAL"[:size]
    save(paths, 1)
    assert [1] == stored(paths)
    assert [] == paths.quarantined()


@pytest.mark.parametrize("head", [b"EHWL\x03", b"EHWL\x04", b"EHWL\xff", b"CLAWMWAL\x05\0"])
def test_newer_logs_stay_untouched(disk: SimulatedLayer, paths: StorePaths, head: bytes) -> None:
    """A log of a newer version, ours or the ancestor's, ends the call with exit 14 and is left as it is."""
    data = head + bytes(700)
    disk.names[paths.log].data[:] = data
    with pytest.raises(NewerFormatError), Session(paths):
        pass
    assert data == bytes(disk.names[paths.log].data)
    assert [] == paths.quarantined()


def test_legacy_log_wants_a_checkpoint(disk: SimulatedLayer, paths: StorePaths) -> None:
    """EHWL 1 and 2 are converted by a checkpoint, as is a file that never had a checkpoint id."""
    disk.names[paths.log].data[:] = b"EHWL\x02" + bytes(40)
    with pytest.raises(CheckpointFirst), Session(paths):
        pass
    create_log(paths, current(paths))
    disk.names[paths.real].data[64:80] = NO_ID
    with pytest.raises(CheckpointFirst), Session(paths):
        pass


def test_frame_of_a_newer_type(disk: SimulatedLayer, paths: StorePaths) -> None:
    """An unknown frame type ends the call with exit 14, untouched, unless its flag allows to skip it."""
    save(paths, 1)
    with Session(paths) as log:
        state, size, chain, salt = log.state, log.size, log.chain, log.header.salt
    frame = {"prev_chain": chain, "sync_off": HEADER_SIZE, "prev_key_off": state.last_key_off, "type": 9}
    log_file = disk.names[paths.log].data
    log_file.extend(encode_frame(salt, b"new", [], state, flags=1, **frame))  # type: ignore[arg-type]
    save(paths, 2)
    assert [1, 2] == stored(paths)
    log_file[size:] = encode_frame(salt, b"new", [], state, **frame)  # type: ignore[arg-type]
    before = bytes(log_file)
    with pytest.raises(NewerFormatError, match="frame type 9"):
        save(paths, 3)
    assert before == bytes(log_file)


def test_missing_store_file(disk: SimulatedLayer, paths: StorePaths) -> None:
    """A log without its store file is not written to."""
    del disk.names[paths.real]
    with pytest.raises(NoStoreError):
        save(paths, 1)


def test_state_flags_stay_set(paths: StorePaths) -> None:
    """A pending purge is remembered by every later frame of the log."""
    with Session(paths) as log:
        log.append(b"1", [], support.next_state(log), state_flags=1)
        log.rollback()
        assert 0 == log.state_flags
        log.append(b"1", [], support.next_state(log), state_flags=1)
        log.commit()
    save(paths, 2)
    with Session(paths) as log:
        assert 1 == log.state_flags
        checkpoint(paths, log)
        assert 0 == log.state_flags


def test_new_log_has_the_mode_of_the_store(tmp_path: Path) -> None:
    """A fresh log takes the mode of the HDF5 file, whatever the umask; without one it is private."""
    paths = support.create(str(tmp_path / "m.h5"))
    assert 0o600 == os.stat(paths.log).st_mode & 0o777
    os.chmod(paths.real, 0o664)
    create_log(paths, current(paths))
    assert 0o664 == os.stat(paths.log).st_mode & 0o777


def test_log_is_not_opened_through_a_symlink(tmp_path: Path) -> None:
    """A symlink in the log's place is an error, not a way to write elsewhere."""
    paths = support.create(str(tmp_path / "m.h5"))
    os.rename(paths.log, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", paths.log)
    with pytest.raises(StorageError):
        save(paths, 1)


def test_forked_child_cannot_append(tmp_path: Path) -> None:
    """A child that inherits an open writer is refused and does not disturb its parent."""
    paths = support.create(str(tmp_path / "m.h5"))
    with Session(paths) as log:
        stage(log, 1)
        child = os.fork()
        if not child:
            try:
                log.commit()
            except Exception as error:
                os._exit(7 if type(error).__name__ == "ForkedError" else 8)
            os._exit(9)
        assert 7 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.commit()
    assert [1] == stored(paths)


def test_nothing_heavy_is_imported() -> None:
    """A one-shot save loads the storage core without any of the slow modules."""
    code = (
        "import sys; before = set(sys.modules);"
        "import clawmem_core.storage.log, clawmem_core.storage.keys, clawmem_core.storage.pair;"
        "print(*sorted((set(sys.modules) - before) & {'re', 'json', 'typing', 'enum', 'collections', 'functools',"
        "'numpy', 'h5py', 'contextlib', 'dataclasses', 'pathlib', 'hashlib', 'array', 'inspect', 'mmap'}))"
    )
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {os.getcwd()!r}); {code}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "" == found.stdout.strip()


def test_writer_needs_the_lock(paths: StorePaths) -> None:
    """A released lock does not open a log."""
    lock = StoreLock.acquire(paths)
    lock.release()
    with pytest.raises(ClosedError):
        LogWriter.open(paths, lock, support.identity_of)
    assert fs.exists(paths.lock)
