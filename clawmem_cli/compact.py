"""`clawmem compact`: drop deleted records from the file. Ids stay; rows move up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.writing import open_store

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Compact and print which rows of the file moved, old to new."""
    with open_store(args) as store:
        before = store.count
        moved = store.compact()
        count = store.count
        rows = {str(old): new for old, new in moved.items()}
        output.document({"status": "compacted", "removed": before - count, "count": count, "moved": rows})
    return 0
