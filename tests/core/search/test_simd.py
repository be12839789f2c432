"""simd.py: what simsimd computes over plain buffers."""

from __future__ import annotations

import math
import struct

import pytest

simd = pytest.importorskip("clawmem_core.search.simd")


def test_every_half_precision_number_becomes_its_double() -> None:
    """All 65,536, zeros with their sign, subnormal ones, infinities and NaN included."""
    finite = [bits for bits in range(1 << 16) if bits & 0x7C00 != 0x7C00]
    rows = struct.pack(f"<{len(finite)}H", *finite)
    expected = struct.unpack(f"<{len(finite)}e", rows)
    found = simd.doubles(rows, True).tolist()
    assert [(value, math.copysign(1, value)) for value in found] == [
        (value, math.copysign(1, value)) for value in expected
    ]
    odd = struct.pack("<4e", math.inf, -math.inf, math.nan, 1.5)
    assert str(simd.doubles(odd, True).tolist()) == "[inf, -inf, nan, 1.5]"


def test_single_precision_numbers_become_doubles() -> None:
    """Exactly, the smallest and largest too."""
    rows = struct.pack("<4f", 1e-45, -3.4e38, 0.1, 0.0)
    assert simd.doubles(rows, False).tolist() == list(struct.unpack("<4f", rows))


@pytest.mark.parametrize("dim", [1, 3, 384])
def test_products_and_lengths_of_rows(dim: int) -> None:
    """Each row's product with the query and its squared length, in the order of the rows."""
    values = [math.sin(at) for at in range(5 * dim)]
    query = [math.cos(at) for at in range(dim)]
    rows = memoryview(struct.pack(f"{5 * dim}d", *values)).cast("d")
    products = simd.double_products(memoryview(struct.pack(f"{dim}d", *query)).cast("d"), rows)
    lengths = simd.double_lengths(rows, dim)
    for at in range(5):
        row = values[at * dim : at * dim + dim]
        assert products[at] == pytest.approx(sum(a * b for a, b in zip(query, row, strict=True)), abs=1e-12)
        assert lengths[at] == pytest.approx(sum(a * a for a in row), rel=1e-12)
