"""A run of records as columns: what every source is turned into and what a store is read back as.

Invariants: columns have one length; texts are "" where there is none; vectors are in the width of the store, rows
without one hold zeros and are False in `present`. The canonical form of a record (docs/migrate.md § Canonical form) is
computed here for both sides, so equal records have equal bytes and nothing else has.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.model import Record

FIELDS = ("source_id", "chunk", "source_channel", "session_id", "tags", "timestamp", "deleted", "embedding")
_LENGTH = struct.Struct("<I")
_TAIL = struct.Struct("<dBI")


class Batch:
    """Consecutive records. `vectors`: [n, dim] float16 or float32; `present`: [n] bool, or None where all have one."""

    __slots__ = ("channels", "chunks", "deleted", "present", "sessions", "source_ids", "tags", "timestamps", "vectors")

    def __init__(
        self, source_ids: list[str], chunks: list[str], channels: list[str], sessions: list[str], tags: list[str],
        timestamps: list[float], deleted: list[bool], vectors: npt.NDArray[Any], present: npt.NDArray[np.bool_] | None,
    ) -> None:  # fmt: skip
        self.source_ids, self.chunks, self.channels = source_ids, chunks, channels
        self.sessions, self.tags, self.timestamps, self.deleted = sessions, tags, timestamps, deleted
        self.vectors, self.present = vectors, present

    def __len__(self) -> int:
        return len(self.source_ids)

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
        for source_id, blob, deleted, *values in zip(
            self.source_ids, self.blobs(), self.deleted, *columns, strict=True
        ):
            record = Record(-1, *values)
            record.source_id, record.vector, record.deleted = source_id, blob or None, deleted
            yield record

    def canonical(self) -> list[bytes]:
        """Each record's canonical form: five texts and the vector with their lengths, time, deleted flag."""
        texts = (self.source_ids, self.chunks, self.channels, self.sessions, self.tags)
        pack, tail = _LENGTH.pack, _TAIL.pack
        found = []
        for blob, seconds, deleted, *values in zip(self.blobs(), self.timestamps, self.deleted, *texts, strict=True):
            parts: list[bytes] = []
            for value in values:
                data = value.encode()
                parts += (pack(len(data)), data)
            parts += (tail(seconds, deleted, len(blob)), blob)
            found.append(b"".join(parts))
        return found

    def row(self, at: int) -> dict[str, Any]:
        """One record by field name, the vector as bytes."""
        has = self.present is None or bool(self.present[at])
        return dict(
            zip(
                FIELDS,
                (
                    self.source_ids[at], self.chunks[at], self.channels[at], self.sessions[at], self.tags[at],
                    self.timestamps[at], self.deleted[at], self.vectors[at].tobytes() if has else b"",
                ),
                strict=True,
            )
        )  # fmt: skip


class Digest:
    """SHA-256 over the canonical form of records in order."""

    __slots__ = ("_hash", "rows")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def update(self, batch: Batch) -> None:
        """Add a batch."""
        self._hash.update(b"".join(batch.canonical()))
        self.rows += len(batch)

    def hex(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()
