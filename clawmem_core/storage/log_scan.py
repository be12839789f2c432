"""Reading a log forward: frames, the match with an HDF5 file, and what the first bad byte means.

Invariants: nothing is changed here; a frame is handed out only if its checksum holds and it continues the chain that
starts at the header, so a lost, doubled, moved or altered frame ends the reading; memory is bounded by the bytes that
are there. The tables of docs/format.md § 3 are `match` and `examine_tail`.
"""

from __future__ import annotations

from clawmem_core.errors import NewerFormatError
from clawmem_core.storage import fs
from clawmem_core.storage.log_format import (
    END_MARK,
    HEAD_SIZE,
    HEADER_SIZE,
    IGNORABLE,
    LEGACY_MAGIC,
    NO_ID,
    OPERATIONS,
    OVERHEAD,
    frame_length,
    parse_frame,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawmem_core.storage.log_format import Frame, Identity, LogHeader, LogState

_STEP = 1 << 20
_BACKWARD_STEP = 1 << 16
_FIRST_GUESS = 4096  # bytes a frame is expected to have at most when it is read backwards
_LEAST_ENTRY = 32  # bytes of the log that a record or an entity takes at least

EMPTY, LEGACY, BAD_HEADER, FOREIGN, OTHER, BASE, APPLIED = range(7)


class FrameReader:
    """The frames of an open log in order, from `start` up to `size`.

    `offset`: end of the last good frame; less than `size` after the iteration means that a bad byte is there. `chain`:
    checksum of that frame; None at the start accepts any predecessor. Raises NewerFormatError for a whole frame of an
    unknown type that may not be skipped, StorageError.
    """

    __slots__ = ("_base", "_data", "chain", "fd", "offset", "salt", "seq", "size")

    def __init__(self, fd: int, salt: bytes, size: int, start: int, chain: int | None, seq: int = 0) -> None:
        self.fd, self.salt, self.size, self.offset, self.chain, self.seq = fd, salt, size, start, chain, seq
        self._data, self._base = b"", start

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self._next()) is not None:
            self.offset, self.chain, self.seq = frame.end, frame.chain, frame.seq
            if understood(frame, fs.path_of(self.fd)):
                yield frame

    def _next(self) -> Frame | None:
        left = self.size - self.offset
        if left < OVERHEAD:
            return None
        self._fill(HEAD_SIZE)
        length = frame_length(self._data, self.offset - self._base, self.salt)
        if not length or length > left:
            return None
        self._fill(length)
        frame = parse_frame(self._data, self.offset - self._base, self.salt, self.offset)
        if frame is None or frame.seq < self.seq or (self.chain is not None and frame.prev_chain != self.chain):
            return None
        return frame

    def _fill(self, length: int) -> None:
        """Have `length` bytes from the current offset at hand, if the file still has them."""
        if self.offset + length > self._base + len(self._data):
            self._data = fs.pread(self.fd, min(max(length, _STEP), self.size - self.offset), self.offset)
            self._base = self.offset


def understood(frame: Frame, path: str) -> bool:
    """Whether a frame's payload is operations; False for one to skip, NewerFormatError for one that may not be."""
    if frame.type == OPERATIONS:
        return True
    if frame.flags & IGNORABLE:
        return False
    raise NewerFormatError(path=path, found=f"frame type {frame.type}", supported=f"type {OPERATIONS}")


def kind_without_header(fd: int, head: bytes, size: int) -> int:
    """What a file is that has no header of ours: EMPTY, LEGACY or BAD_HEADER. `head`: its first 512 bytes."""
    if size <= 8 or _zero(fd, 0, size):
        return EMPTY
    return LEGACY if head[:4] == LEGACY_MAGIC and head[4] in (1, 2) else BAD_HEADER


def kind_of_log(header: LogHeader, identity: Identity) -> int:
    """Which log this is (table "which log is it").

    BASE: it continues this HDF5 file. APPLIED: the file's mark names it; whether the marked frame exists is for
    `replay` to say. FOREIGN, OTHER: it does not belong to the file.
    """
    if header.store_id != identity.store_id:
        return FOREIGN
    if header.base_checkpoint_id == identity.checkpoint_id != NO_ID:
        return BASE
    if header.log_id == identity.mark_log_id != NO_ID:
        return APPLIED
    return OTHER


class Replay:
    """What a log adds to an HDF5 file.

    `frames`: those to apply, in order. `state`: counters after them. `offset`: first byte that is no good frame (the
    size if all are). `found`: False if the file's mark names a frame this log does not have; nothing applies then.
    """

    __slots__ = ("chain", "found", "frames", "offset", "state")

    def __init__(self, state: LogState) -> None:
        self.frames: list[Frame] = []
        self.state = state
        self.offset = HEADER_SIZE
        self.chain: int | None = None
        self.found = True


