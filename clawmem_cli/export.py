"""`clawmem export`: every record as one JSON object a line, in the form that `save` takes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output, pipes
from clawmem_cli.progress import tracked
from clawmem_cli.records import record_fields
from clawmem_cli.scoped import event_line, event_read, record_reading_of_all_scopes
from clawmem_core.contract.recall import plain_ids
from clawmem_core.errors import UsageError
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawmem_cli.parsing import Arguments
    from clawmem_cli.scoped import EventRead
    from clawmem_core.view import View

_BLOCK = 64  # events that are written at once
_NAMED = 10  # records that a warning names


def run(args: Arguments) -> int:
    """Print the records in the order of their index; events only with --scope or --all-scopes, as they were saved."""
    read = event_read(args)
    if read is not None and args.include_deleted:
        raise UsageError(detail="--include-deleted is about plain records; `history` shows what a fact was")
    if read is not None and read.scope is None:
        record_reading_of_all_scopes(args, args.lock_timeout)
    with open_view(args.path) as view:
        output.reports(view.reports)
        pipes.widen(1)
        empty: list[int] = []
        for lines in _records(view, args, empty) if read is None else _events(view, args, read, empty):
            output.write(lines)
    if empty:
        ids = ", ".join(map(str, empty[:_NAMED])) + (", …" if len(empty) > _NAMED else "")
        output.warning("empty-chunk", f"record {ids} has no text, which another tool took; `save` refuses such a line")
    return 0


def _records(view: View, args: Arguments, empty: list[int]) -> Iterator[bytes]:
    """The plain records, many lines at a time; ids of those without text go to `empty`.

    A list is printed at once, in a tenth of the time, and then cut into lines: inside of texts quotes are escaped.
    """
    total = view.state.rows if args.include_deleted else view.state.active
    from orjson import dumps  # plain records are valid UTF-8 and finite, so it prints what output.json_bytes does

    float16, embeddings = view.base.float16, args.embeddings
    for block in tracked(view.blocks(args.include_deleted), "exporting", total):
        plain = [record for record in block if not record.scope]
        empty.extend(record.id for record in plain if not record.chunk)
        if plain:
            printed = dumps([record_fields(record, float16, embeddings) for record in plain])
            yield printed[1:-1].replace(b'},{"index":', b'}\n{"index":') + b"\n"


def _events(view: View, args: Arguments, read: EventRead, empty: list[int]) -> Iterator[bytes]:
    """The events of one scope, or everything; ids of plain records without text go to `empty`."""
    rows = read.rows(view).rows
    wanted = sorted(set(rows) if read.scope is not None else rows.keys() | plain_ids(view))
    blocks = (wanted[start : start + _BLOCK] for start in range(0, len(wanted), _BLOCK))
    for block in tracked(blocks, "exporting", len(wanted)):
        lines = []
        for id in block:
            record = view.find(id)
            if id in rows:
                lines.append(event_line(rows[id], record, view.base.float16, args.embeddings))
            elif record is not None and not record.deleted:
                if not record.chunk:
                    empty.append(record.id)
                lines.append(output.json_bytes(record_fields(record, view.base.float16, args.embeddings)))
        yield b"".join(line + b"\n" for line in lines)
