"""JSON input: one strict object or array, or many lines at orjson's speed with the strict parser's verdicts.

Invariants: no duplicate keys, NaN, byte order mark, invalid UTF-8 or trailing data ever gets through; an error names
the line; every length is bounded before it is read. HOT; orjson is imported by `LineParser` only.
"""

from __future__ import annotations

import os

from clawmem_core.errors import InvalidInputError, InvalidJsonError, StorageError
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

MAX_INPUT: Final = 64 << 20  # bytes of one JSON document
_STEP: Final = 1 << 18  # bytes; a pipe holds 64 KiB, unless somebody made it larger
_FEW: Final = 64
_LONG: Final = 2048  # bytes from which looking for each colon is faster than looking at each byte
_EXACT: Final = 2.0**53  # beyond it orjson and the strict parser may differ on whole numbers
_STDIN: Final = 0


def read_step() -> bytes:
    """The next bytes of stdin; b"" at its end. Raises StorageError."""
    try:
        return os.read(_STDIN, _STEP)
    except OSError as error:
        raise StorageError(path="standard input", detail=os.strerror(error.errno or 0)) from None


def read_all() -> bytes:
    """All of stdin. Raises InvalidInputError beyond 64 MiB."""
    parts: list[bytes] = []
    size = 0
    while part := read_step():
        parts.append(part)
        size += len(part)
        if size > MAX_INPUT:
            raise InvalidInputError(field="stdin", detail=f"holds more than {MAX_INPUT >> 20} MiB")
    return b"".join(parts)


def read_object(text: str | None) -> dict[str, Any]:
    """The one JSON object in `text`, or on stdin where that is None or "-"."""
    given: str | bytes = read_all() if text is None or text == "-" else text
    if not given.strip():
        raise InvalidJsonError(line=1, detail="there is nothing; one JSON object is expected")
    return parse_object(given)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object without duplicate keys. Raises InvalidJsonError, DuplicateKeyError."""
    value = parse_json(text, refuse_duplicates=True)
    if not isinstance(value, dict):
        raise InvalidJsonError(line=1, detail=f"one JSON object is expected, not {_kind(value)}")
    return value


def parse_array(name: str, text: str) -> list[Any]:
    """A JSON array, given to option `name`; "-" reads it from stdin."""
    try:
        value = parse_json(read_all() if text == "-" else text, refuse_duplicates=True)
    except InvalidJsonError as problem:
        raise InvalidInputError(field=name, detail=f"is not JSON: {problem.fields['detail']}") from None
    if not isinstance(value, list):
        raise InvalidInputError(field=name, detail=f"must be a JSON array, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    words = (
        (list, "an array"),
        (dict, "an object"),
        (str, "a text"),
        (bool, "true or false"),
        ((int, float), "a number"),
    )
    return next((word for kind, word in words if isinstance(value, kind)), "null")


class LineParser:
    """Parses lines that hold one object each: by orjson where its answer is provably the strict parser's."""

    __slots__ = ("_loads",)

    def __init__(self) -> None:
        import orjson

        self._loads = orjson.loads

    def parse(self, line: bytes, number: int = 1) -> dict[str, Any]:
        """What `parse_object` gives for this line; an error names it by its number in the stream."""
        try:
            return self._parse(line)
        except InvalidJsonError as problem:
            raise InvalidJsonError(line=number, detail=problem.fields["detail"]) from None

    def flat(self, line: bytes) -> dict[str, Any] | None:
        """The object of a line as orjson reads it, if it has every member that stands there; None if that is unsure.

        orjson keeps the last of two equal keys. Each colon of the line stands behind a key or inside a text; so a line
        with as many colons as members has dropped none, nor has one whose other colons are all in the texts it kept
        and none of whose texts hides a colon behind an escape. Members that are objects, and numbers beyond 2**53, are
        for the strict parser.
        """
        try:
            value = self._loads(line)
        except ValueError:
            return None
        return value if _has_all(value, line) else None

    def flats(self, lines: Sequence[Any]) -> list[dict[str, Any] | None]:
        """`flat` of each of many lines; None too for what is no bytes."""
        try:
            values = list(map(self._loads, lines))
        except ValueError:
            return [self.flat(line) for line in lines]
        return [value if _has_all(value, line) else None for value, line in zip(values, lines, strict=True)]

    def _parse(self, line: bytes) -> dict[str, Any]:
        """The object of a line; whatever orjson does not settle goes to the strict parser."""
        value = self.flat(line)
        if value is None:
            return parse_object(line)
        for item in value.values():
            kind = type(item)
            if kind is dict or ((kind is float or kind is int) and not -_EXACT < item < _EXACT):
                return parse_object(line)
        return value


def _has_all(value: Any, line: bytes) -> bool:
    """Whether what orjson read is an object with every member of the line."""
    if type(value) is not dict:
        return False
    colons = line.count(b":") if len(line) < _LONG else _count_colons(line)
    return colons == len(value) or (b"\\u003" not in line and colons == _colons(value))


def _count_colons(line: bytes) -> int:
    """What line.count(b":") gives, in a tenth of the time where there are few: count() looks at each byte by itself."""
    count, at = 0, line.find(b":")
    while at >= 0:
        count += 1
        if count > _FEW:
            return count + line.count(b":", at + 1)
        at = line.find(b":", at + 1)
    return count


def _colons(members: dict[str, Any]) -> int:
    """How many colons the text of a flat object has: one a member, and those in its keys and texts."""
    texts = sum(item.count(":") for item in members.values() if type(item) is str)
    return len(members) + texts + sum(key.count(":") for key in members)
