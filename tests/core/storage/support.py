"""A stand-in for the HDF5 file: 16 bytes of checkpoint id at a known offset, then what it says of itself as JSON."""

from __future__ import annotations

import json

from clawmem_core import clock
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.log_format import FLOAT16, Frame, Identity, Key, LogState
from clawmem_core.storage.log_recovery import create_log
from clawmem_core.storage.paths import StorePaths

ID_OFFSET = 64
STORE_ID = b"store-id-16bytes"


def key_of(number: int) -> bytes:
    """A look-up key for entry `number`."""
    return number.to_bytes(4, "big") * 4


def identity_of(fd: int) -> Identity:
    """The identity of a stand-in file."""
    text = fs.pread(fd, fs.fstat(fd).st_size, 0)[ID_OFFSET + 16 :]
    fields = json.loads(text)
    return Identity(
        store_id=STORE_ID,
        checkpoint_id=fs.pread(fd, 16, ID_OFFSET),
        h5_id_offset=ID_OFFSET,
        state=LogState.unpack(bytes.fromhex(fields["state"])),
        flags=FLOAT16,
        dim=4,
        agent_id="tester",
        mark_log_id=bytes.fromhex(fields["log_id"]),
        mark_length=fields["length"],
        mark_crc=fields["crc"],
    )


def entries_of(fd: int) -> list[int]:
    """The entries a stand-in file holds."""
    found: list[int] = json.loads(fs.pread(fd, fs.fstat(fd).st_size, 0)[ID_OFFSET + 16 :])["entries"]
    return found


def write_file(
    paths: StorePaths, entries: list[int], state: LogState, log_id: bytes = bytes(16), length: int = 0, crc: int = 0
) -> None:
    """Put a stand-in file in place, as a checkpoint does."""
    fields = {"entries": entries, "state": state.pack().hex(), "log_id": log_id.hex(), "length": length, "crc": crc}
    with AtomicFile(paths.real, fs.stat(paths.real)) as file:
        file.write(bytes(ID_OFFSET) + clock.random_bytes(16) + json.dumps(fields).encode())
        file.commit()


def current(paths: StorePaths) -> Identity:
    """The identity of the file in place."""
    fd = fs.open_file(paths.real)
    try:
        return identity_of(fd)
    finally:
        fs.close(fd)


def create(path: str) -> StorePaths:
    """A store without entries."""
    paths = StorePaths(path)
    write_file(paths, [], LogState())
    create_log(paths, current(paths))
    return paths


def payload_of(number: int, size: int = 20) -> bytes:
    """A frame's payload that says which entry it is."""
    return str(number).encode().ljust(size, b".")


def number_of(frame: Frame) -> int | None:
    """The entry a frame holds; None for a frame that recovery wrote."""
    text = frame.payload.rstrip(b".")
    return int(text) if text.isdigit() else None


def numbers_of(frames: list[Frame]) -> list[int]:
    """The entries of frames, in order."""
    return [number for number in map(number_of, frames) if number is not None]


def next_state(writer: LogWriter) -> LogState:
    """Counters after one more record."""
    state = writer.state.copy()
    state.seq += 1
    state.rows += 1
    state.next_record_id += 1
    return state


def stage(writer: LogWriter, number: int, size: int = 20, keyed: bool = True) -> None:
    """Stage one entry."""
    keys = [Key(key_of(number), bytes(16), number, "K", 1)] if keyed else []
    writer.append(payload_of(number, size), keys, next_state(writer))


class Session:
    """A locked writer, as one process has it."""

    def __init__(self, paths: StorePaths) -> None:
        self.paths = paths
        self.lock = StoreLock.acquire(paths)
        try:
            self.log = LogWriter.open(paths, self.lock, identity_of)
        except BaseException:
            self.lock.release()
            raise

    def __enter__(self) -> LogWriter:
        return self.log

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self.lock.release()


def save(paths: StorePaths, *numbers: int, sync: bool = True, size: int = 20) -> LogWriter:
    """One process that appends these entries in one group."""
    with Session(paths) as log:
        for number in numbers:
            stage(log, number, size)
        log.commit(sync)
    return log


def checkpoint(paths: StorePaths, log: LogWriter, rotate: bool = True) -> None:
    """Move the log's entries into the file."""
    fd = fs.open_file(paths.real)
    try:
        entries = entries_of(fd) + numbers_of(log.frames())
    finally:
        fs.close(fd)
    log.sync()
    write_file(paths, entries, log.state, log.header.log_id, log.size, log.chain)
    if rotate:
        log.rotate(current(paths))


def stored(paths: StorePaths) -> list[int]:
    """Every entry of file and log, as the next writer finds them."""
    with Session(paths) as log:
        fd = fs.open_file(paths.real)
        try:
            return entries_of(fd) + numbers_of(log.frames())
        finally:
            fs.close(fd)
