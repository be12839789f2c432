"""strict_json.py: what is read, and what is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings

from clawmem_core.errors import DuplicateKeyError, InvalidJsonError
from clawmem_core.strict_json import parse_json
from tests.json_values import joined, values


@given(values)
@settings(max_examples=200)
def test_parse_reads_what_json_prints(value: object) -> None:
    """Anything json prints comes back equal, with and without escapes and indentation."""
    expected = joined(value)
    for printed in (json.dumps(value), json.dumps(value, indent=2), json.dumps(joined(value), ensure_ascii=False)):
        assert expected == parse_json(printed)


@pytest.mark.parametrize(
    "document",
    [
        "",
        " ",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "\ufeff1",
        "1 2",
        "01",
        "1.",
        "+1",
        "'a'",
        "{a:1}",
        "[1,]",
        '"\t"',
        '"\\x41"',
        '"\\ud8"',
        "\u00a01",
        "1\u00a0",
        "tru",
        "// c\n1",
        '{"a" 1}',
        '{"a":}',
        "[1 2]",
        '"abc',
        b"\xff",
        b"\xef\xbb\xbf{}",
    ],
)
def test_refused_documents(document: str | bytes) -> None:
    """What JSON.parse refuses is refused, as an error of ours."""
    with pytest.raises(InvalidJsonError):
        parse_json(document)


def test_the_line_of_a_fault_is_named() -> None:
    """The error names the line."""
    with pytest.raises(InvalidJsonError) as caught:
        parse_json('{"a": 1,\n"b": oops}')
    assert caught.value.fields["line"] == 2
    with pytest.raises(InvalidJsonError) as caught:
        parse_json(b'["a",\n\n"\xff"]')
    assert caught.value.fields["line"] == 3


def test_duplicate_keys() -> None:
    """The last of two equal keys wins, unless duplicates are refused, at any depth."""
    document = '{"x": [{"a": 1, "b": 2, "a": 3}]}'
    assert {"x": [{"a": 3, "b": 2}]} == parse_json(document)
    with pytest.raises(DuplicateKeyError, match="'a'"):
        parse_json(document, refuse_duplicates=True)
    assert {"a": {"a": 1}} == parse_json('{"a": {"a": 1}}', refuse_duplicates=True)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("9007199254740991", 2**53 - 1),
        ("9007199254740993", 2.0**53),
        ("-0", 0),
        ("1e400", math.inf),
        ("9" * 5000, math.inf),
    ],
)
def test_integers_are_doubles(document: str, expected: float) -> None:
    """An integer that no double holds exactly is the nearest double, whatever its length."""
    assert expected == parse_json(document)


def test_depth() -> None:
    """Deep nesting is refused by name."""
    with pytest.raises(InvalidJsonError, match="nested"):
        parse_json("[" * 200_000)
