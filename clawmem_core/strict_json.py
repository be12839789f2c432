"""Strict JSON input: one document, exactly as JSON.parse reads it.

Invariants: accepts what ECMA-262 JSON.parse accepts and nothing else; every number is an IEEE-754 double, whole ones as
int where a double holds them exactly. HOT: needs only C modules that load with the interpreter.
"""

from __future__ import annotations

import _json

from clawmem_core.errors import DuplicateKeyError, InvalidJsonError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

MAX_SAFE_INTEGER: Final = 2**53 - 1
FOLLOWED: Final = "something follows the value"  # detail of the error about more than one document
_JSON_WHITESPACE: Final = " \t\n\r"


class _ScannerContext:
    """What the interpreter's C scanner reads its settings from."""

    __slots__ = ("memo", "object_hook", "object_pairs_hook", "parse_constant", "parse_float", "parse_int", "strict")

    def __init__(self, pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None) -> None:
        self.strict = True
        self.object_hook = None
        self.object_pairs_hook = pairs_hook
        self.parse_float = float
        self.parse_int = _parse_integer
        self.parse_constant = _refuse_constant
        self.memo: dict[str, str] = {}


def _parse_integer(digits: str) -> int | float:
    """An int where a double holds it exactly, else the double: no length limit applies, as in JavaScript."""
    return int(digits) if len(digits) <= 17 and abs(int(digits)) <= MAX_SAFE_INTEGER else float(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key=key)
            seen.add(key)
    return members


_lenient_context: Any = _ScannerContext(None)
_strict_context: Any = _ScannerContext(_refuse_duplicates)
_scan_lenient = _json.make_scanner(_lenient_context)
_scan_strict = _json.make_scanner(_strict_context)


def parse_json(text: str | bytes, *, refuse_duplicates: bool = False) -> Any:
    """The value of one JSON document, exactly as JSON.parse reads it; bytes must be UTF-8.

    Refused: a byte order mark, NaN and Infinity, other whitespace than space, tab, LF, CR, anything after the value.
    Integers beyond 2**53 - 1 come back as the double they denote, 1e400 as infinity, unpaired surrogates as they are.
    The last of two equal keys wins, unless `refuse_duplicates`: then DuplicateKeyError. Raises InvalidJsonError.
    """
    try:
        document = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1 if isinstance(text, bytes) else 1
        raise InvalidJsonError(line=line, detail="not UTF-8") from None
    end = len(document.rstrip(_JSON_WHITESPACE))
    start = len(document) - len(document.lstrip(_JSON_WHITESPACE))
    scan = _scan_strict if refuse_duplicates else _scan_lenient
    try:
        value, stop = _scan(scan, document, start)
    except StopIteration as error:
        raise _invalid(document, error.value, "a value is missing or not JSON") from None
    except RecursionError:
        raise InvalidJsonError(line=1, detail="nested too deeply") from None
    except ValueError as error:  # json.JSONDecodeError where it has a position
        detail = getattr(error, "msg", None)
        detail = str(error) if detail is None else detail[:1].lower() + detail[1:]
        raise _invalid(document, getattr(error, "pos", start), detail) from None
    if stop != end:
        raise _invalid(document, stop, FOLLOWED)
    return value


def _scan(scan: Callable[[str, int], tuple[Any, int]], document: str, start: int) -> tuple[Any, int]:
    try:
        return scan(document, start)
    except SystemError:  # the C scanner found a fault, but raises json's exception only where json is loaded
        __import__("json.decoder")

        return scan(document, start)


def _invalid(document: str, position: int, detail: str) -> InvalidJsonError:
    return InvalidJsonError(line=document.count("\n", 0, position) + 1, detail=detail)
