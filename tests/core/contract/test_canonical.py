"""Canonical JSON, number text."""

from __future__ import annotations

import hashlib
import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.contract import canonical, digest
from clawmem_core.contract.canonical import UNDEFINED
from clawmem_core.errors import InvalidInputError
from clawmem_core.strict_json import parse_json
from tests.json_values import doubles, joined, text, values


@given(doubles)
@settings(max_examples=300)
def test_number_text_round_trips(number: float) -> None:
    """The shortest digits name the same double, without padding, plus or point at the end."""
    printed = canonical.number_to_string(number)
    assert number == float(printed)
    assert not printed.endswith((".", ".0"))
    assert len(printed) <= 25


@given(st.floats(-1e20, 1e20))
@settings(max_examples=300)
def test_to_fixed3_is_exact(number: float) -> None:
    """Three decimals of the exact value, ties away from zero, against the decimal module."""
    expected = format(Decimal(number).quantize(Decimal("0.001"), ROUND_HALF_UP), "f")
    assert canonical.to_fixed3(number) == ("0.000" if number == 0 else expected)


@pytest.mark.parametrize("value", [True, None, "1", 1j])
def test_only_numbers_have_number_text(value: object) -> None:
    """A bool or text is not taken for a number."""
    with pytest.raises(TypeError):
        canonical.number_to_string(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        canonical.to_fixed3(value)  # type: ignore[arg-type]


def test_int_beyond_the_doubles() -> None:
    """A Python int that no double holds is what its literal is to JavaScript: infinite, so null."""
    assert canonical.number_to_string(-(10**400)) == "-Infinity"
    assert canonical.stable_stringify([10**400]) == "[null]"


@given(values)
@settings(max_examples=200)
def test_canonical_text_parses_back(value: object) -> None:
    """Canonical text and its ASCII form name the same value."""
    expected = joined(value)
    assert expected == json.loads(canonical.canonical_text(value), parse_int=float)
    assert expected == parse_json(canonical.canonical_ascii(value))


@given(st.dictionaries(text, st.just(0), max_size=8), st.randoms())
@settings(max_examples=200)
def test_key_order_does_not_matter(members: dict[str, int], random: object) -> None:
    """The text is the same whatever order the members came in; keys ascend by index, then by UTF-16 units."""
    keys = list(members)
    random.shuffle(keys)  # type: ignore[attr-defined]
    printed = canonical.canonical_text({key: 0 for key in keys})
    assert canonical.canonical_text(members) == printed
    names = [key for key in keys if not _is_index(key)]
    indices = [key for key in keys if _is_index(key)]
    expected = sorted(indices, key=int) + sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    assert expected == [pair[0] for pair in json.loads(printed, object_pairs_hook=lambda pairs: pairs)]


def _is_index(key: str) -> bool:
    return key in {str(number) for number in range(10_000)}


def test_array_indices_come_first() -> None:
    """Keys that are array indices, up to 2**32 - 2 and without leading zeros, come first, by number."""
    keys = ["a", "10", "9", "4294967294", "4294967295", "01", "-1", "1.0", "0", "\u0661"]
    printed = canonical.canonical_text(dict.fromkeys(keys))
    found = [pair[0] for pair in json.loads(printed, object_pairs_hook=lambda pairs: pairs)]
    assert found == ["0", "9", "10", "4294967294", "-1", "01", "1.0", "4294967295", "a", "\u0661"]


def test_undefined() -> None:
    """Undefined vanishes from objects, is null in arrays, stays undefined alone and counts as false."""
    assert canonical.stable_stringify({"a": UNDEFINED, "b": [UNDEFINED]}) == '{"b":[null]}'
    assert canonical.stable_stringify(UNDEFINED) is UNDEFINED
    assert not UNDEFINED
    assert repr(UNDEFINED) == "UNDEFINED"


def test_surrogate_pair_as_two_code_points() -> None:
    """Two code points that form a pair are one character, as in a JavaScript string."""
    assert canonical.quote("\ud83d\ude00\ud83d") == '"\U0001f600\\ud83d"'
    assert canonical.sha256_hex("\ud83d\ude00") == canonical.sha256_hex("\U0001f600")


@given(st.binary(max_size=200))
def test_digest_is_sha256(data: bytes) -> None:
    """The digest is the standard one."""
    assert hashlib.sha256(data).hexdigest() == digest.sha256_hexdigest(data)


@pytest.mark.parametrize("value", [b"x", {1: 2}, {1, 2}, object(), [b""]])
def test_values_without_canonical_json(value: object) -> None:
    """What JSON cannot carry is a TypeError, not a guess."""
    with pytest.raises(TypeError):
        canonical.stable_stringify(value)


def test_depth() -> None:
    """Deep nesting and cycles are refused by name."""
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(InvalidInputError, match="nested"):
        canonical.stable_stringify(cycle)


@given(text, st.integers(0, 30))
def test_utf16_lengths_and_cuts(value: str, units: int) -> None:
    """Lengths and cuts count UTF-16 units, against the encoded bytes."""
    raw = joined(value)
    assert isinstance(raw, str)
    encoded = raw.encode("utf-16-le", "surrogatepass")
    assert len(encoded) // 2 == canonical.utf16_length(value)
    assert encoded[: 2 * units] == canonical.utf16_prefix(value, units).encode("utf-16-le", "surrogatepass")
