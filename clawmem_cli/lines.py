"""The lines of stdin, with word of when nothing more can be read at the moment.

Invariants: a line is yielded as soon as it is whole; memory is bounded by the longest line allowed; lines of blanks
only are counted and left out; a line that is too long is skipped to its end and yielded as the error that it is.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, NamedTuple

from clawmem_cli import jsonin
from clawmem_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Line(NamedTuple):
    """One line: its number from 1, and its bytes without the line feed, or why it was not read."""

    number: int
    content: bytes | InvalidInputError


class Idle(NamedTuple):
    """stdin has nothing to read and has not ended."""


def numbered_lines() -> Iterator[Line | Idle]:
    """Every line of stdin; an Idle before each read that would wait. Raises StorageError."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    number = size = 0
    parts: list[bytes] = []  # of the line that has begun; dropped once it is too long
    while True:
        if not poll.poll(0):
            yield Idle()
        step = jsonin.read_step()
        if not step:
            break
        *whole, rest = step.split(b"\n")
        for end in whole:
            number += 1
            yield from _line(number, parts, end, size + len(end))
            parts.clear()
            size = 0
        size += len(rest)
        if size > jsonin.MAX_INPUT:
            parts.clear()
        elif rest:
            parts.append(rest)
    yield from _line(number + 1, parts, b"", size)


def _line(number: int, parts: list[bytes], end: bytes, size: int) -> Iterator[Line]:
    if size > jsonin.MAX_INPUT:
        yield Line(number, _too_long())
        return
    content = b"".join((*parts, end)) if parts else end
    if not content.isspace() and content:
        yield Line(number, content)


def _too_long() -> InvalidInputError:
    return InvalidInputError(field="line", detail=f"is longer than {jsonin.MAX_INPUT >> 20} MiB")
