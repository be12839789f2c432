"""`clawmem recall`: one record with all its fields. HOT."""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.records import record_fields
from clawmem_cli.scope_options import asks_for_events
from clawmem_core.errors import NotFoundError
from clawmem_core.view import open_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print the record, or with --scope the event. Raises NotFoundError, DeletedError."""
    if asks_for_events(args):
        return _recall_event(args)
    with open_view(args.path) as view:
        record = view.record(args.id)
        if record.scope:  # an event, which nobody sees without its scope
            raise NotFoundError(kind="record", id=args.id)
        output.document(record_fields(record, view.base.float16))
        output.reports(view.reports)
    return 0


def _recall_event(args: Arguments) -> int:
    from clawmem_cli.scoped import event_read, event_record_fields
    from clawmem_core.contract.recall import recall_event

    read = event_read(args)
    assert read is not None and read.key is not None
    with open_view(args.path) as view:
        record, row = recall_event(view, args.id, read.key, read.wanted)
        output.document(event_record_fields(record, row, view.base.float16))
        output.reports(view.reports)
    return 0
