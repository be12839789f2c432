"""Audit lines: layout, and that every change to the log is found at its line."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.contract import audit
from clawmem_core.errors import InvalidInputError


def _log(count: int) -> tuple[bytes, bytes]:
    chain, lines = audit.START, b""
    for number in range(count):
        lines += audit.audit_line(chain, 1_000 + number, "save", "ann", target=number, digest=bytes([number] * 32))
        chain = lines[-32:]
    return lines, chain


LOG, HEAD = _log(6)


def test_layout() -> None:
    """72 bytes: the fields at their offsets, then the chain over the line before and this one."""
    line = audit.audit_line(b"p" * 32, 7, "delete", "ann", 9, 3, b"digest", audit.FLAG_EVENT)
    assert len(line) == audit.LINE_SIZE == 72
    assert line[:20] == struct.pack("<QBBHQ", 7, audit.OPS["delete"], 1, 3, 9)
    assert line[20:36] == b"ann" + bytes(13)
    assert line[36:40] == b"dige"
    assert line[40:] == hashlib.sha256(b"p" * 32 + line[:40]).digest()
    found = audit.parse_line(line)
    assert (7, "delete", 1, 3, 9, "ann", b"dige", line[40:]) == (
        found.time_us,
        found.op,
        found.flags,
        found.count,
        found.target,
        found.actor,
        found.digest,
        found.chain,
    )


def test_numbers_are_fixed() -> None:
    """Stored numbers never change meaning."""
    assert {"create": 1, "save": 2, "event": 14, "purge": 20, "held": 25, "recover": 30}.items() <= audit.OPS.items()
    assert sorted(audit.OPS.values()) == list(range(1, 33))


def test_a_sound_log() -> None:
    """An untouched log verifies, whole or from a later line; an empty one against the start."""
    assert audit.verify_lines(LOG, HEAD) is None
    assert audit.verify_lines(LOG[72:], HEAD, start=LOG[40:72]) is None
    assert audit.verify_lines(b"", audit.START) is None
    assert [line.target for line in audit.parse_lines(LOG)] == list(range(6))


@given(st.integers(0, len(LOG) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_found_at_its_line(at: int, change: int) -> None:
    """Any change to any byte is found, and the first bad line is the one that holds it."""
    damaged = LOG[:at] + bytes([LOG[at] ^ change]) + LOG[at + 1 :]
    assert at // 72 == audit.verify_lines(damaged, HEAD)


@pytest.mark.parametrize("dropped", range(6))
def test_a_dropped_line_is_found(dropped: int) -> None:
    """A missing line is found at its place, also the last one."""
    assert dropped == audit.verify_lines(LOG[: dropped * 72] + LOG[(dropped + 1) * 72 :], HEAD)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (2, 5), (4, 5)])
def test_swapped_lines_are_found(first: int, second: int) -> None:
    """Two lines that changed places are found at the first of them."""
    lines = [LOG[at : at + 72] for at in range(0, len(LOG), 72)]
    lines[first], lines[second] = lines[second], lines[first]
    assert first == audit.verify_lines(b"".join(lines), HEAD)


def test_a_torn_or_cut_log() -> None:
    """Half a line, a log that stops short and a head without lines are found."""
    assert audit.verify_lines(LOG[:-1], HEAD) == 5
    assert audit.verify_lines(LOG + b"x", HEAD) == 6
    assert audit.verify_lines(b"", HEAD) == 0


@pytest.mark.parametrize(
    ("actor", "start"),
    [("a" * 16, b"a" * 16), ("a" * 17, b"a" * 11 + b"~"), ("é" * 9, "é".encode() * 5 + b"~"), ("x", b"x\0")],
)
def test_actor_names(actor: str, start: bytes) -> None:
    """Names up to 16 bytes stand whole, longer ones as whole characters and a digest."""
    encoded = audit.encode_actor(actor)
    assert len(encoded) == 16
    assert encoded.startswith(start)
    if b"~" in encoded:
        assert encoded.rstrip(b"\0").endswith(hashlib.sha256(actor.encode()).hexdigest()[:4].encode())


@pytest.mark.parametrize("actor", ["", "a\0", "a\nb", "\ud800", "\u2028"])
def test_what_is_no_actor(actor: str) -> None:
    """A name that could not be shown on one line is refused."""
    with pytest.raises(InvalidInputError):
        audit.encode_actor(actor)


def test_limits() -> None:
    """Large counts saturate, unknown numbers keep their number, a wrong length is refused."""
    line = audit.audit_line(audit.START, 0, "import", "ann", count=1_000_000)
    assert audit.parse_line(line).count == 65_535
    assert audit.parse_line(line[:8] + b"\xc8" + line[9:]).op == "unknown-200"
    with pytest.raises(InvalidInputError):
        audit.parse_line(line[:-1])
    with pytest.raises(KeyError):
        audit.audit_line(audit.START, 0, "no-such", "ann")
