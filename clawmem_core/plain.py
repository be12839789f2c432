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

    def add(self, fields: dict[str, Any]) -> bool:
        """Take a record's JSON object (its members as orjson gives them) as the next row, if it is plain."""
        if not fields.keys() <= _KEYS:
            return False
        get = fields.get
        try:
            chunk, channel = fields["chunk"], get("source_channel", "cli")
            session, tags = get("session_id", ""), get("tags", "")
            text = chunk + channel + session + tags
            data = text.encode()
            if len(text) == len(data):
                lengths = len(chunk), len(channel), len(session), len(tags)
            else:
                lengths = len(chunk.encode()), len(channel.encode()), len(session.encode()), len(tags.encode())
        except (KeyError, TypeError, AttributeError, UnicodeEncodeError):
            return False
        if not chunk or len(data) > door.MAX_TEXT or b"\0" in data:
            return False
        seconds = get("timestamp")
        if seconds is None:
            seconds = clock.now()
        elif type(seconds) not in door.NUMBERS or not -door.MILLISECONDS <= seconds <= door.MILLISECONDS:
            return False
        if "index" in fields and not (type(fields["index"]) is int and -_EXACT < fields["index"] < _EXACT):
            return False  # the door ignores it, the parser does not
        if "embedding" in fields:
            vector = self._packed(fields["embedding"])
            if vector is None or "embedding_f16" in fields:
                return False
            self._wide.append(len(self.rows))
        elif "embedding_f16" in fields:
            vector = self._decoded(fields["embedding_f16"])
            if vector is None:
                return False
        else:
            vector = b""
        self.vectors.append(vector)
        self.rows.append((seconds, lengths, data))
        return True

    def _packed(self, values: Any) -> bytes | None:
        """A vector of numbers as native float32."""
        if self._numpy is None:
            self.numbers_came = True
            return None
        if type(values) is not list or len(values) != self.dim:
            return None
        if self._careful and not set(map(type, values)) <= door.NUMBERS:
            return None
        try:
            return self._pack(*values)
        except (struct.error, OverflowError):
            return None

    def _decoded(self, code: Any) -> bytes | None:
        """A float16 vector from base64."""
        if not self.float16 or type(code) is not str or len(code) != self._coded:
            return None
        try:
            data = a2b_base64(code, strict_mode=self._strict)
        except ValueError:
            return None
        return data if len(data) == 2 * self.dim and door.plain_half(data) else None

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
