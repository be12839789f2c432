"""The door's fast lane for streams: plain records, many at a time, with the verdicts of door.py.

A plain record has nothing but texts of usual length, a time in seconds and a vector. What is not provably plain is left
to the door, which tells whether it is right and if not, why; nothing is refused here.

Invariants: a row taken here is byte for byte the operation that `door.object_record` and `ops.record` make; numbers are
rounded float64 → float32 → float16, with the range check on the float32.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64

from clawmem_core import clock, door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    #: seconds; how many bytes chunk, channel, session and tags have; these four as one text
    Row = tuple[float, tuple[int, int, int, int], bytes]

_KEYS = frozenset(("chunk", "embedding", "embedding_f16", "source_channel", "session_id", "tags", "timestamp", "index"))
_LEAST_HALF = 2.0**-25  # what is larger does not round to a float16 of zero
_EXACT = 1 << 53  # up to it orjson reads whole numbers as the strict parser does


class PlainRows:
    """Collects the plain records of a group. `rows`: in order; `vectors`: of each as stored, b"" for none, but only
    after `finish`. `numbers_came`: vectors of JSON numbers came before `use_numpy`.
    """

    def __init__(self, dim: int, float16: bool) -> None:
        self.dim, self.float16 = dim, float16
        self.numbers_came = False
        self.rows: list[Row] = []
        self.vectors: list[bytes] = []
        self._wide: list[int] = []  # the rows whose vectors are native float32 yet
        self._numpy: Any = None
        self._careful = False  # whether to look at the type of each number: where many are 0 or 1
        self._coded = -(-2 * dim // 3) * 4  # characters of a float16 vector in base64
        self._strict = 2 * dim % 3 != 0  # else the lengths of code and data prove that nothing was skipped
        self._pack = struct.Struct(f"{dim}f").pack

    def use_numpy(self) -> None:
        """From now on vectors of numbers are plain, too: numpy takes longer to load than a few of them to convert."""
        import numpy

        self._numpy, self.numbers_came = numpy, False

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, many: Sequence[dict[str, Any]]) -> bool:
        """Take records' JSON objects (with members as orjson gives them) as the next rows, if all of them are plain."""
        if not all(map(_KEYS.issuperset, many)):
            return False
        columns: Iterable[Any] = (
            [fields.get("chunk") for fields in many],
            [fields.get("source_channel", "cli") for fields in many],
            [fields.get("session_id", "") for fields in many],
            [fields.get("tags", "") for fields in many],
        )
        try:
            texts = list(map("".join, zip(*columns, strict=True)))
            stored = list(map(str.encode, texts))
        except (TypeError, UnicodeEncodeError):
            return False
        if max(map(len, stored)) > door.MAX_TEXT or any(b"\0" in text for text in stored):
            return False
        if not all(map(str.isascii, texts)):
            columns = (map(str.encode, column) for column in columns)
        lengths = list(zip(*(map(len, column) for column in columns), strict=True))
        if not all(chunk for chunk, _, _, _ in lengths):
            return False
        seconds: list[Any] = [fields.get("timestamp") for fields in many]
        if None in seconds:
            seconds = [clock.now() if time is None else time for time in seconds]
        if not door.NUMBERS.issuperset(map(type, seconds)):
            return False
        if not all(-door.MILLISECONDS <= time <= door.MILLISECONDS for time in seconds):
            return False
        if not all(_ignored(fields["index"]) for fields in many if "index" in fields):
            return False
        wide = [at for at, fields in enumerate(many) if "embedding" in fields]
        coded = [at for at, fields in enumerate(many) if "embedding_f16" in fields]
        floats = self._packed([many[at]["embedding"] for at in wide]) if wide else []
        halves = self._decoded([many[at]["embedding_f16"] for at in coded]) if coded else []
        if floats is None or halves is None or not set(wide).isdisjoint(coded):
            return False
        vectors, first = [b""] * len(many), len(self.rows)
        for at, vector in zip(wide, floats, strict=True):
            vectors[at] = vector
        for at, vector in zip(coded, halves, strict=True):
            vectors[at] = vector
        self._wide += [first + at for at in wide]
        self.vectors += vectors
        self.rows += zip(seconds, lengths, stored, strict=True)
        return True

    def _packed(self, many: list[Any]) -> list[bytes] | None:
        """Vectors of numbers as native float32."""
        if self._numpy is None:
            self.numbers_came = True
            return None
        if set(map(type, many)) != {list}:
            return None
        if self._careful and not all(door.NUMBERS.issuperset(map(type, values)) for values in many):
            return None
        try:
            return [self._pack(*values) for values in many]
        except (struct.error, OverflowError):
            return None

    def _decoded(self, many: list[Any]) -> list[bytes] | None:
        """Float16 vectors from base64."""
        if not self.float16 or set(map(type, many)) != {str} or set(map(len, many)) != {self._coded}:
            return None
        try:
            vectors = [a2b_base64(code, strict_mode=self._strict) for code in many]
        except ValueError:
            return None
        return vectors if set(map(len, vectors)) == {2 * self.dim} and door.plain_halves(vectors) else None

    def finish(self) -> list[int]:
        """Bring all vectors into the width of the store; returns the rows whose vectors the door must tell."""
        if not self._wide:
            return []
        vectors = self.vectors
        stored, plain = self._rounded(b"".join([vectors[at] for at in self._wide]))
        size = len(stored) // len(self._wide)
        for start, at in zip(range(0, len(stored), size), self._wide, strict=True):
            vectors[at] = stored[start : start + size]
        doubtful = [] if all(plain) else [at for at, good in zip(self._wide, plain, strict=True) if not good]
        if len(doubtful) * 8 > len(self._wide):
            self._careful = True
        self._wide.clear()
        return doubtful

    def drop(self, row: int) -> None:
        """Leave a row out."""
        del self.rows[row], self.vectors[row]

    def clear(self) -> None:
        """Drop all rows."""
        self.rows.clear()
        self.vectors.clear()
        self._wide.clear()

    def _rounded(self, data: bytes) -> tuple[bytes, list[bool]]:
        """Float32 vectors in the width of the store, and for each whether it is surely right."""
        numpy = self._numpy
        wide = numpy.frombuffer(data, numpy.float32).reshape(-1, self.dim)
        magnitude = numpy.abs(wide)
        top = magnitude.max(axis=1)
        most, least = (door.FLOAT16_MAX, _LEAST_HALF) if self.float16 else (door.FLOAT32_LIMIT, 0.0)
        plain = (top <= most) & (top > least)  # false for NaN too
        if not self._careful:  # true and false were packed as 1 and 0
            plain &= magnitude.min(axis=1) > 0
            if not (top < 1).all():
                plain &= ~(magnitude == 1).any(axis=1)
        if not plain.all():
            wide = numpy.where(plain[:, None], wide, 0)
        return wide.astype("<f2" if self.float16 else "<f4").tobytes(), plain.tolist()


def _ignored(index: Any) -> bool:
    """Whether the door ignores this `index` and the parser lets it pass."""
    return type(index) is int and -_EXACT < index < _EXACT
