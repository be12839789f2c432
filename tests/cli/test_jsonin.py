"""Strict JSON input, and the bulk parser's equality with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_cli import jsonin
from clawmem_core.errors import ClawmemError, DuplicateKeyError, InvalidJsonError

BULK = jsonin.LineParser()


def verdict(parse: Any, line: bytes) -> Any:
    """The value, or the class of the refusal."""
    try:
        value = parse(line)
    except ClawmemError as problem:
        return type(problem)
    return repr(value).replace("-0.0", "0").replace("0.0", "0")  # orjson has -0 as a float, the door takes both


TEXTS = st.text(st.sampled_from('a:"\\\u003a,{}[] \n\u2028ü\x7f'), max_size=8)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS,
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=4),
)  # fmt: skip
MEMBERS = st.lists(st.tuples(TEXTS, st.one_of(SCALARS, st.dictionaries(TEXTS, SCALARS, max_size=2))), max_size=5)


def written(members: list[tuple[str, Any]], ascii_only: bool, blank: str) -> bytes:
    """A JSON object whose keys may repeat."""
    parts = [
        f"{json.dumps(key, ensure_ascii=ascii_only)}{blank}:{blank}{json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in members
    ]
    return ("{" + ",".join(parts) + "}").encode()


@settings(max_examples=400, deadline=None)
@given(MEMBERS, st.booleans(), st.sampled_from(["", " ", "\t"]))
def test_bulk_lines_have_the_strict_parsers_verdict(members: list[Any], ascii_only: bool, blank: str) -> None:
    """Objects with repeated keys, colons everywhere, big numbers, nesting."""
    line = written(members, ascii_only, blank)
    assert verdict(jsonin.parse_object, line) == verdict(BULK.parse, line)


@settings(max_examples=300, deadline=None)
@given(MEMBERS, st.data())
def test_bulk_lines_agree_on_damaged_text(members: list[Any], data: st.DataObject) -> None:
    """One byte replaced, taken out or put in."""
    line = bytearray(written(members, False, ""))
    at = data.draw(st.integers(0, len(line) - 1))
    piece = data.draw(
        st.sampled_from([b"", b":", b'"', b"\\", b"}", b"\xff", b"\xef\xbb\xbf", b"NaN", b"1e999", b"\x00", b"-"])
    )
    line[at : at + data.draw(st.integers(0, 1))] = piece
    assert verdict(jsonin.parse_object, bytes(line)) == verdict(BULK.parse, bytes(line))


@pytest.mark.parametrize(
    "line",
    [
        b'{"chunk":"x","chunk":"y"}', b'{"chunk":"x","ch\\u0075nk":"y"}', b'{"a":"\\u003a","a":1}',
        b'{"a":1,"a":"\\u003a"}',
        b'{"a":1,"a":"\\u003A:","b":":"}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":[{"b":1,"b":2}]}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1}x', b'\xef\xbb\xbf{"a":1}', b'{"a":"\xff"}',
        b"[1]", b"7", b"null", b'"x"', b"", b"{", b'{"a":"\t"}', b"{'a':1}", b'{"a":01}', b'{"a":1,}', b'{"a":' * 5000,
    ],
)  # fmt: skip
def test_what_is_no_strict_object_is_refused_by_both(line: bytes) -> None:
    """Duplicate keys in every disguise, constants, trailing data, byte order mark, bad UTF-8, other kinds."""
    for parse in (jsonin.parse_object, BULK.parse):
        with pytest.raises((InvalidJsonError, DuplicateKeyError)):
            parse(line)


def test_numbers_beyond_a_double_come_back_the_same() -> None:
    """Whole numbers between 2**53 and 2**64, and beyond."""
    for text in (
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775809",
        "1" + "0" * 400,
        "1e400",
        "1e-400",
    ):
        line = f'{{"a":{text}}}'.encode()
        assert verdict(jsonin.parse_object, line) == verdict(BULK.parse, line)


def test_an_error_names_the_line() -> None:
    """Truncated on its third line."""
    with pytest.raises(InvalidJsonError, match="line 3"):
        jsonin.parse_object('{"chunk":\n"x",\n"tags":')


def test_an_error_of_a_stream_names_its_line() -> None:
    """Truncated and well-formed lines that are no object, with either parser's verdict."""
    for line in (b'{"chunk":', b"[1]", b'{"a":NaN}', b'"\xff"'):
        with pytest.raises(InvalidJsonError, match="line 7"):
            BULK.parse(line, 7)


def test_an_error_says_what_stands_there() -> None:
    """An object is not called null, and NaN keeps its name."""
    with pytest.raises(ClawmemError, match="not an object"):
        jsonin.parse_array("--embedding", '{"a":1}')
    with pytest.raises(InvalidJsonError, match=": NaN is no JSON value"):
        jsonin.parse_object('{"a":NaN}')


def test_a_vector_must_be_an_array() -> None:
    """Comma-separated numbers, an object and a text are none."""
    assert [1, 2.5] == jsonin.parse_array("--embedding", "[1,2.5]")
    for text in ("1,2", '{"a":1}', '"x"', "", "[1"):
        with pytest.raises(ClawmemError):
            jsonin.parse_array("--embedding", text)
