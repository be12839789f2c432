"""Making a log that can be appended to: a fresh one, a rotated one, or what is left of a damaged one.

Everything here runs under the store's lock. Invariants: the log's name always leads to a complete log (a new one is
written aside, synced and renamed, docs/format.md § 3); bytes that are not understood are quarantined first; ids that
may have been acknowledged in them are never given again; what a newer version wrote stays untouched.
"""

from __future__ import annotations

from clawmem_core import clock
from clawmem_core.errors import NoStoreError
from clawmem_core.storage import fs, ops, quarantine
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.log_format import (
    HEADER_SIZE,
    NO_ID,
    LogHeader,
    encode_frame,
)
from clawmem_core.storage.log_reports import Report
from clawmem_core.storage.log_scan import (
    APPLIED,
    BASE,
    EMPTY,
    FOREIGN,
    LEGACY,
    Tail,
    examine_tail,
    kind_of_log,
    kind_without_header,
    replay,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from clawmem_core.storage.log_format import Frame, Identity, LogState
    from clawmem_core.storage.log_scan import Replay
    from clawmem_core.storage.paths import StorePaths

    FindIdentity = Callable[[int], Identity]


class CheckpointFirst(Exception):
    """The store file or its log is of an older kind: a checkpoint must convert it before anything can be appended."""


def create_log(paths: StorePaths, identity: Identity) -> LogHeader:
    """Put a fresh, empty log beside the HDF5 file `identity` describes, in place of whatever log is there.

    For a new store, and after a checkpoint that took in a legacy log. Raises StorageError.
    """
    return write_log(paths, LogHeader.after(identity, clock.random_bytes(16), clock.now_us()), ())


def write_log(paths: StorePaths, header: LogHeader, frames: Iterable[Frame], least: Tail | None = None) -> LogHeader:
    """Replace the log by one with this header and these frames, encoded anew; returns the header.

    `least`: its next ids are reserved by one more frame if they are beyond those of the frames. Durable on return; if
    the process dies before, the next writer makes it durable, which is what the frames' `sync_off` tells it to do.
    """
    fs.sync_directory(paths.directory)  # the HDF5 file it goes with must not be the one that is lost
    with AtomicFile(paths.log, fs.stat(paths.real)) as file:
        file.write(header.pack())
        chain, state = header.crc, header.state
        last_key = 0
        for frame in frames:
            state = frame.state.copy()
            previous, last_key = last_key, file.size if frame.n_keys else last_key
            state.last_key_off = last_key
            data = encode_frame(
                header.salt, frame.payload, frame.keys, state, prev_chain=chain, sync_off=HEADER_SIZE,
                prev_key_off=previous, type=frame.type, flags=frame.flags, state_flags=frame.state_flags,
            )  # fmt: skip
            file.write(data)
            chain = int.from_bytes(data[-8:-4], "little")
        raised = None if least is None else _raised(state, least)
        if raised is not None:
            raised.seq += 1
            payload = ops.ids(ops.RESERVE, [raised.next_record_id])
            file.write(
                encode_frame(
                    header.salt, payload, (), raised, prev_chain=chain, sync_off=HEADER_SIZE, prev_key_off=last_key
                )
            )
        file.commit()
    return header


def _raised(state: LogState, least: Tail) -> LogState | None:
    """The counters with next ids at least those of `least`, or None if they already are."""
    if state.next_record_id >= least.next_record_id and state.next_entity_id >= least.next_entity_id:
        return None
    state = state.copy()
    state.next_record_id = max(state.next_record_id, least.next_record_id)
    state.next_entity_id = max(state.next_entity_id, least.next_entity_id)
    return state


def is_base(h5_fd: int, header: LogHeader) -> bool:
    """Whether the log continues the HDF5 file open at `h5_fd`: the 16 bytes at the recorded offset are its base id."""
    wanted = header.base_checkpoint_id
    return wanted != NO_ID and fs.pread(h5_fd, len(wanted), header.h5_id_offset) == wanted


def recover(paths: StorePaths, find_identity: FindIdentity, bad_at: int | None = None) -> list[Report]:
    """Bring the log into a state that a writer can append to, by the tables of docs/format.md § 3.

    `find_identity` reads the HDF5 file open at a descriptor; it is not asked where the log continues the file.
    `bad_at`: offset of a frame whose checksum holds and whose payload was refused, which is damage like any other.
    Returns what was found and done. Raises CheckpointFirst, NoStoreError, StorageError, NewerFormatError (everything
    is left untouched then).
    """
    h5_fd = fs.open_existing(paths.real)
    if h5_fd is None:
        raise NoStoreError(path=paths.given)
    try:
        fd = fs.open_existing(paths.log, fs.RDWR | fs.NOFOLLOW)
        if fd is None:
            create_log(paths, _checkpointed(find_identity(h5_fd)))
            return [Report("log-missing")]
        try:
            return _recover_open(paths, fd, h5_fd, find_identity, bad_at)
        finally:
            fs.close(fd)
    finally:
        fs.close(h5_fd)


def _checkpointed(identity: Identity) -> Identity:
    if identity.checkpoint_id == NO_ID:
        raise CheckpointFirst("the store file carries no checkpoint id")
    return identity


def _recover_open(
    paths: StorePaths, fd: int, h5_fd: int, find_identity: FindIdentity, bad_at: int | None
) -> list[Report]:
    size = fs.fstat(fd).st_size
    head = fs.pread(fd, HEADER_SIZE, 0)
    header = LogHeader.unpack(head, paths.log)
    if header is None:
        kind = kind_without_header(fd, head, size)
        if kind == LEGACY:
            raise CheckpointFirst("the log is of the ancestor's kind (EHWL 1 or 2)")
        identity = _checkpointed(find_identity(h5_fd))
        if kind == EMPTY:
            create_log(paths, identity)
            return [Report("log-empty")]
        return [_start_over(paths, fd, size, head[32:40], identity, "log-header-bad", identity.state)]
    if is_base(h5_fd, header):
        return _recover_base(paths, fd, header, size, bad_at)
    identity = _checkpointed(find_identity(h5_fd))
    kind = kind_of_log(header, identity)
    if kind == BASE:  # the recorded offset is wrong: the same checkpoint, laid out anew
        return _carry_over(paths, fd, header, replay(fd, header, None, size, bad_at), identity, size, bad_at)
    if kind == APPLIED:
        found = replay(fd, header, identity, size, bad_at)
        if found.found:
            reports = _carry_over(paths, fd, header, found, identity, size, bad_at)
            return [*reports, Report("log-already-applied")]
        code = "log-mark-broken"
    else:
        code = "log-foreign" if kind == FOREIGN else "log-other-checkpoint"
    return [_start_over(paths, fd, size, header.salt, identity, code, header.state)]


def _recover_base(paths: StorePaths, fd: int, header: LogHeader, size: int, bad_at: int | None) -> list[Report]:
    """Cut what is bad off a log that continues the file."""
    found = replay(fd, header, None, size, bad_at)
    tail = _tail(fd, header, found, size, bad_at)
    if tail is None:
        return []
    kept = ""
    if tail.keep:
        kept = quarantine.keep(paths, fd)
        write_log(paths, header.renewed(clock.random_bytes(16), header.state), found.frames, tail)
    else:
        fs.truncate(fd, found.offset)
        fs.fsync(fd)
    return [Report(tail.code, kept, offset=found.offset, lost_bytes=tail.lost)]


def _carry_over(
    paths: StorePaths, fd: int, header: LogHeader, found: Replay, identity: Identity, size: int, bad_at: int | None
) -> list[Report]:
    """Replace a log by one on top of the file as it is now, with the entries the file does not hold yet."""
    tail = _tail(fd, header, found, size, bad_at)
    kept = quarantine.keep(paths, fd) if tail is not None and tail.keep else ""
    fresh = LogHeader.after(identity, clock.random_bytes(16), clock.now_us())
    write_log(paths, fresh, found.frames, tail if kept else None)
    return [] if tail is None else [Report(tail.code, kept, offset=found.offset, lost_bytes=tail.lost)]


def _tail(fd: int, header: LogHeader, found: Replay, size: int, bad_at: int | None) -> Tail | None:
    if found.offset == size:
        return None
    tail = examine_tail(fd, header.salt, found.offset, size, found.state)
    if found.offset == bad_at:
        tail.code, tail.keep = "log-corrupt", True
    return tail


def _start_over(
    paths: StorePaths, fd: int, size: int, salt: bytes, identity: Identity, code: str, state: LogState
) -> Report:
    """Quarantine a log none of which applies; start a fresh one beyond every id the old one may have given.

    `state`: counters the old log started from. A foreign log says nothing about this store's ids.
    """
    kept = quarantine.keep(paths, fd)
    fresh = LogHeader.after(identity, clock.random_bytes(16), clock.now_us())
    if code != "log-foreign":
        least = examine_tail(fd, salt, min(HEADER_SIZE, size), size, state)
        fresh = fresh.renewed(fresh.log_id, _raised(fresh.state, least) or fresh.state)
    write_log(paths, fresh, ())
    return Report(code, kept)
