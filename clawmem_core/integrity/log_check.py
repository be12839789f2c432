"""What lies in the write-ahead log beyond the signed checkpoint.

Invariants: the log is only read; every byte of it is accounted for: its frames hold and belong to this checkpoint, or
there is a finding. A signature does not cover the log, so the most that can be said of a whole tail is how long it is.
"""

from __future__ import annotations

from clawmem_core.errors import NewerFormatError
from clawmem_core.storage import fs, log_scan, ops
from clawmem_core.storage.log_format import HEADER_SIZE, NO_ID, SIGNED, Identity, LogHeader, LogState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from clawmem_core.integrity.content import Findings
    from clawmem_core.storage.log_format import Frame

_MESSAGES: Final = {
    "log-torn": "the log ends in the middle of an entry",
    "log-unsynced-lost": "the log lost entries that were never synced",
    "log-corrupt": "the log is damaged in the middle",
}
_FROM_FILE: Final = ("h5_id_offset", "generation", "dim", "wal_max_entries", "base_rows", "agent_id")
_IDS: Final = (ops.DELETE, ops.UNDELETE, ops.PURGE)


def identity_of(settings: dict[str, str], checkpoint_id: bytes, state: bytes) -> Identity | None:
    """What the HDF5 file says of the log it belongs to, or None where that cannot be read.

    `settings`: as in a manifest; `state`: 104 bytes of /meta/log_state.
    """
    try:
        store_id = bytes.fromhex(settings.get("store_id", "").removeprefix("text:"))
        mark = bytes.fromhex(settings.get("wal_applied_log", "").removeprefix("text:"))
        numbers = (int(settings[name].removeprefix("int:")) for name in ("wal_applied_len", "wal_applied_crc"))
        length, crc = numbers
    except (ValueError, KeyError):
        return None
    if len(store_id) != 16 or len(mark) != 16:
        return None
    return Identity(
        store_id=store_id, checkpoint_id=checkpoint_id, h5_id_offset=0, state=LogState.unpack(state),
        mark_log_id=mark, mark_length=length, mark_crc=crc,
    )  # fmt: skip


def check_log(fd: int | None, identity: Identity, findings: Findings, *, signed: bool) -> int:
    """Entries of the log that no checkpoint holds. `fd`: the log, None where there is none."""
    size = fs.fstat(fd).st_size if fd is not None else 0
    if fd is None or size == 0:
        return 0
    path = fs.path_of(fd)
    try:
        header = LogHeader.unpack(fs.pread(fd, HEADER_SIZE, 0), path)
        if header is None:
            if log_scan.kind_without_header(fd, fs.pread(fd, HEADER_SIZE, 0), size) != log_scan.EMPTY:
                findings.add("log-damaged", "the log has no valid header", file=path)
            return 0
        kind = log_scan.kind_of_log(header, identity)
        if kind == log_scan.FOREIGN:
            findings.add("log-foreign", "the log belongs to another store", file=path)
            return 0
        if kind == log_scan.OTHER:
            findings.add("log-other-checkpoint", "the log belongs to another checkpoint of this store", file=path)
            return 0
        if signed and not header.flags & SIGNED and kind == log_scan.BASE:
            findings.add("log-flags", "the log says that the store is unsigned", file=path)
        found = log_scan.replay(fd, header, identity if kind == log_scan.APPLIED else None, size)
        if not found.found:
            findings.add("log-mark", "the log has not the entries that the checkpoint holds", file=path)
            return 0
        if found.offset < size:
            tail = log_scan.examine_tail(fd, header.salt, found.offset, size, found.state)
            findings.add(tail.code, _MESSAGES[tail.code], file=path, offset=found.offset, bytes=tail.lost)
        return _entries(found.frames, findings, path)
    except NewerFormatError as error:
        findings.add("log-newer", error.message, file=path)
        return 0


def check_header(fd: int, identity: Identity, findings: Findings) -> None:
    """Does a log of this checkpoint start from the file's counters and settings? Everybody believes its header.

    `identity`: all that the file says of itself. Ids may begin later: those of lost entries are not given again.
    """
    path = fs.path_of(fd)
    try:
        header = LogHeader.unpack(fs.pread(fd, HEADER_SIZE, 0), path)
    except NewerFormatError:
        return  # check_log says so
    if header is None or log_scan.kind_of_log(header, identity) != log_scan.BASE:
        return
    expected = LogHeader.after(identity, header.log_id, header.created_us)
    state = header.state.copy()
    for name in ("next_record_id", "next_entity_id"):
        if getattr(state, name) > getattr(expected.state, name):
            setattr(state, name, getattr(expected.state, name))
    same = all(getattr(header, name) == getattr(expected, name) for name in _FROM_FILE)
    if not same or state != expected.state or (header.flags ^ expected.flags) & ~SIGNED:
        findings.add("log-header", "the log's header has not the counters and settings of the file", file=path)


def _entries(frames: list[Frame], findings: Findings, path: str) -> int:
    """Operations in the frames, audit lines aside; at least one a frame."""
    total = 0
    for frame in frames:
        count = 0
        try:
            for op, _, value in ops.decode(frame.payload):
                count += _weight(op, value)
        except ops.BadPayload as error:
            findings.add(
                "log-undecodable", f"an entry of the log cannot be read: {error}", file=path, offset=frame.offset
            )
        total += max(count, 1)
    return total


def _weight(op: int, value: Any) -> int:
    return 0 if op == ops.AUDIT else len(value) if op in _IDS else 1


def belongs(fd: int | None, identity: Identity) -> bool:
    """Whether a log, if there is one, goes with this HDF5 file; False may mean that a checkpoint came in between."""
    if fd is None:
        return True
    try:
        header = LogHeader.unpack(fs.pread(fd, HEADER_SIZE, 0), fs.path_of(fd))
    except NewerFormatError:
        return True
    kinds = (log_scan.BASE, log_scan.APPLIED)
    return header is None or identity.checkpoint_id == NO_ID or log_scan.kind_of_log(header, identity) in kinds
