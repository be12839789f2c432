"""`clawmem agents-md`: the store described in Markdown. HOT."""

from __future__ import annotations

import os

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_core.agents_md import agents_md
from clawmem_core.errors import UsageError
from clawmem_core.view import open_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print the document, or write it to --output and say so."""
    with open_view(args.path) as view:
        text = (agents_md(view) + "\n").encode()
        output.reports(view.reports)
        if args.output is None:
            output.write(text)
            return 0
        target = os.path.realpath(args.output)
        if target.startswith(view.paths.real):
            raise UsageError(detail=f"--output {display_path(args.output)} is a file of the store itself")
    from clawmem_core.storage.atomic import AtomicFile

    with AtomicFile(target) as file:
        file.write(text)
        file.commit()
    output.document({"status": "written", "path": display_path(args.output)})
    return 0
