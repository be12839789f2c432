"""Bytes of the write-ahead log: header, frames, counters, keys (docs/format.md § 3).

Invariants: pure functions of bytes, no file is touched; every length is checked against the bytes that are there
before anything is sliced; what `parse_frame` returns has a right checksum, length and salt, so it was written whole by
a writer of this very log. Encoding is canonical: one value, one byte string.
"""

from __future__ import annotations

import struct
from zlib import crc32

from clawmem_core.errors import InvalidInputError, NewerFormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"CLAWMWAL"
LEGACY_MAGIC = b"EHWL"
MAJOR, MINOR = 4, 0
HEADER_SIZE = 512
STATE_SIZE = 104
KEY_SIZE = 48
HEAD_SIZE = 40  # of a frame, before its keys
OVERHEAD = 160  # bytes of a frame beside keys and payload
TAIL_SIZE = 16
END_MARK = b"WAL4"
LARGEST_FRAME = (1 << 32) - 1  # bytes; the length fields have 32 bits
AGENT_ID_ROOM = 290  # bytes of UTF-8

FLOAT16, SIGNED, EVENTS, QUANTIZED, NO_WAL = 1, 2, 4, 8, 16  # flags of a header

OPERATIONS = 1  # the one frame type: the payload is operations (ops.py)
IGNORABLE = 1  # flag of a frame: a reader that does not know the type may skip it
PURGE_PENDING = 1  # state flag of a frame

NO_ID = bytes(16)

_HEADER = struct.Struct("<8sHHI16s16s16sQQIIIIQQ")  # 112 bytes, state and agent id follow
_STATE = struct.Struct("<9Q32s")
_KEY = struct.Struct("<16s16sQBB6x")
_HEAD = struct.Struct("<8sIBBHIIQQ")
_HEAD_FIELDS = struct.Struct("<IBBHIIQQ")  # the same without the salt
_SEQ_AND_KEY = struct.Struct("<Q56xQ")  # first and last number of a state
_TAIL = struct.Struct("<III4s")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")


class LogState:
    """Counters after a frame, so that the next `save` needs nothing but the last frame.

    `seq`: entries since the store was made; `rows`, `active`: records, live records; `last_record_us`: newest record
    time; `last_key_off`: offset of the newest frame with keys (0 none); `audit_head`: newest link of the audit chain.
    """

    __slots__ = (
        "active", "audit_head", "audit_seq", "event_rows", "last_key_off", "last_record_us", "next_entity_id",
        "next_record_id", "rows", "seq",
    )  # fmt: skip

    def __init__(
        self, seq: int = 0, next_record_id: int = 0, rows: int = 0, active: int = 0, next_entity_id: int = 0,
        event_rows: int = 0, audit_seq: int = 0, last_record_us: int = 0, last_key_off: int = 0,
        audit_head: bytes = bytes(32),
    ) -> None:  # fmt: skip
        self.seq, self.next_record_id, self.rows, self.active = seq, next_record_id, rows, active
        self.next_entity_id, self.event_rows, self.audit_seq = next_entity_id, event_rows, audit_seq
        self.last_record_us, self.last_key_off, self.audit_head = last_record_us, last_key_off, audit_head

    def pack(self) -> bytes:
        """104 bytes."""
        return _STATE.pack(
            self.seq, self.next_record_id, self.rows, self.active, self.next_entity_id, self.event_rows,
            self.audit_seq, self.last_record_us, self.last_key_off, self.audit_head,
        )  # fmt: skip

    @classmethod
    def unpack(cls, data: bytes, offset: int = 0) -> LogState:
        """From 104 bytes at `offset`. Raises struct.error if they are not there."""
        return cls(*_STATE.unpack_from(data, offset))

    def copy(self) -> LogState:
        """An independent copy."""
        return LogState.unpack(self.pack())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogState) and self.pack() == other.pack()

    def __repr__(self) -> str:
        return f"LogState(seq={self.seq}, next_record_id={self.next_record_id}, rows={self.rows}, active={self.active})"


