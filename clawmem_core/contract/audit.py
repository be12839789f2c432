"""Audit lines: 72 bytes each, chained by SHA-256, so that no line can be changed, dropped or moved unseen.

Invariants: every line has the same length; a line's chain value covers the chain value before it and the line itself;
the newest chain value (the head) is kept elsewhere too, so a cut at the end shows. Values are never in a line, only the
CRC-32 of the group's operations. HOT. Layout, little-endian (docs/format.md § 8):

    u64 time in microseconds | u8 operation | u8 flags | u16 count | u64 target | 16 B actor | 4 B digest | 32 B chain

chain = SHA-256(chain of the line before || the 40 bytes of this line), the first line taking 32 zero bytes.
"""

from __future__ import annotations

import struct

from clawmem_core.contract.digest import sha256_digest
from clawmem_core.errors import InvalidInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

_BODY: Final = struct.Struct("<QBBHQ16s4s")
_CHAIN_SIZE: Final = 32
LINE_SIZE: Final = _BODY.size + _CHAIN_SIZE
START: Final = bytes(_CHAIN_SIZE)
FLAG_EVENT: Final = 1  # the target is the first 8 bytes of an event id, big-endian; otherwise a record id, 0 for none
_MAX_COUNT: Final = 0xFFFF
_ACTOR_SIZE: Final = 16

# Numbers are stored; append only.
_NAMES: Final = (
    "create", "save", "update", "delete", "undelete", "compact", "session", "entity", "relation", "alias",
    "activation", "tick", "config", "event", "replace", "retract", "expire", "review-approve", "review-reject", "purge",
    "import", "refused-scope", "refused-forged-id", "refused-conflict", "held", "read-all-scopes", "rotate-key", "sign",
    "snapshot", "recover", "refused-review", "refused-purge",
)  # fmt: skip
OPS: Final = {name: number for number, name in enumerate(_NAMES, start=1)}


class AuditLine:
    """One line, read back. `op` is a name of OPS, or "unknown-N" for a number of a newer version."""

    __slots__ = ("actor", "chain", "count", "digest", "flags", "op", "target", "time_us")

    def __init__(self, line: bytes) -> None:
        self.time_us, number, self.flags, self.count, self.target, actor, self.digest = _BODY.unpack_from(line)
        self.op = _NAMES[number - 1] if 1 <= number <= len(_NAMES) else f"unknown-{number}"
        self.actor = actor.rstrip(b"\0").decode("utf-8", "backslashreplace")
        self.chain = line[_BODY.size :]


def audit_line(
    previous_chain: bytes,
    time_us: int,
    op: str,
    actor: str,
    target: int = 0,
    count: int = 1,
    digest: bytes = b"",
    flags: int = 0,
) -> bytes:
    """The 72 bytes of a line that follows the line with `previous_chain` (START for the first).

    `digest`: CRC-32 of the group's operations, to find the frame a line belongs to; b"" for none. `count`: how many
    entries the operation touched; 65,535 stands for that many or more. Raises InvalidInputError for an actor that is
    no name, KeyError for an operation that is not in OPS.
    """
    body = _BODY.pack(
        time_us, OPS[op], flags, min(count, _MAX_COUNT), target, encode_actor(actor), digest[:4].ljust(4, b"\0")
    )
    return body + sha256_digest(previous_chain + body)


def encode_actor(actor: str) -> bytes:
    """An actor's name in 16 bytes of UTF-8, zero-padded; a longer one as its start, "~" and 4 hex of its SHA-256.

    Raises InvalidInputError for an empty name, one with control characters and one that is no valid Unicode.
    """
    if not actor or not actor.isprintable():  # lone surrogates are not printable either
        raise InvalidInputError(field="actor", detail="must be a name without control characters")
    name = actor.encode()
    if len(name) > _ACTOR_SIZE:
        start = name[: _ACTOR_SIZE - 5].decode("utf-8", "ignore").encode()
        name = start + b"~" + sha256_digest(name)[:2].hex().encode()
    return name.ljust(_ACTOR_SIZE, b"\0")


def parse_line(line: bytes) -> AuditLine:
    """One line as its fields. Raises InvalidInputError unless it has 72 bytes; the chain is not checked here."""
    if len(line) != LINE_SIZE:
        raise InvalidInputError(field="audit line", detail=f"has {len(line)} bytes instead of {LINE_SIZE}")
    return AuditLine(line)


def parse_lines(data: bytes) -> Iterator[AuditLine]:
    """Every whole line of an audit log, in order."""
    for at in range(0, len(data) - LINE_SIZE + 1, LINE_SIZE):
        yield AuditLine(data[at : at + LINE_SIZE])


def verify_lines(data: bytes, head: bytes, *, start: bytes = START) -> int | None:
    """The index of the first line that does not follow from the one before it; None if all do and end at `head`.

    The number of lines itself is returned when every line is sound but the log stops short of the head (or, empty, has
    another one). `start`: the chain value before the first of the lines.
    """
    chain = start
    for index in range(len(data) // LINE_SIZE):
        at = index * LINE_SIZE
        body_end = at + _BODY.size
        chain = sha256_digest(chain + data[at:body_end])
        if chain != data[body_end : at + LINE_SIZE]:
            return index
    lines, rest = divmod(len(data), LINE_SIZE)
    return lines if rest or chain != head else None
