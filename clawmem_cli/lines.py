"""The lines of stdin, with word of when nothing more can be read at the moment.

Invariants: a line is yielded as soon as it is whole; memory is bounded by the longest line allowed; lines of blanks
only are counted and left out; a line that is too long is skipped to its end and yielded as the error that it is.
"""

from __future__ import annotations

import select

from clawmem_cli import jsonin, pipes
from clawmem_core.errors import InvalidInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    #: its number from 1, and its bytes without the line feed, or why it was not read
    Line = tuple[int, bytes | InvalidInputError]

MOMENT = 2  # milliseconds: who writes line by line as fast as it can is sooner back


def blocks_of_lines() -> Iterator[list[Line]]:
    """Every line of stdin, as many at a time as a read gave; an empty list before each read that would wait, and
    another one where it would wait on after MOMENT.

    Raises StorageError.
    """
    pipes.widen(0)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    number = size = 0
    parts: list[bytes] = []  # of the line that has begun; dropped once it is too long
    while True:
        if not poll.poll(0):
            yield []
            if not poll.poll(MOMENT):
                yield []
        step = jsonin.read_step()
        if not step:
            break
        found: list[Line] = []
        start, end = 0, step.find(b"\n")  # split() looks at each byte by itself, find() does not
        if size and end >= 0:
            number += 1
            _add(found, number, parts, step[:end], size + end)
            parts.clear()
            size = 0
            start, end = end + 1, step.find(b"\n", end + 1)
        while end >= 0:
            number += 1
            line = step[start:end]
            if line and not line.isspace():
                found.append((number, line))
            start, end = end + 1, step.find(b"\n", end + 1)
        size += len(step) - start
        if size > jsonin.MAX_INPUT:
            parts.clear()
        elif start < len(step):
            parts.append(step[start:])
        if found:
            yield found
    last: list[Line] = []
    _add(last, number + 1, parts, b"", size)
    if last:
        yield last


def _add(found: list[Line], number: int, parts: list[bytes], end: bytes, size: int) -> None:
    """Add the line made of `parts` and `end`, of `size` bytes, unless it is blank."""
    if size > jsonin.MAX_INPUT:
        found.append((number, InvalidInputError(field="line", detail=f"is longer than {jsonin.MAX_INPUT >> 20} MiB")))
        return
    content = b"".join((*parts, end))
    if content and not content.isspace():
        found.append((number, content))
