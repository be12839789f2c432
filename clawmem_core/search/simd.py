"""Vector products by simsimd over plain buffers. Importing it raises ImportError where simsimd is not installed.

Loaded by one-shot search: simsimd imports nothing. Products of int8 and float64 rows are summed as wide as they come,
those of half and single precision rows in single precision.
"""

from __future__ import annotations

import struct

import simsimd as _simsimd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_library: Any = _simsimd  # its stubs know numpy arrays only

for _kernel in ("sapphire", "neon_f16"):  # these may sum half-precision products in half precision
    _library.disable_capability(_kernel)

# A half-precision number's two bytes shifted left by 42 bits are the double 2**-1008 times as large (IEEE 754: its five
# bits of exponent become the lowest of eleven). Bytes 5, 6 and 7 of the double, each from the lower or the upper byte:
_WIDENED = 2.0**1008
_BYTE_5 = _BYTE_6_HIGH = bytes(range(0, 256, 4)) * 4
_BYTE_6_LOW = b"".join(bytes((bits,)) * 64 for bits in range(4))
_BYTE_7 = b"".join(bytes((bits,)) * 64 for bits in (0, 1, 0x80, 0x81))
_NOT_FINITE = bytes((0x7C, 0x7D, 0x7E, 0x7F, 0xFC, 0xFD, 0xFE, 0xFF))  # upper bytes with all bits of the exponent


def dot(one: Any, other: Any) -> float:
    """Product of two float64 rows."""
    product: float = _library.dot(one, other)
    return product


def int8_products(queries: bytes, rows: Any, dim: int) -> memoryview:
    """Products of int8 queries with int8 rows, int32, query by query."""
    left = memoryview(queries).cast("b", (len(queries) // dim, dim))
    right = memoryview(rows).cast("B").cast("b", (len(rows) // dim, dim))
    return memoryview(_library.cdist(left, right, "dot", out_dtype="int32")).cast("B").cast("i")


def float_products(queries: Any, rows: Any, dim: int, half: bool) -> list[float]:
    """Products of float16 (`half`) or float32 queries with such rows, query by query."""
    kind: Any = "H" if half else "f"
    size, dtype = (2, "float16") if half else (4, "float32")
    left = memoryview(queries).cast("B").cast(kind, (len(queries) // (size * dim), dim))
    right = memoryview(rows).cast("B").cast(kind, (len(rows) // (size * dim), dim))
    found: Any = memoryview(_library.cdist(left, right, "dot", dtype=dtype)).cast("B").cast("d")
    products: list[float] = found.tolist()
    return products


def half_lengths(rows: bytes, dim: int) -> list[float]:
    """Squared lengths of float16 rows, in single precision."""
    origin = memoryview(bytes(2 * dim)).cast("H", (1, dim))
    right = memoryview(rows).cast("H", (len(rows) // (2 * dim), dim))
    found: Any = memoryview(_library.cdist(origin, right, "sqeuclidean", dtype="float16")).cast("B").cast("d")
    lengths: list[float] = found.tolist()
    return lengths


def doubles(rows: bytes | memoryview, half: bool) -> Any:
    """Float16 (`half`) or float32 values, one after the other, as float64; exact."""
    if not half:
        return memoryview(struct.pack(f"{len(rows) // 4}d", *memoryview(rows).cast("f"))).cast("d")
    rows = bytes(rows)  # a memoryview is slow with steps
    low, high = rows[0::2], rows[1::2]
    count = len(low)
    if len(high.translate(None, _NOT_FINITE)) < count:  # infinities and NaN, which only a damaged file holds
        return memoryview(struct.pack(f"{count}d", *struct.unpack(f"<{count}e", rows))).cast("d")
    wide = bytearray(8 * count)
    wide[5::8] = low.translate(_BYTE_5)
    wide[6::8] = _byte_sums(low.translate(_BYTE_6_LOW), high.translate(_BYTE_6_HIGH))
    wide[7::8] = high.translate(_BYTE_7)
    small = memoryview(wide).cast("d")
    return memoryview(_library.wsum(small, small, dtype="float64", alpha=_WIDENED, beta=0.0)).cast("B").cast("d")


def _byte_sums(one: bytes, other: bytes) -> memoryview:
    """Sums of bytes that are below 256."""
    return memoryview(_library.wsum(one, other, dtype="uint8", alpha=1.0, beta=1.0)).cast("B")


def double_products(query: Any, rows: Any) -> list[float]:
    """Products of a float64 query with float64 rows of as many values, one after the other."""
    return _double_distances(query, rows, "dot")


def double_lengths(rows: Any, dim: int) -> list[float]:
    """Squared lengths of float64 rows."""
    return _double_distances(memoryview(bytes(8 * dim)).cast("d"), rows, "sqeuclidean")


def _double_distances(query: Any, rows: Any, metric: str) -> list[float]:
    dim = len(query)
    left, right = query.cast("B").cast("d", (1, dim)), rows.cast("B").cast("d", (len(rows) // dim, dim))
    found: Any = memoryview(_library.cdist(left, right, metric, dtype="float64")).cast("B").cast("d")
    distances: list[float] = found.tolist()
    return distances
