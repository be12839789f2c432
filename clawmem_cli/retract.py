"""`clawmem retract`: a fact that never held; saying it again needs a review."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.correction import fact_of, rejected_until, scope_of
from clawmem_cli.writing import open_writer
from clawmem_core.contract.correcting import retract

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Take the fact back."""
    scope, fact = scope_of(args), fact_of(args)
    with open_writer(args) as writer:
        output.document(retract(writer, scope, fact, reason=args.reason, expires=rejected_until(args)))
    return 0
