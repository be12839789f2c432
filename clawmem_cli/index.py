"""`clawmem index`: write the derived files (index, key table) anew from the store's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.writing import store_paths, tell
from clawmem_core.storage import derived, fs
from clawmem_core.storage.lock import StoreLock

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Rebuild under the store's lock; records that are still in the log are searched without an index."""
    paths = store_paths(args)
    with StoreLock.acquire(paths, args.lock_timeout), derived.open_columns(paths) as columns:
        records = len(columns.ids)
        warnings = derived.write(paths, columns)
    output.document({"status": "indexed", "records": records, "index_bytes": fs.size(paths.index)})
    tell("index", warnings)
    return 0
