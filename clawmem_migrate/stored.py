"""A store's file read back from disk as batches, without any derived file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clawmem_core.storage.columns import BLOCK, Columns, TextColumn
from clawmem_migrate.batch import Batch


def batches(columns: Columns) -> Iterator[Batch]:
    """All rows in id order, deleted ones included. Raises DamagedError where the file cannot be read."""
    for start in range(0, columns.count, BLOCK):
        yield block(columns, start, min(start + BLOCK, columns.count))


def block(columns: Columns, start: int, stop: int) -> Batch:
    """Rows start..stop."""
    has = columns.norms[start:stop] != 0
    texts = (columns.source_ids, columns.chunks, columns.source_channel, columns.session_ids, columns.tags)
    found = Batch.of_utf8(
        [_utf8(column, start, stop) for column in texts],
        columns.timestamps[start:stop].tolist(),
        (columns.tombstones[start:stop] != 0).tolist(),
        columns.embeddings.read(start, stop),
        None if has.all() else has.astype(np.bool_),
    )
    found.weights = columns.activation[start:stop].tolist()
    return found


def _utf8(column: TextColumn, start: int, stop: int) -> list[bytes]:
    """Rows of a text column. Raises DamagedError where one is not UTF-8."""
    found = column.read(start, stop)
    if not b"".join(found).isascii():
        column.texts(start, stop)  # raises
    return found
