"""A run of records as columns: what every source is turned into and what a store is read back as.

Invariants: columns have one length; texts are "" where there is none; vectors are in the width of the store, rows
without one hold zeros and are False in `present`. The canonical form of a record (docs/migrate.md § Canonical form) is
computed here for both sides, so equal records have equal bytes and nothing else has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.model import Record

#: what stands before texts and vector in the canonical form of a record; packed, 33 bytes
_HEAD = np.dtype([("sizes", "<u4", (6,)), ("seconds", "<f8"), ("deleted", "u1")])


class Batch:
    """Consecutive records. `vectors`: [n, dim] float16 or float32; `present`: [n] bool, or None where all have one.

    `weights`: activation weights where the source has them. They are carried over, but are no part of the canonical
    form: using a store changes them.
    """

    __slots__ = ("_strings", "_utf8", "deleted", "present", "timestamps", "vectors", "weights")

    def __init__(
        self, source_ids: list[str], chunks: list[str], channels: list[str], sessions: list[str], tags: list[str],
        timestamps: list[float], deleted: list[bool], vectors: npt.NDArray[Any], present: npt.NDArray[np.bool_] | None,
    ) -> None:  # fmt: skip
        self._strings: list[list[str]] | None = [source_ids, chunks, channels, sessions, tags]
        self._utf8: list[list[bytes]] | None = None
        self.timestamps, self.deleted = timestamps, deleted
        self.vectors, self.present = vectors, present
        self.weights: list[float] | None = None

    @classmethod
    def of_utf8(
        cls, texts: list[list[bytes]], timestamps: list[float], deleted: list[bool], vectors: npt.NDArray[Any],
        present: npt.NDArray[np.bool_] | None,
    ) -> Batch:  # fmt: skip
        """Records whose texts are given as valid UTF-8, in the order of `texts`; decoded only where somebody asks."""
        found = cls([], [], [], [], [], timestamps, deleted, vectors, present)
        found._strings, found._utf8 = None, texts
        return found

    def __len__(self) -> int:
        return len(self.timestamps)

    def _text(self, place: int) -> list[str]:
        if self._strings is None:
            self._strings = [[text.decode() for text in column] for column in self.texts()]
        return self._strings[place]

    @property
    def source_ids(self) -> list[str]:
        """Ids of the records in their source."""
        return self._text(0)

    @source_ids.setter
    def source_ids(self, ids: list[str]) -> None:
        texts = self.texts()
        self._utf8 = [[id.encode() for id in ids], *texts[1:]]
        self._strings = None

    @property
    def chunks(self) -> list[str]:
        """Texts."""
        return self._text(1)

    @property
    def channels(self) -> list[str]:
        """Source channels."""
        return self._text(2)

    @property
    def sessions(self) -> list[str]:
        """Session ids."""
        return self._text(3)

    @property
    def tags(self) -> list[str]:
        """Tags."""
        return self._text(4)

    def take(self, rows: Sequence[int]) -> Batch:
        """Some of the rows, in the order given."""

        def picked(column: list[Any]) -> list[Any]:
            return [column[row] for row in rows]

        at = np.array(rows, np.int64)
        found = Batch(
            picked(self.source_ids), picked(self.chunks), picked(self.channels), picked(self.sessions),
            picked(self.tags), picked(self.timestamps), picked(self.deleted), self.vectors[at],
            None if self.present is None else self.present[at],
        )  # fmt: skip
        found.weights = None if self.weights is None else [self.weights[row] for row in rows]
        return found

    def blobs(self) -> list[bytes]:
        """Each record's vector as stored, b"" for none."""
        size = self.vectors.itemsize * self.vectors.shape[1]
        found: list[bytes] = np.ascontiguousarray(self.vectors).view(f"V{size}").ravel().tolist()
        if self.present is not None:
            return [blob if has else b"" for blob, has in zip(found, self.present.tolist(), strict=True)]
        return found

    def records(self) -> Iterator[Record]:
        """The records, without ids."""
        columns = (self.chunks, self.timestamps, self.channels, self.sessions, self.tags)
        weights = self.weights or [1.0] * len(self)
        for source_id, blob, deleted, weight, *values in zip(
            self.source_ids, self.blobs(), self.deleted, weights, *columns, strict=True
        ):
            record = Record(-1, *values)
            record.source_id, record.vector, record.deleted, record.activation = (
                source_id,
                blob or None,
                deleted,
                weight,
            )
            yield record

    def texts(self) -> list[list[bytes]]:
        """Source ids, chunks, channels, sessions and tags as UTF-8."""
        if self._utf8 is None:
            self._utf8 = [[text.encode() for text in column] for column in self._strings or ()]
        return self._utf8

    def hashes(self, *, flags: bool = True) -> list[bytes]:
        """SHA-256 of each record's canonical form; without `flags` as if none were deleted."""
        columns = [*self.texts(), self.blobs()]
        heads = np.zeros(len(self), _HEAD)
        for place, column in enumerate(columns):
            heads["sizes"][:, place] = np.fromiter(map(len, column), np.uint32, len(self))
        heads["seconds"] = self.timestamps
        if flags:
            heads["deleted"] = self.deleted
        rows = zip(heads.view(f"V{_HEAD.itemsize}").tolist(), *columns, strict=True)
        return [digest.digest() for digest in map(sha256, map(b"".join, rows))]

    def row(self, at: int) -> dict[str, Any]:
        """One record by field name; the vector as bytes, b"" for none."""
        has = self.present is None or bool(self.present[at])
        return {
            "chunk": self.chunks[at], "source_channel": self.channels[at], "session_id": self.sessions[at],
            "tags": self.tags[at], "timestamp": self.timestamps[at], "deleted": self.deleted[at],
            "embedding": self.vectors[at].tobytes() if has else b"",
        }  # fmt: skip
