"""A run of records as columns: what every source is turned into and what a store is read back as.

Invariants: columns have one length; texts are "" where there is none; vectors are in the width of the store, rows
without one hold zeros and are False in `present`. The canonical form of a record (docs/migrate.md § Canonical form) is
computed here for both sides, so equal records have equal bytes and nothing else has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.model import Record

_HEAD = struct.Struct("<6IdB")


class Batch:
    """Consecutive records. `vectors`: [n, dim] float16 or float32; `present`: [n] bool, or None where all have one.

    `weights`: activation weights where the source has them. They are carried over, but are no part of the canonical
    form: using a store changes them.
    """

    __slots__ = (
        "_texts", "channels", "chunks", "deleted", "present", "sessions", "source_ids", "tags", "timestamps", "vectors",
        "weights",
    )  # fmt: skip

    def __init__(
        self, source_ids: list[str], chunks: list[str], channels: list[str], sessions: list[str], tags: list[str],
        timestamps: list[float], deleted: list[bool], vectors: npt.NDArray[Any], present: npt.NDArray[np.bool_] | None,
    ) -> None:  # fmt: skip
        self.source_ids, self.chunks, self.channels = source_ids, chunks, channels
        self.sessions, self.tags, self.timestamps, self.deleted = sessions, tags, timestamps, deleted
        self.vectors, self.present = vectors, present
        self.weights: list[float] | None = None
        self._texts: list[list[bytes]] | None = None

    def __len__(self) -> int:
        return len(self.source_ids)

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
        data = self.vectors.tobytes()
        found = [data[at : at + size] for at in range(0, len(data), size)]
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
        if self._texts is None:
            columns = (self.source_ids, self.chunks, self.channels, self.sessions, self.tags)
            self._texts = [[text.encode() for text in column] for column in columns]
        return self._texts

    def hashes(self, *, flags: bool = True) -> list[bytes]:
        """SHA-256 of each record's canonical form; without `flags` as if none were deleted."""
        deleted = self.deleted if flags else [False] * len(self)
        pack, join, size = _HEAD.pack, b"".join, len
        found = []
        for blob, seconds, gone, source_id, chunk, channel, session, tags in zip(
            self.blobs(), self.timestamps, deleted, *self.texts(), strict=True
        ):
            head = pack(
                size(source_id), size(chunk), size(channel), size(session), size(tags), size(blob), seconds, gone
            )
            found.append(sha256(join((head, source_id, chunk, channel, session, tags, blob))).digest())
        return found

    def row(self, at: int) -> dict[str, Any]:
        """One record by field name; the vector as bytes, b"" for none."""
        has = self.present is None or bool(self.present[at])
        return {
            "chunk": self.chunks[at], "source_channel": self.channels[at], "session_id": self.sessions[at],
            "tags": self.tags[at], "timestamp": self.timestamps[at], "deleted": self.deleted[at],
            "embedding": self.vectors[at].tobytes() if has else b"",
        }  # fmt: skip