class Key:
    """One look-up key of a frame or of `.keys`: what was stored under it last.

    `kind`: P (event identity), S (session position of an episode), V (value tombstone), K (upsert key). `digest`: first
    16 bytes of the payload's hash, to tell `exists` from a conflict. `status`: meaning belongs to the kind.
    """

    __slots__ = ("digest", "key", "kind", "record_id", "status")

    def __init__(self, key: bytes, digest: bytes, record_id: int, kind: str, status: int) -> None:
        self.key, self.digest, self.record_id, self.kind, self.status = key, digest, record_id, kind, status

    def pack(self) -> bytes:
        """48 bytes."""
        return _KEY.pack(self.key, self.digest, self.record_id, ord(self.kind), self.status)

    @classmethod
    def unpack(cls, data: bytes, offset: int = 0) -> Key:
        """From 48 bytes at `offset`."""
        key, digest, record_id, kind, status = _KEY.unpack_from(data, offset)
        return cls(key, digest, record_id, chr(kind), status)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.pack() == other.pack()

    def __hash__(self) -> int:
        return hash((self.key, self.kind))

    def __repr__(self) -> str:
        return f"Key({self.kind} {self.key.hex()} -> {self.record_id}, status {self.status})"


class Identity:
    """What one HDF5 file says of itself: enough to match a log with it and to start a new one.

    `checkpoint_id` (16 bytes, NO_ID: a file that never had one) lies contiguous at byte `h5_id_offset` of the file. The
    mark (`mark_log_id`, `mark_length`, `mark_crc`) names the log and the prefix this checkpoint holds; a legacy mark
    has an all-zero log id. `state`: counters at the checkpoint. `flags`: as in a log header.
    """

    __slots__ = (
        "agent_id", "base_rows", "checkpoint_id", "dim", "flags", "generation", "h5_id_offset", "mark_crc",
        "mark_length", "mark_log_id", "state", "store_id", "wal_max_entries",
    )  # fmt: skip

    def __init__(
        self, *, store_id: bytes, checkpoint_id: bytes, h5_id_offset: int, state: LogState, generation: int = 0,
        dim: int = 0, flags: int = 0, wal_max_entries: int = 500, base_rows: int = 0, agent_id: str = "",
        mark_log_id: bytes = NO_ID, mark_length: int = 0, mark_crc: int = 0,
    ) -> None:  # fmt: skip
        self.store_id, self.checkpoint_id, self.h5_id_offset = store_id, checkpoint_id, h5_id_offset
        self.state, self.generation, self.dim, self.flags = state, generation, dim, flags
        self.wal_max_entries, self.base_rows, self.agent_id = wal_max_entries, base_rows, agent_id
        self.mark_log_id, self.mark_length, self.mark_crc = mark_log_id, mark_length, mark_crc


