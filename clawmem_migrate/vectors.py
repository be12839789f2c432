"""Embeddings of a source, in whatever encoding, as the float32 numbers they are and the bytes a store holds.

Invariants: values go to float32 first, then to float16, with the range check on the float32 (door.py); whatever the
door would refuse is refused here with the same reason, and nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.door import FLOAT16_MAX, MAX_DIM
from clawmem_migrate.refusals import Problem

Matrix = npt.NDArray[np.float32]

_BLOBS: dict[str, np.dtype[Any]] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "f64": np.dtype("<f8")}
_GLANCE = 8
_HALF_ZERO = 2.0**-25  # the greatest magnitude that rounds to zero in float16 (half of its least, ties to even)
_FIX_ENCODING = "store the numbers as the mapping says, or set `encoding` in a --map FILE"


class VectorReader:
    """Reads the embeddings of one column. `encoding`: f32, f16, f64, json or none; `dim` may become known later.

    With `only_check` vectors are tested as ever but stay float32, which saves a third of the time.
    """

    def __init__(
        self, column: str, encoding: str, null_allowed: bool, float16: bool, dim: int | None, only_check: bool = False
    ) -> None:
        self.column, self.encoding, self.null_allowed, self.float16 = column, encoding, null_allowed, float16
        self.dim, self.only_check = dim, only_check

    @property
    def stored(self) -> np.dtype[Any]:
        """The type a store holds."""
        return np.dtype("<f2" if self.float16 and not self.only_check else "<f4")

    def length(self, value: Any) -> int | None:
        """How many numbers a stored value holds, or None if it is no vector."""
        if self.encoding == "json":
            values = _numbers(value)
            found = len(values) if values is not None else 0
        elif self.encoding == "none" or type(value) is not bytes:
            return None
        else:
            found, rest = divmod(len(value), _BLOBS[self.encoding].itemsize)
            found = 0 if rest else found
        return found if 1 <= found <= MAX_DIM else None

    def read(self, values: list[Any]) -> tuple[Matrix, npt.NDArray[np.bool_] | None] | None:
        """All vectors of a batch as the store holds them and which rows have one; None where any has a problem."""
        dim = self.dim or 1
        present = None
        if self.encoding == "none":
            return np.zeros((len(values), dim), self.stored), np.zeros(len(values), np.bool_)
        if self.null_allowed and None in values:
            present = np.array([value is not None for value in values], np.bool_)
            values = [value for value in values if value is not None]
        matrix = self._matrix(values, dim)
        if matrix is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            stored = self._stored(matrix)
        if stored is None:
            return None
        if present is not None:
            whole = np.zeros((len(present), dim), self.stored)
            whole[present] = stored
            stored = whole
        return stored, present

    def _matrix(self, values: list[Any], dim: int) -> Matrix | None:
        """Values as float32 rows, or None where one has not `dim` numbers."""
        if not values:
            return np.zeros((0, dim), np.float32)
        if self.encoding == "json":
            rows = [_numbers(value) for value in values]
            if any(row is None or len(row) != dim for row in rows):
                return None
            with np.errstate(over="ignore"):
                return np.array(rows, np.float64).astype(np.float32)
        kind = _BLOBS[self.encoding]
        if set(map(type, values)) != {bytes} or set(map(len, values)) != {dim * kind.itemsize}:
            return None
        found = np.frombuffer(b"".join(values), kind).reshape(len(values), dim)
        with np.errstate(over="ignore", invalid="ignore"):
            matrix: Matrix = found.astype(np.float32, copy=False)
            return matrix

    def _stored(self, matrix: Matrix) -> npt.NDArray[Any] | None:
        """Float32 rows in the width of the store, or None where the door would refuse one."""
        if not len(matrix):
            return matrix.astype(self.stored)
        low, high = matrix.min(), matrix.max()  # NaN if any value is
        limit = FLOAT16_MAX if self.float16 else float(np.finfo(np.float32).max)
        if not (-limit <= low and high <= limit):
            return None
        least = _HALF_ZERO if self.float16 else 0.0
        for columns in (
            matrix[:, :_GLANCE],
            matrix,
        ):  # nearly every vector shows in its first values that it is not zero
            if (np.abs(columns).max(axis=1) > least).all():
                return matrix.astype(self.stored, copy=False)
        return None

    def problem(self, value: Any) -> Problem | None:
        """What is wrong with one value, or None."""
        if self.encoding == "none" or (value is None and self.null_allowed):
            return None
        if value is None:
            return self._refuse("is NULL", 'give the row a vector, or map it with null = "none"')
        if self.encoding == "json":
            if type(value) is not str:
                return self._refuse(f"is {storage_class(value)}, JSON text is expected", _FIX_ENCODING)
            numbers = _numbers(value)
            if numbers is None:
                return self._refuse("is no JSON array of numbers", "store the vector as [0.1, 0.2, …]")
            count: float = len(numbers)
        else:
            kind = _BLOBS[self.encoding]
            if type(value) is not bytes:
                return self._refuse(f"is {storage_class(value)}, a BLOB is expected", _FIX_ENCODING)
            count = len(value) / kind.itemsize
            if len(value) % kind.itemsize:
                fix = f"a vector is {kind.itemsize} bytes a number, without a header"
                return self._refuse(f"has {len(value)} bytes, no multiple of {kind.itemsize}", fix)
        if not 1 <= count <= MAX_DIM:
            return self._refuse(f"has {count:g} values, 1 to {MAX_DIM} are possible", "embed the text again")
        if count != self.dim:
            fix = "embed the text again with the same model, or give --embedding-dim"
            return self._refuse(f"has {count:g} values, the others have {self.dim}", fix)
        return self._number_problem(value)

    def _number_problem(self, value: Any) -> Problem | None:
        """What is wrong with the numbers of a vector of the right length."""
        matrix = self._matrix([value], self.dim or 1)
        if matrix is None:
            return self._refuse("is not readable", "embed the text again")
        if not np.isfinite(matrix).all():
            what = "NaN" if np.isnan(matrix).any() else "infinity"
            return self._refuse(
                f"holds {what} at position {int(np.argmin(np.isfinite(matrix)))}", "embed the text again"
            )
        largest = float(matrix.ravel()[np.abs(matrix).argmax()])
        if self.float16 and abs(largest) > FLOAT16_MAX:
            return self._refuse(f"holds {largest:g}, beyond the ±65504 of float16", "scale the vectors, or give --f32")
        if not np.abs(matrix).max() > (_HALF_ZERO if self.float16 else 0.0):
            return self._refuse("is all zeros (after rounding)", 'a row without a vector holds NULL and null = "none"')
        return None

    def _refuse(self, what: str, fix: str) -> Problem:
        return Problem(self.column, what, fix)


def _numbers(value: Any) -> list[float] | None:
    """The numbers of a JSON array, or None if the value is none."""
    if type(value) is not str:
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not set(map(type, found)) <= {int, float}:
        return None
    try:
        return [float(number) for number in found]
    except OverflowError:
        return None


def storage_class(value: Any) -> str:
    """SQLite's word for the storage class of a value."""
    if value is None:
        return "NULL"
    names = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
    return names.get(type(value), "TEXT that is not UTF-8")
