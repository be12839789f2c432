"""`clawmem delete`: mark records as deleted; all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.writing import open_store

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Delete the records named. Raises NotFoundError or DeletedError for the first that is not live."""
    with open_store(args) as store:
        deleted = store.delete(args.id)
        output.document(
            {
                "status": "deleted",
                "deleted": deleted,
                "ids": list(args.id),
                "count": store.count,
                "active": store.active,
            }
        )
    return 0