class LogHeader:
    """The first 512 bytes of a log, never rewritten. `crc` seeds the frames' chain; `generation` is for messages."""

    __slots__ = (
        "agent_id", "base_checkpoint_id", "base_rows", "crc", "created_us", "dim", "flags", "generation",
        "h5_id_offset", "log_id", "state", "store_id", "wal_max_entries",
    )  # fmt: skip

    def __init__(
        self, *, store_id: bytes, log_id: bytes, base_checkpoint_id: bytes, h5_id_offset: int, state: LogState,
        generation: int = 0, dim: int = 0, flags: int = 0, wal_max_entries: int = 500, base_rows: int = 0,
        created_us: int = 0, agent_id: str = "",
    ) -> None:  # fmt: skip
        self.store_id, self.log_id, self.base_checkpoint_id = store_id, log_id, base_checkpoint_id
        self.h5_id_offset, self.state, self.generation, self.dim = h5_id_offset, state, generation, dim
        self.flags, self.wal_max_entries, self.base_rows = flags, wal_max_entries, base_rows
        self.created_us, self.agent_id = created_us, agent_id
        self.crc = _U32.unpack_from(self.pack(), HEADER_SIZE - 4)[0]

    @classmethod
    def after(cls, identity: Identity, log_id: bytes, created_us: int) -> LogHeader:
        """The header of a fresh log on top of this HDF5 file."""
        state = identity.state.copy()
        state.last_key_off = 0
        return cls(
            store_id=identity.store_id, log_id=log_id, base_checkpoint_id=identity.checkpoint_id,
            h5_id_offset=identity.h5_id_offset, state=state, generation=identity.generation, dim=identity.dim,
            flags=identity.flags, wal_max_entries=identity.wal_max_entries, base_rows=identity.base_rows,
            created_us=created_us, agent_id=identity.agent_id,
        )  # fmt: skip

    def renewed(self, log_id: bytes, state: LogState) -> LogHeader:
        """The same header for a log that takes this one's place, with other counters to start from."""
        state = state.copy()
        state.last_key_off = 0
        return LogHeader(
            store_id=self.store_id, log_id=log_id, base_checkpoint_id=self.base_checkpoint_id,
            h5_id_offset=self.h5_id_offset, state=state, generation=self.generation, dim=self.dim, flags=self.flags,
            wal_max_entries=self.wal_max_entries, base_rows=self.base_rows, created_us=self.created_us,
            agent_id=self.agent_id,
        )  # fmt: skip

    @property
    def salt(self) -> bytes:
        """The 8 bytes every frame of this log begins with. Never shown: a forged frame in a vector would need it."""
        return self.log_id[:8]

    def pack(self) -> bytes:
        """512 bytes. Raises InvalidInputError if the agent id has more than 290 bytes."""
        agent_id = self.agent_id.encode()
        if len(agent_id) > AGENT_ID_ROOM:
            raise InvalidInputError(field="agent_id", detail=f"longer than {AGENT_ID_ROOM} bytes of UTF-8")
        head = _HEADER.pack(
            MAGIC, MAJOR, MINOR, HEADER_SIZE, self.store_id, self.log_id, self.base_checkpoint_id, self.generation,
            self.h5_id_offset, self.dim, self.flags, self.wal_max_entries, 0, self.base_rows, self.created_us,
        )  # fmt: skip
        body = head + self.state.pack() + _U16.pack(len(agent_id)) + agent_id
        body = body.ljust(HEADER_SIZE - 4, b"\0")
        return body + _U32.pack(crc32(body))

    @classmethod
    def unpack(cls, data: bytes, path: str) -> LogHeader | None:
        """The header in the first 512 bytes, or None if it is short or damaged.

        Raises NewerFormatError for a log of a newer version, ours or the ancestor's (EHWL 3 and later).
        """
        if data[:4] == LEGACY_MAGIC and len(data) > 4 and data[4] > 2:
            raise NewerFormatError(path=path, found=f"EHWL {data[4]}", supported=f"EHWL 2 and CLAWMWAL {MAJOR}")
        if data[:8] != MAGIC or len(data) < 12:
            return None
        major = _U16.unpack_from(data, 8)[0]
        if major > MAJOR:
            raise NewerFormatError(path=path, found=f"CLAWMWAL {major}", supported=f"CLAWMWAL {MAJOR}")
        if len(data) < HEADER_SIZE or crc32(data[: HEADER_SIZE - 4]) != _U32.unpack_from(data, HEADER_SIZE - 4)[0]:
            return None
        (_, major, _, size, store_id, log_id, base_id, generation, offset, dim, flags, wal_max, _, base_rows,
         created) = _HEADER.unpack_from(data)  # fmt: skip
        (length,) = _U16.unpack_from(data, _HEADER.size + STATE_SIZE)
        start = _HEADER.size + STATE_SIZE + 2
        if major != MAJOR or size != HEADER_SIZE or length > AGENT_ID_ROOM or offset >= 1 << 63:
            return None
        try:
            agent_id = data[start : start + length].decode()
        except UnicodeDecodeError:
            return None
        header = cls(
            store_id=store_id, log_id=log_id, base_checkpoint_id=base_id, h5_id_offset=offset, dim=dim, flags=flags,
            state=LogState.unpack(data, _HEADER.size), generation=generation, wal_max_entries=wal_max,
            base_rows=base_rows, created_us=created, agent_id=agent_id,
        )  # fmt: skip
        (header.crc,) = _U32.unpack_from(data, HEADER_SIZE - 4)  # a later minor version may use the room we leave 0
        return header


