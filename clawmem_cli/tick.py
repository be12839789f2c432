"""`clawmem tick`: activation weights decay one step toward 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.writing import open_store

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Decay and print how many records changed."""
    with open_store(args) as store:
        changed = store.tick()
        output.document({"status": "ticked", "changed": changed})
    return 0
