"""`clawmem recall`: one record with all its fields. HOT."""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.records import record_fields
from clawmem_core.view import open_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print the record. Raises NotFoundError, DeletedError."""
    with open_view(args.path) as view:
        output.document(record_fields(view.record(args.id), view.base.float16))
        output.reports(view.reports)
    return 0
