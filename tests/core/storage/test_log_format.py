"""Bytes of the log: what goes in comes out, and damaged bytes never come out as something else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.errors import InvalidInputError, NewerFormatError
from clawmem_core.storage.log_format import (
    HEADER_SIZE,
    KEY_SIZE,
    NO_ID,
    OVERHEAD,
    STATE_SIZE,
    Identity,
    Key,
    LogHeader,
    LogState,
    encode_frame,
    frame_length,
    last_frame_length,
    parse_frame,
)

SALT = b"saltsalt"
u64 = st.integers(0, 2**64 - 1)
offsets = st.integers(0, 2**63 - 1)  # in a file
ids = st.binary(min_size=16, max_size=16)
states = st.builds(LogState, *[u64] * 8, st.just(0), st.binary(min_size=32, max_size=32))
keys = st.builds(Key, ids, ids, u64, st.sampled_from("PSVK"), st.integers(0, 255))


@settings(max_examples=100, deadline=None)
@given(state=states, payload=st.binary(max_size=300), keyed=st.lists(keys, max_size=4), before=st.binary(max_size=50),
       flags=st.integers(0, 255), kind=st.integers(0, 255), chain=st.integers(0, 2**32 - 1))  # fmt: skip
def test_frame_round_trip(
    state: LogState, payload: bytes, keyed: list[Key], before: bytes, flags: int, kind: int, chain: int
) -> None:
    """Every field of a frame comes back, wherever it lies in the bytes, and the trailer leads back to its start."""
    offset = 5000
    state.last_key_off = offset if keyed else 700
    data = encode_frame(SALT, payload, keyed, state, prev_chain=chain, sync_off=600, prev_key_off=700, type=kind,
                        flags=flags, state_flags=1)  # fmt: skip
    frame = parse_frame(before + data + b"more", len(before), SALT, offset)
    assert frame is not None
    assert (offset, offset + len(data), kind, flags, 1) == (
        frame.offset, frame.end, frame.type, frame.flags, frame.state_flags,
    )  # fmt: skip
    assert (payload, keyed, state, chain, 600, 700) == (
        frame.payload, frame.keys, frame.state, frame.prev_chain, frame.sync_off, frame.prev_key_off,
    )  # fmt: skip
    assert OVERHEAD + KEY_SIZE * len(keyed) + len(payload) == len(data)
    assert len(data) == last_frame_length(data) == frame_length(data, 0, SALT)
    assert frame.chain == int.from_bytes(data[-8:-4], "little")


@settings(max_examples=200, deadline=None)
@given(payload=st.binary(max_size=40), at=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_changed_frame_is_none(payload: bytes, at: int, bits: int) -> None:
    """A frame with any byte changed, or cut anywhere, is none."""
    data = bytearray(encode_frame(SALT, payload, [], LogState(seq=3), prev_chain=9, sync_off=512, prev_key_off=0))
    assert parse_frame(bytes(data), 0, SALT, 512) is not None
    at %= len(data)
    assert parse_frame(bytes(data[:at]), 0, SALT, 512) is None
    data[at] ^= bits
    assert parse_frame(bytes(data), 0, SALT, 512) is None


def test_frame_that_points_forward_is_none() -> None:
    """Offsets in a frame never lead behind it, so hopping back ends."""
    for sync_off, prev_key_off, last_key_off in ((511, 0, 0), (1001, 0, 0), (512, 1000, 1000), (512, 0, 700)):
        state = LogState(last_key_off=last_key_off)
        data = encode_frame(SALT, b"", [], state, prev_chain=0, sync_off=sync_off, prev_key_off=prev_key_off)
        assert parse_frame(data, 0, SALT, 1000) is None


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=400))
def test_random_bytes_are_no_frame(data: bytes) -> None:
    """Nothing but a frame parses, and nothing raises."""
    assert parse_frame(SALT + data, 0, SALT, 512) is None
    assert last_frame_length(data) >= 0
    assert LogHeader.unpack(data, "log") is None or data[:8] == b"CLAWMWAL"


headers = st.builds(
    LogHeader, store_id=ids, log_id=ids, base_checkpoint_id=ids, h5_id_offset=offsets, state=states, generation=u64,
    dim=st.integers(1, 65536), flags=st.integers(0, 31), wal_max_entries=st.integers(0, 2**32 - 1), base_rows=u64,
    created_us=u64, agent_id=st.text(max_size=60),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(header=headers, at=st.integers(0, HEADER_SIZE - 1), bits=st.integers(1, 255))
def test_header_round_trip_and_damage(header: LogHeader, at: int, bits: int) -> None:
    """Every field of a header comes back; with any byte changed it is none, or of a newer version."""
    data = bytearray(header.pack())
    assert HEADER_SIZE == len(data)
    back = LogHeader.unpack(bytes(data), "log")
    assert back is not None
    assert [getattr(header, name) for name in LogHeader.__slots__] == [
        getattr(back, name) for name in LogHeader.__slots__
    ]
    data[at] ^= bits
    try:
        assert LogHeader.unpack(bytes(data), "log") is None
    except NewerFormatError:
        assert at in (8, 9)


def test_later_minor_version_is_read() -> None:
    """A header of the same major version with fields we do not know keeps its own checksum as seed of the chain."""
    from zlib import crc32

    data = bytearray(LogHeader(store_id=NO_ID, log_id=NO_ID, base_checkpoint_id=NO_ID, h5_id_offset=0,
                               state=LogState()).pack())  # fmt: skip
    data[10], data[500] = 7, 1
    data[-4:] = crc32(data[:-4]).to_bytes(4, "little")
    header = LogHeader.unpack(bytes(data), "log")
    assert header is not None
    assert crc32(data[:-4]) == header.crc


def test_agent_id_has_a_limit() -> None:
    """An agent id that does not fit the header is refused, not cut."""
    with pytest.raises(InvalidInputError, match="agent_id"):
        LogHeader(store_id=NO_ID, log_id=NO_ID, base_checkpoint_id=NO_ID, h5_id_offset=0, state=LogState(),
                  agent_id="ä" * 146)  # fmt: skip


def test_header_after_a_checkpoint() -> None:
    """A fresh log starts with the checkpoint's counters and without keys."""
    state = LogState(seq=5, next_record_id=9, last_key_off=4444)
    header = LogHeader.after(Identity(store_id=b"s" * 16, checkpoint_id=b"c" * 16, h5_id_offset=7, state=state),
                             b"l" * 16, 1)  # fmt: skip
    assert (5, 9, 0) == (header.state.seq, header.state.next_record_id, header.state.last_key_off)
    assert b"c" * 16 == header.base_checkpoint_id


def test_sizes_of_the_format_page() -> None:
    """The numbers docs/format.md names."""
    state = LogState()
    assert (STATE_SIZE, KEY_SIZE) == (len(state.pack()), len(Key(NO_ID, NO_ID, 0, "P", 0).pack()))
    with pytest.raises(struct.error):
        LogState.unpack(bytes(STATE_SIZE - 1))
    assert state == state.copy() != LogState(seq=1)