def replay(fd: int, header: LogHeader, identity: Identity | None, size: int, bad_at: int | None = None) -> Replay:
    """Read a whole log. `identity`: of the HDF5 file whose mark the log must hold, None for a log based on the file.

    `bad_at`: offset of a frame known to be bad for another reason than its bytes.
    """
    if identity is None:
        result = Replay(header.state)
        marked = HEADER_SIZE
    else:
        result = Replay(identity.state)
        marked = identity.mark_length
        result.found = marked == HEADER_SIZE and identity.mark_crc == header.crc
    end = size if bad_at is None else min(size, bad_at)
    reader = FrameReader(fd, header.salt, end, HEADER_SIZE, header.crc, header.state.seq)
    for frame in reader:
        if frame.offset >= marked:
            result.frames.append(frame)
        elif identity is not None and frame.end == marked:
            result.found = frame.chain == identity.mark_crc
    if reader.offset < marked:
        result.found = False
    if not result.found:
        result.frames.clear()
    elif result.frames:
        result.state = result.frames[-1].state
    result.offset, result.chain = reader.offset, reader.chain
    return result


class Tail:
    """What lies behind the last good frame.

    `code`: log-torn, log-unsynced-lost or log-corrupt. `keep`: whether the bytes must be kept in quarantine before they
    are cut. `next_record_id`, `next_entity_id`: least ids that no acknowledged entry of those bytes can have.
    """

    __slots__ = ("code", "keep", "lost", "next_entity_id", "next_record_id")

    def __init__(self, code: str, keep: bool, lost: int, next_record_id: int, next_entity_id: int) -> None:
        self.code, self.keep, self.lost = code, keep, lost
        self.next_record_id, self.next_entity_id = next_record_id, next_entity_id


def examine_tail(fd: int, salt: bytes, offset: int, size: int, state: LogState) -> Tail:
    """Judge the bytes from the first bad one at `offset` (table "first bad offset"); `state`: counters before them."""
    covered = latest = 0
    next_record_id, next_entity_id = state.next_record_id, state.next_entity_id
    for frame in whole_frames(fd, salt, offset, size):
        covered += frame.end - frame.offset
        latest = max(latest, frame.sync_off)
        next_record_id = max(next_record_id, frame.state.next_record_id)
        next_entity_id = max(next_entity_id, frame.state.next_entity_id)
    lost = size - offset
    if not covered and (cut_short(fd, salt, offset, size) or _zero(fd, offset, size)):
        return Tail("log-torn", False, lost, next_record_id, next_entity_id)
    code = "log-torn" if not covered else "log-unsynced-lost" if latest <= offset else "log-corrupt"
    room = (lost - covered) // _LEAST_ENTRY
    return Tail(code, True, lost, next_record_id + room, next_entity_id + room)


def whole_frames(fd: int, salt: bytes, start: int, size: int) -> Iterator[Frame]:
    """Every frame from `start` on that is whole by itself, wherever it begins."""
    while size - start >= OVERHEAD:
        frame = read_frame(fd, salt, start, size)
        if frame is not None:
            yield frame
            start = frame.end
            continue
        start += 1
        while size - start >= OVERHEAD:
            data = fs.pread(fd, min(_STEP, size - start), start)
            at = data.find(salt)
            if at >= 0:
                start += at
                break
            if len(data) < _STEP:
                return
            start += len(data) - len(salt) + 1


def read_frame(fd: int, salt: bytes, offset: int, size: int) -> Frame | None:
    """The frame at `offset`, if it is whole."""
    if not HEADER_SIZE <= offset <= size - OVERHEAD:
        return None
    length = frame_length(fs.pread(fd, HEAD_SIZE, offset), 0, salt)
    if not length or length > size - offset:
        return None
    return parse_frame(fs.pread(fd, length, offset), 0, salt, offset)


class BackwardReader:
    """Frames at descending offsets, read in pieces of 64 KiB."""

    __slots__ = ("_base", "_data", "fd", "salt", "size")

    def __init__(self, fd: int, salt: bytes, size: int) -> None:
        self.fd, self.salt, self.size = fd, salt, size
        self._data, self._base = b"", size

    def frame(self, offset: int) -> Frame | None:
        """The frame at `offset`, if it is whole."""
        if not HEADER_SIZE <= offset <= self.size - OVERHEAD:
            return None
        at = offset - self._base
        if at < 0 or frame_length(self._data, at, self.salt) > len(self._data) - at:
            self._base = max(HEADER_SIZE, offset - _BACKWARD_STEP)
            at = offset - self._base
            self._data = fs.pread(self.fd, min(at + _FIRST_GUESS, self.size - self._base), self._base)
            length = frame_length(self._data, at, self.salt)
            if len(self._data) - at < length <= self.size - offset:
                self._base, at = offset, 0
                self._data = fs.pread(self.fd, length, offset)
        return parse_frame(self._data, at, self.salt, offset)


def cut_short(fd: int, salt: bytes, offset: int, size: int) -> bool:
    """Whether the bytes are the beginning of a frame that goes on beyond the end of the file.

    A last frame whose length field was hit looks like that too, but still has its end mark: that one is kept.
    """
    left = size - offset
    head = fs.pread(fd, min(left, HEAD_SIZE), offset)
    if left < HEAD_SIZE:
        return head[:8] == salt[: len(head)]
    return frame_length(head, 0, salt) > left and fs.pread(fd, len(END_MARK), size - len(END_MARK)) != END_MARK


def _zero(fd: int, offset: int, size: int) -> bool:
    """Whether every byte is zero."""
    while offset < size:
        data = fs.pread(fd, min(_STEP, size - offset), offset)
        if not data or data.count(0) != len(data):
            return False
        offset += len(data)
    return True