class Frame:
    """A frame whose checksum holds. `offset`, `end`: where it lies; `chain`: its checksum, repeated by the next one.

    `seq` is the first counter of `state`. Payload, keys and state are taken out of the bytes when they are asked for.
    """

    __slots__ = (
        "_data", "_first_key", "_last", "chain", "end", "flags", "n_keys", "offset", "prev_chain", "prev_key_off",
        "seq", "state_flags", "sync_off", "type",
    )  # fmt: skip

    def __init__(
        self, data: bytes, at: int, offset: int, end: int, head: tuple[int, ...], seq: int, chain: int
    ) -> None:
        body, self.type, self.flags, self.n_keys, self.prev_chain, self.state_flags, self.sync_off, _ = head
        self.prev_key_off = head[7]
        self._data, self._first_key, self._last = data, at + HEAD_SIZE, at + HEAD_SIZE + body
        self.offset, self.end, self.seq, self.chain = offset, end, seq, chain

    @property
    def payload(self) -> bytes:
        """What the frame says, ops.py's bytes."""
        data, start, end = self.where
        return data[start:end]

    @property
    def where(self) -> tuple[bytes, int, int]:
        """The payload as a part of the bytes that were read: these, its start and end."""
        return self._data, self._first_key + self.n_keys * KEY_SIZE, self._last

    @property
    def keys(self) -> list[Key]:
        """The frame's look-up keys."""
        return [Key.unpack(self._data, self._first_key + index * KEY_SIZE) for index in range(self.n_keys)]

    @property
    def packed_keys(self) -> list[bytes]:
        """The same, 48 bytes each."""
        ends = range(self._first_key, self._first_key + self.n_keys * KEY_SIZE, KEY_SIZE)
        return [self._data[at : at + KEY_SIZE] for at in ends]

    @property
    def state(self) -> LogState:
        """Counters after the frame."""
        return LogState.unpack(self._data, self._last)


def encode_frame(
    salt: bytes,
    payload: bytes,
    keys: Sequence[Key],
    state: LogState,
    *,
    prev_chain: int,
    sync_off: int,
    prev_key_off: int,
    type: int = OPERATIONS,
    flags: int = 0,
    state_flags: int = 0,
) -> bytes:
    """One frame. Raises InvalidInputError if it passes 4 GiB or 65,535 keys."""
    body = KEY_SIZE * len(keys) + len(payload)
    if body + OVERHEAD > LARGEST_FRAME or len(keys) > 0xFFFF:
        raise InvalidInputError(field="operation", detail="too large for one log frame (4 GiB, 65,535 keys)")
    head = _HEAD.pack(salt, body, type, flags, len(keys), prev_chain, state_flags, sync_off, prev_key_off)
    front = b"".join(
        (head, *(key.pack() for key in keys), payload, state.pack(), _U32.pack(body + OVERHEAD),
         _U32.pack(state.seq & 0xFFFFFFFF))
    )  # fmt: skip
    return front + _U32.pack(crc32(front)) + END_MARK


def frame_length(data: bytes, at: int, salt: bytes) -> int:
    """Length that the frame head at `at` announces, 0 if there is no whole head of this log."""
    if len(data) - at < HEAD_SIZE or data[at : at + 8] != salt:
        return 0
    length: int = _U32.unpack_from(data, at + 8)[0] + OVERHEAD
    return length


def parse_frame(data: bytes, at: int, salt: bytes, offset: int) -> Frame | None:
    """The frame at data[at], which is byte `offset` of the log; None if it is not whole or its checksum is wrong."""
    length = frame_length(data, at, salt)
    if not length or length > len(data) - at:
        return None
    end = at + length
    frame_len, seq_low, chain, mark = _TAIL.unpack_from(data, end - TAIL_SIZE)
    if mark != END_MARK or frame_len != length:
        return None
    head = _HEAD_FIELDS.unpack_from(data, at + 8)
    body, n_keys, sync_off, prev_key_off = head[0], head[3], head[6], head[7]
    last = at + HEAD_SIZE + body
    if n_keys * KEY_SIZE > body or crc32(memoryview(data)[at : end - 8]) != chain:
        return None
    seq, last_key_off = _SEQ_AND_KEY.unpack_from(data, last)
    if seq & 0xFFFFFFFF != seq_low or not HEADER_SIZE <= sync_off <= offset or prev_key_off >= offset:
        return None
    if last_key_off != (offset if n_keys else prev_key_off):
        return None
    return Frame(data, at, offset, offset + length, head, seq, chain)


def last_frame_length(tail: bytes) -> int:
    """Length of the frame that ends with these bytes, 0 if they are no frame's end."""
    if len(tail) < TAIL_SIZE or tail[-4:] != END_MARK:
        return 0
    length: int = _TAIL.unpack_from(tail, len(tail) - TAIL_SIZE)[0]
    return length
