"""Numbers of the words of ASCII texts, looked up many at a time: most of the time an index takes is spent here.

A word of up to 16 bytes is its bytes as two numbers, and an open hash table of such pairs in arrays gives all numbers
of a block of texts with few array operations. Whatever the table does not have is asked of a function.

Invariants: two words are the same only if all their bytes are; a word gets the number that `ask` gives it, whether
the table holds it or not, so that texts made to collide cost time but change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LONGEST = 16  # bytes of a word that the table can hold
_ASKED = 4096  # unknown words asked for before the others are looked for again
_ROUNDS = 12  # places looked at before a word counts as unknown
_LEAST = 1 << 14  # places of a new table
_ROOM = 4  # places for each word
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd, from xxHash
_FREE = np.uint32(0xFFFFFFFF)
_SPACE = 32
#: by number of bytes: the mask that keeps so many
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


class WordTable:
    """Word -> number. `ask`: gives the numbers of words, below 2**32 - 1, and always the same for the same word."""

    def __init__(self, ask: Callable[[list[str]], list[int]]) -> None:
        self._ask = ask
        self._held = 0
        self._clear(_LEAST)

    def _clear(self, size: int) -> None:
        self._shift = np.uint64(64 - size.bit_length() + 1)
        self._low, self._high = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
        self._numbers = np.full(size, _FREE, np.uint32)

    def numbers(self, text: bytes) -> Array:
        """The numbers of all words of a text in order, u32: words are runs of ASCII other than the space."""
        data = np.frombuffer(text + bytes(LONGEST), np.uint8)
        inside = np.zeros(len(text) + 2, bool)
        inside[1:-1] = data[: len(text)] != _SPACE
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        starts, ends = edges[::2], edges[1::2]
        sizes = ends - starts
        eight = np.ndarray((len(text) + 8,), "<u8", data, strides=(1,))  # the eight bytes from each place on
        low = eight[starts] & _MASKS[np.minimum(sizes, 8)]
        high = eight[np.minimum(starts + 8, len(text))] & _MASKS[np.clip(sizes - 8, 0, 8)]
        found = self._look(low, high)
        found[sizes > LONGEST] = _FREE
        unknown = np.flatnonzero(found == _FREE)
        while len(unknown):
            some, unknown = unknown[:_ASKED], unknown[_ASKED:]
            words = zip(starts[some].tolist(), ends[some].tolist(), strict=True)
            found[some] = self._ask([text[start:end].decode() for start, end in words])
            short = some[sizes[some] <= LONGEST]
            self._add(low[short], high[short], found[short])
            found[unknown] = np.where(sizes[unknown] > LONGEST, _FREE, self._look(low[unknown], high[unknown]))
            unknown = unknown[found[unknown] == _FREE]
        return found

    def _places(self, low: Array, high: Array) -> Array:
        mixed = (low ^ (high * _SECOND)) * _FIRST
        return (mixed >> self._shift).astype(np.int64)

    def _look(self, low: Array, high: Array) -> Array:
        """Numbers of words, _FREE where the table has none."""
        places = self._places(low, high)
        found = np.where((self._low[places] == low) & (self._high[places] == high), self._numbers[places], _FREE)
        missed = np.flatnonzero((found == _FREE) & (self._numbers[places] != _FREE))
        for step in range(1, _ROUNDS):
            if not len(missed):
                break
            near = (places[missed] + step) & (len(self._numbers) - 1)
            held = self._numbers[near]
            same = (self._low[near] == low[missed]) & (self._high[near] == high[missed])
            found[missed[same]] = held[same]
            missed = missed[~same & (held != _FREE)]
        return found

    def _add(self, low: Array, high: Array, numbers: Array) -> None:
        """Put words that the table does not have; the same word may come more than once."""
        _, first = np.unique(numbers, return_index=True)
        low, high, numbers = low[first], high[first], numbers[first]
        if (self._held + len(first)) * _ROOM > len(self._numbers):
            held = self._numbers != _FREE
            low, high = np.concatenate([self._low[held], low]), np.concatenate([self._high[held], high])
            numbers = np.concatenate([self._numbers[held], numbers])
            self._held = 0
            self._clear(1 << (2 * _ROOM * len(numbers)).bit_length())
        places = self._places(low, high)
        for step in range(_ROUNDS):
            near = (places + step) & (len(self._numbers) - 1)
            _, first = np.unique(near, return_index=True)
            chosen = first[self._numbers[near[first]] == _FREE]
            self._low[near[chosen]], self._high[near[chosen]] = low[chosen], high[chosen]
            self._numbers[near[chosen]] = numbers[chosen]
            self._held += len(chosen)
            rest = np.ones(len(places), bool)
            rest[chosen] = False
            if not rest.any():
                break
            low, high, numbers, places = low[rest], high[rest], numbers[rest], places[rest]
