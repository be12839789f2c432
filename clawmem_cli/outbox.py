"""`clawmem outbox`: captured turns that wait for the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.scopes import read_scope
from clawmem_cli.writing import open_writer, store_paths
from clawmem_core.contract.outbox import Outbox, drain
from clawmem_core.errors import PartialError

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run_list(args: Arguments) -> int:
    """Print what waits, and what is in quarantine and why."""
    output.document(Outbox(store_paths(args)).listing())
    return 0


def run_drain(args: Arguments) -> int:
    """Take everything in, in order; exit 3 where files went to quarantine."""
    return _drain(args, [])


def run_retry(args: Arguments) -> int:
    """Move files back from the quarantine, then drain."""
    outbox = Outbox(store_paths(args))
    with outbox.locked():
        released = outbox.release(args.file)
    return _drain(args, released)


def _drain(args: Arguments, released: list[str]) -> int:
    scope = None if args.scope is None else read_scope(args.scope)
    with open_writer(args) as writer:
        answer = drain(writer, Outbox(writer.paths), scope)
        output.document({"status": "drained", **answer, "released": released})
    aside = len(answer["quarantined"])
    if aside:
        total = aside + answer["saved"] + answer["exists"] + answer["pending"]
        hint = "see `clawmem outbox list`; `outbox retry` tries again"
        raise PartialError(refused=aside, total=total, done="taken in", hint=hint)
    return 0
