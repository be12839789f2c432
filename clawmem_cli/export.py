"""`clawmem export`: every record as one JSON object a line, in the form that `save` takes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.progress import tracked
from clawmem_cli.records import record_fields
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments

_BATCH = 1 << 16  # bytes that are written at once


def run(args: Arguments) -> int:
    """Print the records in the order of their index."""
    with open_view(args.path) as view:
        output.reports(view.reports)
        float16 = view.base.float16
        total = view.state.rows if args.include_deleted else view.state.active
        parts: list[bytes] = []
        size = 0
        for record in tracked(view.records(args.include_deleted), "exporting", total):
            line = output.json_bytes(record_fields(record, float16, args.embeddings))
            parts.append(line)
            size += len(line)
            if size >= _BATCH:
                output.write(b"\n".join(parts) + b"\n")
                parts.clear()
                size = 0
        if parts:
            output.write(b"\n".join(parts) + b"\n")
    return 0
