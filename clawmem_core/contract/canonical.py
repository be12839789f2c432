"""Canonical JSON as the AgentMemoryEvent v1 contract defines it: what JavaScript prints for a value with sorted keys.

Invariants: the text depends on the value only, never on key order, number type (1 and 1.0) or platform; every number is
an IEEE-754 double, every string a sequence of UTF-16 code units; parsing accepts exactly what JSON.parse accepts.
Sources: ECMA-262 Number::toString, Number.prototype.toFixed, SerializeJSONProperty, QuoteJSONString,
OrdinaryOwnPropertyKeys. HOT: needs only C modules that load with the interpreter.

>>> stable_stringify({"b": 1.0, "10": None, "9": UNDEFINED, "a": ["\\ud800"]})
'{"10":null,"a":["\\\\ud800"],"b":1}'
"""

from __future__ import annotations

import _json

from clawmem_core.errors import InvalidInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final


class Undefined:
    """JavaScript's undefined, which JSON cannot carry: dropped from objects, null in arrays, false in conditions."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined()

# What String.prototype.trim removes. str.strip() differs: it takes U+001C-001F and U+0085 too and leaves U+FEFF.
JS_WHITESPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_MAX_ARRAY_INDEX: Final = 2**32 - 2
_INFINITY: Final = float("inf")


def js_trim(text: str) -> str:
    """`text` without leading and trailing JavaScript whitespace (25 characters)."""
    return text.strip(JS_WHITESPACE)


def utf16_length(text: str) -> int:
    """Length in UTF-16 code units, JavaScript's `length`."""
    if text.isascii():
        return len(text)
    return len(text) + sum(char > "\uffff" for char in text)


def utf16_prefix(text: str, units: int) -> str:
    """The first `units` UTF-16 code units, which may split a pair and leave a lone surrogate, as JavaScript's slice."""
    if text.isascii():
        return text[:units]
    return text.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass")


# ---------------------------------------------------------------- numbers


def number_to_string(value: float) -> str:
    """ECMAScript's String(x): shortest round-trip digits, exponent form from 1e21 up and below 1e-6.

    Raises TypeError for anything but int and float (a bool is not a number here).
    """
    number = _to_double(value)
    if number != number:
        return "NaN"
    sign = "-" if number < 0 else ""
    if number in (_INFINITY, -_INFINITY):
        return sign + "Infinity"
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)  # the value is 0.digits times ten to this power
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = "." + digits[1:] if count > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"


def to_fixed3(value: float) -> str:
    """ECMAScript's x.toFixed(3): three decimals of the exact binary value, ties away from zero.

    From 1e21 up it is the ordinary number text. Raises TypeError for anything but int and float.
    """
    number = _to_double(value)
    if number != number or abs(number) >= 1e21:
        return number_to_string(number)
    numerator, denominator = abs(number).as_integer_ratio()
    thousandths = (2000 * numerator + denominator) // (2 * denominator)
    sign = "-" if number < 0 else ""  # -0 prints without a sign, -0.0001 with one
    return f"{sign}{thousandths // 1000}.{thousandths % 1000:03d}"


def _to_double(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a number is needed, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:  # an int beyond the doubles is what a long literal means to JavaScript
        return _INFINITY if value > 0 else -_INFINITY


# ---------------------------------------------------------------- strings


def quote(text: str) -> str:
    """ECMAScript's JSON string literal: control characters and lone surrogates escaped, everything else raw."""
    quoted: str = _json.encode_basestring(text)
    try:
        quoted.encode()
    except UnicodeEncodeError:
        joined = quoted.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in joined)
    return quoted


def sha256_hex(text: str) -> str:
    """SHA-256 over the UTF-8 bytes of `text`, lower-case hex; a lone surrogate counts as U+FFFD, as in JavaScript.

    Raises TypeError if `text` is no str.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is needed, not {type(text).__name__}")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    from clawmem_core.contract.digest import sha256_hexdigest  # most commands parse and hash nothing

    return sha256_hexdigest(data)


# ---------------------------------------------------------------- values


def stable_stringify(value: object) -> str | Undefined:
    """Canonical JSON text of a value made of None, bool, int, float, str, list, tuple, dict and UNDEFINED.

    NaN and the infinities print as null; members that are UNDEFINED are dropped; at the top level UNDEFINED gives
    UNDEFINED. Raises TypeError for other types and for keys that are no str, InvalidInputError when nested too deeply.
    """
    if value is UNDEFINED:
        return UNDEFINED
    return canonical_text(value)


def canonical_text(value: object) -> str:
    """`stable_stringify` of a value that is not UNDEFINED."""
    return _bounded_encode(value, quote)


def canonical_ascii(value: object) -> bytes:
    """The same value with all but ASCII escaped, so that it parses to the same strings, lone surrogates included.

    This is the stored form of an event. Identities are over `canonical_text`.
    """
    return _bounded_encode(value, _json.encode_basestring_ascii).encode("ascii")


def _bounded_encode(value: object, quoted: Callable[[str], str]) -> str:
    try:
        return _encode(value, quoted)
    except RecursionError:
        raise InvalidInputError(field="value", detail="nested too deeply, or contains itself") from None


def _encode(value: object, quoted: Callable[[str], str]) -> str:
    if isinstance(value, str):
        return quoted(value)
    if value is None or value is UNDEFINED:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        text = number_to_string(value)
        return "null" if text[-1] in "Ny" else text  # NaN, Infinity
    if isinstance(value, (list, tuple)):
        return f"[{','.join([_encode(item, quoted) for item in value])}]"
    if isinstance(value, dict):
        members = [
            f"{quoted(key)}:{_encode(value[key], quoted)}" for key in _ordered(value) if value[key] is not UNDEFINED
        ]
        return f"{{{','.join(members)}}}"
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


def _ordered(members: dict[str, Any]) -> list[str]:
    """Keys as a JavaScript object yields them once sorted: array indices by number, then the rest by UTF-16 units."""
    indices: list[str] = []
    names: list[str] = []
    for key in members:
        if not isinstance(key, str):
            raise TypeError(f"an object key must be text, not {type(key).__name__}")
        (indices if _is_array_index(key) else names).append(key)
    indices.sort(key=int)
    if all(name.isascii() for name in names):
        names.sort()
    else:
        names.sort(key=_utf16_units)
    return indices + names


def _utf16_units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _is_array_index(key: str) -> bool:
    """True for "0" and for digits without a leading zero up to 2**32 - 2."""
    if not (key.isascii() and key.isdigit()) or len(key) > 10:
        return False
    return key == "0" or (key[0] != "0" and int(key) <= _MAX_ARRAY_INDEX)
