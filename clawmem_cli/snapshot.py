"""`clawmem snapshot`: a complete copy of the store as it is now. Takes no lock on the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_cli.writing import signing_of, store_paths, tell
from clawmem_core.storage.snapshot import snapshot

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Make the copy and name the file that was made."""
    made = snapshot(store_paths(args), args.dest, force=args.force, signing=signing_of(args))
    output.document(
        {
            "status": "snapshot_created",
            "source": display_path(args.path),
            "dest": display_path(made.path),
            "wal": display_path(made.log),
            "pending": made.pending,
        }
    )
    tell("snapshot", made.warnings)
    return 0
