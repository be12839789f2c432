"""The derived files of a checkpoint: the index of readers (`.idx`) and the key table of writers (`.keys`).

Invariants: both are functions of the columns alone and carry the checkpoint's id, so a stale one is never believed; a
failure to write one is a warning, never an error.
"""

from __future__ import annotations

from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.paths import StorePaths


def write(paths: StorePaths, columns: Columns) -> list[str]:
    """Write both files beside the store `columns` were loaded from; returns warnings. Raises StorageError."""
    from clawmem_core.search.index_build import build
    from clawmem_core.search.index_writer import FileSink, IndexFile, commit

    stat = fs.stat(paths.real)
    if stat is None:
        return ["the store's file is gone"]
    with AtomicFile(paths.index, stat) as file:
        build(columns, IndexFile(FileSink(file)), stat.st_size, stat.st_mtime_ns)
        commit(file)
    return []
