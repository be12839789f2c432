"""`clawmem flush-wal`: a checkpoint, by hand."""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.writing import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Move the log's entries into the file."""
    with open_store(args) as store:
        flushed = store.flush_wal()
        output.document({"status": "flushed", "entries_flushed": flushed, "wal_pending": store.pending})
    return 0
