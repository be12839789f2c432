"""The door: what it lets in, and what it refuses by name."""

from __future__ import annotations

import base64
import struct
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawmem_core import clock, door
from clawmem_core.errors import (
    ClawmemError,
    DimensionError,
    InvalidInputError,
    InvalidTimeError,
    InvalidVectorError,
    UnknownKeyError,
)
from clawmem_core.model import MemoryEntry, StoreConfig


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ([1.0, 2.0], DimensionError, "holds vectors of 4 values, this one has 2"),
        ([], DimensionError, "this one has 0"),
        ([1, 2, 3, 4, 5], DimensionError, "this one has 5"),
        ([0, 0, 0, -0.0], InvalidVectorError, "all zeros"),
        ([1e-30, 0, 0, 0], InvalidVectorError, "all zeros"),
        ([float("nan"), 1, 1, 1], InvalidVectorError, "NaN or infinity"),
        ([float("inf"), float("-inf"), 1, 1], InvalidVectorError, "NaN or infinity"),
        ([1e39, 1, 1, 1], InvalidVectorError, "beyond float32"),
        ([10**400, 1, 1, 1], InvalidVectorError, "beyond float32"),
        ([70000, 1, 1, 1], InvalidVectorError, "65504"),
        ([-65505, 1, 1, 1], InvalidVectorError, "65504"),
        (["1", 1, 1, 1], InvalidVectorError, "found a text"),
        ([True, 1, 1, 1], InvalidVectorError, "found true or false"),
        ([None, 1, 1, 1], InvalidVectorError, "found null"),
        ("abcd", InvalidVectorError, "not a text"),
        ({}, InvalidVectorError, "not an object"),
    ],
)
def test_vector_refused(value: object, error: type[ClawmemError], says: str) -> None:
    """A vector that cannot be stored as it is meant is refused, saying why."""
    with pytest.raises(error) as caught:
        door.vector(value, 4, True)
    assert says in caught.value.message


@given(st.lists(st.floats(-65504, 65504), min_size=6, max_size=6))
def test_vector_rounds_in_order(values: list[float]) -> None:
    """float64 → float32 → float16, as numpy does it step by step."""
    wanted = np.array(values).astype("<f4").astype("<f2")
    if not wanted.any():
        with pytest.raises(InvalidVectorError):
            door.vector(values, 6, True)
        return
    assert wanted.tobytes() == door.vector(values, 6, True)


def test_vector_double_rounding() -> None:
    """A value that rounds differently by way of float32 goes by way of float32."""
    value = 1.0 + 2**-11 + 2**-40  # straight to float16 this rounds up; through float32 the last bit is gone first
    assert struct.pack("<e", 1.0) == door.vector([value], 1, True)
    assert struct.pack("<e", value) != door.vector([value], 1, True)


def test_vector_float32_keeps_large_values() -> None:
    """A float32 store takes what float16 cannot hold."""
    assert struct.pack("<2f", 1e30, -7.0) == door.vector([1e30, -7], 2, False)


def test_vector_accepts_numpy() -> None:
    """Anything with tolist() counts as its list."""
    assert struct.pack("<2e", 0.5, 2.0) == door.vector(np.array([0.5, 2.0], "f4"), 2, True)


@pytest.mark.parametrize(("name", "kind"), [("embedding_f16", "<f2"), ("embedding_f32", "<f4")])
def test_base64_vector(name: str, kind: str) -> None:
    """Base64 vectors of either width end as the store's width."""
    text = base64.b64encode(np.array([1.5, -2.0], kind).tobytes()).decode()
    assert struct.pack("<2e", 1.5, -2.0) == door.object_vector({name: text}, 2, True)
    assert struct.pack("<2f", 1.5, -2.0) == door.object_vector({name: text}, 2, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding_f16": "AAA"},
        {"embedding_f16": "é"},
        {"embedding_f16": 7},
        {"embedding_f16": base64.b64encode(struct.pack("<2e", float("inf"), 1)).decode()},
        {"embedding_f16": base64.b64encode(bytes(4)).decode()},
        {"embedding_f32": base64.b64encode(struct.pack("<2f", 1e9, 1)).decode()},
        {"embedding": [1, 2], "embedding_f16": "AAAAAA=="},
    ],
)
def test_base64_vector_refused(fields: dict[str, object]) -> None:
    """Base64 that is none, of a wrong type, not finite, zero, out of range, or given twice."""
    with pytest.raises(InvalidVectorError):
        door.object_vector(dict(fields), 2, True)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (True, "true or false"),
        ([], "an array"),
        (float("nan"), "finite"),
        (10**400, "finite"),
        (1_700_000_000_000, "no time in seconds"),
        (-1_700_000_000_000, "no time in seconds"),
        ("2026-01-01T00:00:00", "zone"),
        ("yesterday", "RFC 3339"),
    ],
)
def test_timestamp_refused(value: object, says: str) -> None:
    """A time that is none is refused under its field's name."""
    with pytest.raises(InvalidTimeError) as caught:
        door.timestamp(value, "since")
    assert caught.value.message.startswith("since: ")
    assert says in caught.value.message + caught.value.hint


def test_milliseconds_hint() -> None:
    """Milliseconds are recognised, not converted."""
    with pytest.raises(InvalidTimeError) as caught:
        door.timestamp(1_700_000_000_000)
    assert "milliseconds?" in caught.value.hint


