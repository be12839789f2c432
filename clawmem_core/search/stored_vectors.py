"""The stored vectors of the rows of an index, for numpy: read where they lie, compared in float64.

A process that searches again keeps them as float32, which holds every stored value exactly, up to RESIDENT_BYTES.

Invariant: `exact` and `compare` are the cosines of ranking.py; `near` differs from them by less than `near_error`.
"""

from __future__ import annotations

import os
from math import sqrt
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads: its thread pool costs more than it gives here

import numpy as np
import numpy.typing as npt

from clawmem_core.search import ranking
from clawmem_core.search.fusion import rounded
from clawmem_core.search.index_format import CHUNK_ROWS, UnusableIndex
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.storage import fs

Array = npt.NDArray[Any]

RESIDENT_BYTES = 64 << 20
FIRST_SEARCHES = 2  # answered before vectors are kept
BLOCK = 8192
SINGLE_ERROR = 1e-5  # of a cosine from single precision products at 384 dimensions
NO_LENGTH = 1e-100  # below the length of any float32 vector but zeros
UNSAFE = 1e15  # lengths beyond it, or below its inverse, are not for single precision


class StoredVectors:
    """The vectors of one index. `near_error`: see `near`."""

    def __init__(self, base: IndexReader) -> None:
        self.base = base
        self.near_error = SINGLE_ERROR * max(1.0, (base.dim / 384) ** 0.5)
        self._bits = np.dtype("<u2" if base.float16 else "<f4")
        self._asked = 0
        self._resident: tuple[Array, Array, Array | None] | None = None
        self._windows: Array | None = None
        offsets = None if base.h5_fd < 0 else base.sections.column("chunks")
        self._offsets = None if offsets is None else np.asarray(offsets).astype(np.int64)

    def stored(self, rows: Array) -> Array:
        """Stored values of some rows, as bits of float16 or as float32."""
        base, size = self.base, self._bits.itemsize
        if self._offsets is None or (self._offsets % size).any():
            return np.frombuffer(base.stored_vectors(rows.tolist()), self._bits).reshape(len(rows), base.dim)
        if self._windows is None:
            mapped = fs.map_file(base.h5_fd, base.header.h5_size)
            flat = np.frombuffer(mapped, self._bits, len(mapped) // size)
            self._windows = np.lib.stride_tricks.sliding_window_view(flat, base.dim)
        starts = self._offsets[rows // CHUNK_ROWS] // size + rows % CHUNK_ROWS * base.dim
        if len(starts) and int(starts.max()) >= len(self._windows):
            raise UnusableIndex("the HDF5 file is shorter than the index says")
        found: Array = self._windows[starts]
        return found

    def exact(self, vector: Array, rows: Array) -> Array:
        """Cosines of rows that have a vector, rounded, float64[n]. `vector`: float64[dim]."""
        kept = self._kept()
        if kept is None:
            return self.compare(vector, self.stored(rows))
        wide, lengths, _ = kept
        products = wide.take(rows, axis=0).astype(np.float64).dot(vector)
        products /= sqrt(vector.dot(vector)) * lengths[rows]
        return rounded(products, ranking.SCORE_DIGITS)

    def compare(self, vector: Array, stored: Array) -> Array:
        """Cosines with stored values, given as bits of float16 or as float32; rounded."""
        wide = self._widened(stored)
        return rounded(wide @ vector / (np.sqrt(vector @ vector) * _lengths(wide)), ranking.SCORE_DIGITS)

    def compare_bytes(self, vector: Array, stored: bytes) -> Array:
        """Cosines with vectors as stored, one after the other; rounded."""
        return self.compare(vector, np.frombuffer(stored, self._bits).reshape(-1, self.base.dim))

    def near(self, vector: Array, rows: Array) -> Array | None:
        """Cosines of ascending rows that have a vector, in single precision; None where that is not safe."""
        unit = (vector / sqrt(vector.dot(vector))).astype(np.float32)
        kept = self._kept()
        if kept is None:
            units = self.units(rows)
            return None if units is None else units @ unit
        wide, _, inverse = kept
        if inverse is None:
            return None
        if len(rows) < self.base.count:
            wide, inverse = wide[rows], inverse[rows]
        found: Array = wide.dot(unit)
        found *= inverse
        return found

    def units(self, rows: Array) -> Array | None:
        """Rows as unit vectors, float32; zeros where there is none. None where float32 cannot give them."""
        norms = self._norms()[rows]
        if not _safe(norms):
            return None
        stored = self.stored(rows)
        wide = stored.view(np.float16).astype(np.float32) if self.base.float16 else stored
        units: Array = wide / np.where(norms > 0, norms, 1)[:, None]
        return units

    def _norms(self) -> Array:
        column = self.base.sections.column("norm")
        if column is None:
            raise UnusableIndex("section norm is missing")
        return np.frombuffer(column, np.float32)

    def _kept(self) -> tuple[Array, Array, Array | None] | None:
        """All rows as float32, their lengths in float64, and the inverse of these in float32 where that is safe."""
        base = self.base
        if self._resident is None and base.count * base.dim * 4 <= RESIDENT_BYTES:
            self._asked += 1
            if self._asked > 2 * FIRST_SEARCHES:
                wide, lengths = np.empty((base.count, base.dim), np.float32), np.empty(base.count)
                for start in range(0, base.count, BLOCK):
                    rows = np.arange(start, min(start + BLOCK, base.count))
                    exact = self._widened(self.stored(rows))
                    wide[rows], lengths[rows] = exact, _lengths(exact)
                safe = _safe(self._norms())
                inverse = (1.0 / np.where(lengths > NO_LENGTH, lengths, 1.0)).astype(np.float32) if safe else None
                self._resident = wide, lengths, inverse
        return self._resident

    def _widened(self, stored: Array) -> Array:
        return (stored.view(np.float16) if self.base.float16 else stored).astype(np.float64)


def _lengths(wide: Array) -> Array:
    """Lengths of rows; NO_LENGTH for zeros, so that a cosine with them is 0."""
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return np.maximum(lengths, NO_LENGTH)


def _safe(norms: Array) -> bool:
    """Whether these lengths, 0 for no vector, suit single precision."""
    having = norms[norms > 0]
    return not len(having) or bool(having.min() > 1 / UNSAFE and having.max() < UNSAFE)
