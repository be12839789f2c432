"""The door's fast lane: what it takes, and that it is what the door makes of it."""

from __future__ import annotations

import base64
import json
import random
import struct
from typing import Any

import orjson
import pytest

from clawmem_core import clock, door
from clawmem_core.errors import ClawmemError
from clawmem_core.plain import PlainRows
from clawmem_core.storage import ops

DIM = 3
NUMBERS: list[Any] = [
    0.25, -0.1, 1e-5, 5.9e-8, 3e-8, 2.98e-8, 1e-9, -0.0, 0, 1, 1.0, 2, -7, 65504, 65519.9, 65520, 7e4, 3.4028235e38,
    3.5e38, 1e300, 0.1 + 2**-14, 1 + 2**-11, 1 + 2**-11 + 2**-40, True, False, None, "0.5", [], 10**30,
]  # fmt: skip
TINY = [0.0, 2.0**-26, 2.0**-25, 2.0**-25 + 2.0**-40, 2.0**-24]
TEXTS: list[Any] = ["", "a", "two words", "ä€😀", "nul\0", "x" * 65_537, None, 5, ["a", "b"], ["a", 1], {}]


def a_vector(chance: random.Random) -> Any:
    usual = [chance.uniform(-1, 1) for _ in range(DIM)]
    if chance.random() < 0.4:
        usual[chance.randrange(DIM)] = chance.choice(NUMBERS)
    return chance.choice([usual, usual, usual, usual[:2], [chance.choice(TINY)] * DIM, chance.choice(NUMBERS)])


def a_code(chance: random.Random) -> Any:
    halves = struct.pack("<3e", *(chance.choice([0.5, -1.25, 0.0, -0.0, 6e-8, float("inf")]) for _ in range(DIM)))
    code = base64.b64encode(chance.choice([halves, halves, halves, bytes(6), b"\0\x80" * 3, halves[:5]])).decode()
    return chance.choice([code, code, code, code[:-1], code + "=", "ä" + code[1:], " " + code[1:], code[:-1] + "=", 7])


def a_record(chance: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"chunk": chance.choice(["some text"] * 40 + TEXTS)}
    for name in ("source_channel", "session_id", "tags"):
        if chance.random() < 0.3:
            fields[name] = chance.choice(["usual"] * 20 + TEXTS)
    if chance.random() < 0.5:
        fields["timestamp"] = chance.choice([1.7e9, 5, -1.5, 1e11, 1.1e11, 2**70, None, "2026-01-01T00:00:00Z", "x"])
    if chance.random() < 0.2:
        fields["index"] = chance.choice([1, -1, 2**53, 2**70, "x", {}, 1.5])
    if chance.random() < 0.6:
        fields["embedding"] = a_vector(chance)
    if ("embedding" not in fields) == (chance.random() < 0.9):
        fields["embedding_f16"] = a_code(chance)
    if chance.random() < 0.05:
        fields[chance.choice(["key", "deleted", "unknown", "eventType"])] = "x"
    return fields


@pytest.mark.parametrize("float16", [True, False])
def test_a_row_is_the_operation_that_the_door_makes(float16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the door refuses is no plain row; what is one has the same bytes; most of the usual is plain."""
    monkeypatch.setattr(clock, "now", lambda: 1.5)
    chance = random.Random(8)
    taken = refused = 0
    for number in range(6000):
        fields = a_record(chance)
        if number % 3 == 0:
            rows = PlainRows(DIM, float16)
            rows.use_numpy()
        try:
            expected = door.object_record(fields, DIM, float16)
        except ClawmemError:
            expected = None
        if not rows.add([fields]):
            refused += expected is None
        elif not rows.finish():
            assert expected is not None, fields
            expected.id = number
            assert ops.record(expected) == ops.plain_records(number, rows.rows, rows.vectors), fields
            taken += 1
        rows.clear()
    assert taken > 500 and refused > 500


@pytest.mark.parametrize("float16", [True, False])
def test_many_are_plain_if_each_is(float16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They become the same rows; where one is not plain, none is taken."""
    monkeypatch.setattr(clock, "now", lambda: 1.5)
    chance = random.Random(9)
    taken = refused = 0
    usual: list[dict[str, Any]] = []
    for _ in range(3000):
        together, single = PlainRows(DIM, float16), PlainRows(DIM, float16)
        together.use_numpy()
        single.use_numpy()
        many = [a_record(chance), *chance.sample(usual, min(len(usual), 3))]
        each = [single.add([fields]) for fields in many]
        if each[0]:
            usual.append(many[0])
        assert all(each) == together.add(many), many
        if all(each):
            assert single.finish() == together.finish()
            assert (single.rows, single.vectors) == (together.rows, together.vectors)
        else:
            assert not len(together)
        taken, refused = taken + all(each), refused + (not all(each))
    assert taken > 200 and refused > 200


def test_rows_of_a_group_keep_their_own_vectors() -> None:
    """Numbers, base64 and none in turn; those in doubt are named by their place."""
    rows = PlainRows(2, float16=True)
    rows.use_numpy()
    code = base64.b64encode(struct.pack("<2e", 3.0, 4.0)).decode()
    vectors: list[dict[str, Any]] = [
        {"embedding": [0.5, 0.25]}, {"embedding_f16": code}, {}, {"embedding": [True, 0.5]}, {"embedding": [0.75, 2.0]},
    ]  # fmt: skip
    assert rows.add([{"chunk": "x", **vector} for vector in vectors])
    assert [3] == rows.finish()
    rows.drop(3)
    expected = [(0.5, 0.25), (3.0, 4.0), None, (0.75, 2.0)]
    assert expected == [struct.unpack("<2e", vector) if vector else None for vector in rows.vectors]


def test_vectors_of_ones_and_zeros_are_plain_once_they_are_usual() -> None:
    """After a group of them the types are looked at; true is found then, too."""
    rows = PlainRows(2, float16=True)
    rows.use_numpy()
    assert rows.add([{"chunk": "x", "embedding": [1, 0.0]}])
    assert [0] == rows.finish()
    rows.clear()
    assert rows.add([{"chunk": "x", "embedding": [1, 0.0]}])
    assert not rows.add([{"chunk": "x", "embedding": [True, 0.0]}])
    assert [] == rows.finish()
    assert [struct.pack("<2e", 1, 0)] == rows.vectors


def test_numbers_wait_for_numpy() -> None:
    """Nothing else does."""
    rows = PlainRows(2, float16=True)
    assert not rows.add([orjson.loads(json.dumps({"chunk": "x", "embedding": [0.5, 0.5]}))])
    assert rows.numbers_came
    assert rows.add([{"chunk": "x"}])
