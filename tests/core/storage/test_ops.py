"""Operations: what is encoded is what is decoded, and bad payloads are refused whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.model import Record
from clawmem_core.storage import ops, row_ops

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
ids = st.integers(0, 2**63 - 1)
seconds = st.floats(allow_nan=False)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record a store can hold."""
    record = Record(draw(ids), draw(texts), draw(seconds), draw(texts), draw(texts), draw(texts))
    record.key, record.source_id = draw(texts), draw(texts)
    record.scope = draw(st.sampled_from([b"", bytes(range(32))]))
    record.vector = draw(st.none() | st.binary(min_size=2, max_size=16))
    record.activation, record.deleted = draw(st.floats(0, 4, width=32)), draw(st.booleans())
    return record


@given(st.lists(records(), max_size=4))
def test_records_round_trip(given: list[Record]) -> None:
    """Several records in one payload come back equal."""
    payload = b"".join(map(ops.record, given))
    assert given == [value for op, _, value in ops.decode(payload) if op == ops.RECORD]


def everything() -> bytes:
    """A payload with one operation of each kind."""
    event = row_ops.EventRow(
        label=2, status=2, trust=1, record_id=3, valid_from=1.0, recorded_from=7, event_id=bytes(32),
        scope_key=b"s" * 32, source_event="e", session="s", payload=b"{}",
    )  # fmt: skip
    return b"".join(
        [
            ops.record(Record(0, "x", 1.0)), ops.ids(ops.DELETE, [1, 2]), ops.ids(ops.UNDELETE, [1]), ops.compact(),
            row_ops.session(row_ops.Session("s", 0, 1, "c", "sum", 2.0)),
            row_ops.entity(row_ops.Entity(0, "n", "t", -1)),
            row_ops.relation(row_ops.Relation(0, 1, "t", 0.5, 3.0)), row_ops.alias(row_ops.Alias("a", 0)),
            ops.activation([(0, 1.5)]), ops.config("agent_id", '"x"'), row_ops.event(event),
            row_ops.value(row_ops.ValueRow(b"v" * 32, b"s" * 32, "why", "who", 9)),
            ops.audit(bytes(72)), ops.purge([4]), ops.ids(ops.RESERVE, [9]),
            row_ops.remove(row_ops.RELATION_KIND, 0, 1, "t"),
        ]
    )  # fmt: skip


def test_every_operation_round_trips() -> None:
    """Decoding and encoding again gives the same bytes, for each kind."""
    names = [ops.NAMES[op] for op, _, _ in ops.decode(everything())]
    assert list(ops.NAMES[1:]) == names
    encoders = {
        ops.RECORD: ops.record, ops.SESSION: row_ops.session, ops.ENTITY: row_ops.entity,
        ops.RELATION: row_ops.relation,
        ops.ALIAS: row_ops.alias, ops.ACTIVATION: ops.activation, ops.EVENT: row_ops.event, ops.VALUE: row_ops.value,
        ops.AUDIT: ops.audit, ops.PURGE: ops.purge,
    }  # fmt: skip
    again = b""
    for op, _, value in ops.decode(everything()):
        if op in encoders:
            again += encoders[op](value)  # type: ignore[operator]
        elif op == ops.COMPACT:
            again += ops.compact()
        elif op == ops.CONFIG:
            again += ops.config(*value)
        elif op == ops.REMOVE:
            again += row_ops.remove(*value)
        else:
            again += ops.ids(op, value)
    assert everything() == again


def test_cut_anywhere_is_refused() -> None:
    """A payload cut within an operation raises; cut between two it gives the whole ones before."""
    payload = everything()
    whole = {0}
    at = 0
    for _ in ops.decode(payload):
        at += 8 + int.from_bytes(payload[at + 4 : at + 8], "little")
        whole.add(at)
    for cut in range(len(payload)):
        if cut in whole:
            list(ops.decode(payload[:cut]))
        else:
            with pytest.raises(ops.BadPayload):
                list(ops.decode(payload[:cut]))


def test_lengths_that_do_not_fill_a_record_are_refused() -> None:
    """Each of the eight lengths one too small or too large: no part begins in another's bytes."""
    entry = Record(0, "text", 1.0, "channel", "session", "tags")
    entry.vector, entry.key, entry.source_id, entry.scope = b"v" * 8, "key", "source", b"s" * 32
    payload = ops.record(entry) + ops.record(entry)
    for at in range(8 + 20, 8 + 20 + 8 * 4, 4):
        for step in (-1, 1):
            changed = bytearray(payload)
            changed[at : at + 4] = (int.from_bytes(payload[at : at + 4], "little") + step).to_bytes(4, "little")
            with pytest.raises(ops.BadPayload, match="add up"):
                list(ops.decode(bytes(changed)))


@given(st.integers(0, len(everything()) - 1), st.integers(1, 255))
def test_any_flip_is_harmless(at: int, bits: int) -> None:
    """Whatever a byte becomes, decoding gives operations or BadPayload, nothing else."""
    payload = bytearray(everything())
    payload[at] ^= bits
    try:
        list(ops.decode(bytes(payload)))
    except ops.BadPayload:
        pass


def test_newer_operation() -> None:
    """An operation of a newer version is told apart from damage."""
    with pytest.raises(ops.UnknownOperation):
        list(ops.decode(ops.operation(99, b"")))
