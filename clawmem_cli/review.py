"""`clawmem review`: decide on facts that are held because their value was rejected before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.correction import fact_of, rejected_until, scope_of
from clawmem_cli.writing import open_writer
from clawmem_core.contract.review import approve, pending, reject

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run_list(args: Arguments) -> int:
    """Print what waits, oldest first."""
    output.document(pending(args.path, scope_of(args)))
    return 0


def run_approve(args: Arguments) -> int:
    """Believe the fact."""
    scope, fact = scope_of(args), fact_of(args)
    with open_writer(args) as writer:
        output.document(approve(writer, scope, fact, reason=args.reason))
    return 0


def run_reject(args: Arguments) -> int:
    """Never believe the fact."""
    scope, fact, until = scope_of(args), fact_of(args), rejected_until(args)
    with open_writer(args) as writer:
        output.document(reject(writer, scope, fact, reason=args.reason, expires=until))
    return 0
