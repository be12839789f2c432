"""`clawmem stats`: counts, sizes, state of log and index. HOT."""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_core.view import open_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print what the store says of itself."""
    with open_view(args.path) as view:
        output.document({**view.stats(), "path": display_path(args.path)})
        output.reports(view.reports)
    return 0
