"""`clawmem purge`: what must be gone for good; a plan first, then exactly that plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.scopes import read_scope
from clawmem_cli.writing import signing_of, store_paths, tell
from clawmem_core.contract.purging import Selection, dry_run, execute
from clawmem_core.errors import UsageError
from clawmem_core.writer import Writer

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print the plan, or with --confirm execute it."""
    scope = None if args.scope is None else read_scope(args.scope)
    if scope is None and not (args.event or args.record or args.session):
        raise UsageError(detail="nothing named", hint="give --event, --record, --session or --scope")
    wanted = Selection(args.event, args.record, args.session, scope)
    if args.confirm is None:
        output.document(dry_run(store_paths(args).given, wanted))
        return 0
    signing = signing_of(args)
    with Writer.open(args.path, args.lock_timeout, args.actor) as writer:
        answer = execute(writer, wanted, args.confirm, signing)
        warnings = answer.pop("warnings")
        output.document(answer)
        output.reports(writer.reports)
        tell("checkpoint", warnings)
    return 0