def test_timestamp_default_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is the time of the clock."""
    monkeypatch.setattr(clock, "now", lambda: 12.5)
    assert door.timestamp(None) == 12.5
    assert door.timestamp(7) == 7.0
    assert door.timestamp("1970-01-01T01:00:10+01:00") == 10.0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "chunk: is required"),
        ({"chunk": ""}, "chunk: is empty"),
        ({"chunk": 7}, "chunk: must be a text, not a number"),
        ({"chunk": "a\0b"}, "chunk: holds a NUL"),
        ({"chunk": "a\ud800"}, "chunk: holds a lone surrogate"),
        ({"chunk": "x", "tags": "\0"}, "tags: holds a NUL"),
        ({"chunk": "x", "tags": ["a", 1]}, "tags: must be a text or a list"),
        ({"chunk": "x", "session_id": None}, "session_id: must be a text, not null"),
        ({"chunk": "x", "key": "k" * 70_000}, "key: has 70000 bytes"),
        ({"chunk": "x", "activation": 5}, "activation: must be at most 4"),
        ({"chunk": "x", "deleted": 1}, "deleted: must be true or false"),
    ],
)
def test_object_refused(fields: dict[str, object], says: str) -> None:
    """Each bad field of a record's object is refused by name."""
    with pytest.raises(InvalidInputError) as caught:
        door.object_record(dict(fields), 2, True)
    assert caught.value.message.startswith(says)


def test_object_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `chunk` is required; the rest has the documented defaults."""
    monkeypatch.setattr(clock, "now", lambda: 5.0)
    record = door.object_record({"chunk": "x", "tags": ["a", "b"]}, 2, True)
    assert (
        record.chunk,
        record.source_channel,
        record.timestamp,
        record.session_id,
        record.tags,
        record.key,
        record.vector,
    ) == ("x", "cli", 5.0, "", "a,b", "", None)


def test_entry_and_object_agree() -> None:
    """Library and JSON doors make the same record of the same values."""
    values = {"chunk": "x", "embedding": [1.0, 2.0], "timestamp": 3.0, "tags": "t", "key": "k", "session_id": "s"}
    assert door.object_record(dict(values), 2, True) == door.entry_record(MemoryEntry(**values), 2, True)


def test_unknown_keys() -> None:
    """Keys nothing reads are listed, or refused when asked to; those that export prints are known."""
    assert door.unknown_keys({"chunk": "x", "chunky": 1, "index": 3, "deleted": False}, False) == ["chunky"]
    with pytest.raises(UnknownKeyError):
        door.unknown_keys({"chunky": 1}, True)


@pytest.mark.parametrize("pair", [(0, 0), (-1, 1), (float("nan"), 1), (1, float("inf")), (True, 1)])
def test_weights_refused(pair: tuple[float, float]) -> None:
    """Weights are finite, not negative and not both zero."""
    with pytest.raises(InvalidInputError):
        door.weights(*pair)


@pytest.mark.parametrize(
    "settings",
    [{"dim": 0}, {"dim": -4}, {"dim": 65_537}, {"wal_max_entries": 0}, {"agent_id": "a\0"}, {"decay_factor": 1.5},
     {"float16": 1}, {"agent_id": "a" * 300}],
)  # fmt: skip
def test_config_refused(settings: dict[str, object]) -> None:
    """A setting outside its range is refused."""
    with pytest.raises(InvalidInputError):
        door.config(StoreConfig(**settings))


def test_every_half_is_judged_by_its_value() -> None:
    """All 65,536 float16 patterns: finite ones pass unchanged, but for a lone zero of either sign."""
    for bits in range(65_536):
        data = struct.pack("<H", bits)
        (value,) = struct.unpack("<e", data)
        if value - value != 0 or value == 0:
            with pytest.raises(InvalidVectorError):
                door.vector_from_bytes(data, 2, 1, True)
        else:
            assert data == door.vector_from_bytes(data, 2, 1, True)
            assert data + bytes(2) == door.vector_from_bytes(data + bytes(2), 2, 2, True)


@pytest.mark.parametrize("value", [65504.0, -65504.0, 65503.9])
def test_the_largest_half_is_allowed(value: float) -> None:
    """And nothing above it, though float16 would round it down."""
    assert door.vector([value], 1, True)
    for beyond in (65504.01, 65519.0, 65520.0, 1e30):
        with pytest.raises(InvalidVectorError, match="65504"):
            door.vector([beyond if value > 0 else -beyond], 1, True)


@given(
    st.lists(st.floats() | st.integers() | st.just(65504.0) | st.just(3.4028235e38), min_size=3, max_size=3),
    st.booleans(),
)
@example([float("inf"), 1.0, 1.0], False)
@example([float("nan"), 1.0, 1.0], False)
@example([-3.4028234e38, 3.4028234e38, 3.4028234e38], False)
@example([1e-45, 0.0, 0.0], False)
def test_vector_is_judged_alike_with_numpy_and_without(values: list[float], float16: bool) -> None:
    """Bytes and refusals do not depend on whether numpy is loaded."""

    def verdict() -> bytes | str:
        try:
            return door.vector(values, 3, float16)
        except ClawmemError as error:
            return error.message

    with_numpy = verdict()
    loaded = sys.modules.pop("numpy")
    try:
        without = verdict()
    finally:
        sys.modules["numpy"] = loaded
    assert with_numpy == without


@given(st.lists(st.text() | st.integers() | st.just("x" * 20_000) | st.just("é" * 40_000), min_size=5, max_size=5))
def test_texts_are_judged_together_as_one_by_one(values: list[object]) -> None:
    """The quick look at all texts of a record lets through what `text` lets through, and nothing else."""
    names = ("source_channel", "session_id", "tags", "key", "source_id")
    try:
        for name, value in zip(names, values, strict=True):
            door.text(name, value)
        wanted = ""
    except InvalidInputError as error:
        wanted = error.message
    try:
        door.object_record({"chunk": "x", **dict(zip(names, values, strict=True))}, 2, True)
        found = ""
    except InvalidInputError as error:
        found = error.message
    assert wanted == found
