"""`clawmem index`: write the derived files (index, key table, on request the graph) anew from the store's file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.writing import store_paths, tell
from clawmem_core.errors import UsageError
from clawmem_core.search.index_reader import IndexReader, UnusableIndex
from clawmem_core.storage import derived, fs
from clawmem_core.storage.lock import StoreLock

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments
    from clawmem_core.storage.columns import Columns
    from clawmem_core.storage.paths import StorePaths


def run(args: Arguments) -> int:
    """Rebuild under the store's lock; records that are still in the log are searched without an index.

    Raises UsageError for a graph without hnswlib.
    """
    paths = store_paths(args)
    if args.ann:
        _require_hnswlib()
    with StoreLock.acquire(paths, args.lock_timeout), derived.open_columns(paths) as columns:
        document: dict[str, object] = {"status": "indexed", "records": len(columns.ids)}
        warnings = derived.write(paths, columns)
        document["index_bytes"] = fs.size(paths.index)
        if args.ann and not warnings:
            warnings += _write_graph(paths, columns)
            document["ann_bytes"] = fs.size(paths.ann)
    output.document(document)
    tell("index", warnings)
    return 0


def _require_hnswlib() -> None:
    try:
        import_module("hnswlib")
    except ImportError:
        raise UsageError(
            detail="--ann needs hnswlib, which is not installed", hint="install the extra: pip install 'clawmem[ann]'"
        ) from None


def _write_graph(paths: StorePaths, columns: Columns) -> list[str]:
    """Write the graph of the index that was just written; returns warnings. Raises StorageError."""
    from clawmem_core.search import ann

    try:
        reader = IndexReader.open(paths.index, columns.fd)
    except UnusableIndex as reason:
        return [f"no graph: the index is {reason}"]
    try:
        with derived.naming(paths.ann):
            ann.write(paths.ann, reader, fs.stat(paths.real))
    except UnusableIndex as reason:
        return [f"no graph: {reason}"]
    finally:
        reader.close()
    return []
