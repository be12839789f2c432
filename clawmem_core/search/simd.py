"""Vector products by simsimd over plain buffers. Importing it raises ImportError where simsimd is not installed.

Loaded by one-shot search: simsimd imports nothing. Products of int8 and float64 rows are summed as wide as they come,
those of half and single precision rows in single precision.
"""

from __future__ import annotations

import simsimd as _simsimd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_library: Any = _simsimd  # its stubs know numpy arrays only

for _kernel in ("sapphire", "neon_f16"):  # these may sum half-precision products in half precision
    _library.disable_capability(_kernel)


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
