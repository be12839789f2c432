"""Lines from stdin: numbers, blanks, limits, and word of idleness."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from clawmem_cli import jsonin, lines


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pipe whose reading end is stdin; yields the writing end."""
    kept = os.dup(0)
    reader, writer = os.pipe()
    os.dup2(reader, 0)
    os.close(reader)
    yield writer
    os.dup2(kept, 0)
    os.close(kept)


def all_lines(pipe: int, data: bytes) -> list[Any]:
    os.write(pipe, data)
    os.close(pipe)
    return [line for block in lines.blocks_of_lines() for line in block]


def test_lines_are_numbered_and_blank_ones_left_out(pipe: int) -> None:
    """The last needs no line feed."""
    assert [(1, b"a"), (3, b"b\r"), (5, b"c")] == all_lines(pipe, b"a\n\nb\r\n  \t\nc")


def test_idleness_is_told_before_a_read_that_would_wait(pipe: int) -> None:
    """After what came so far was yielded; again after a moment."""
    os.write(pipe, b"a\nb")
    found = lines.blocks_of_lines()
    assert [[(1, b"a")], [], []] == [next(found), next(found), next(found)]
    os.write(pipe, b"c\n")
    assert [(2, b"bc")] == next(found)
    os.close(pipe)
    assert [] == [block for block in found if block]


def test_a_line_beyond_the_limit_is_one_error_and_the_next_is_read(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece or in several reads, at the end or before."""
    monkeypatch.setattr(jsonin, "MAX_INPUT", 100)
    monkeypatch.setattr(jsonin, "_STEP", 64)
    found = all_lines(pipe, b"x" * 500 + b"\nok\n" + b"y" * 101 + b"\n" + b"z" * 100 + b"\n" + b"w" * 300)
    assert [1, 2, 3, 4, 5] == [number for number, _ in found]
    assert [True, False, True, False, True] == [not isinstance(content, bytes) for _, content in found]
    assert (b"ok", b"z" * 100) == (found[1][1], found[3][1])
