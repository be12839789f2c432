"""`clawmem history`: every version of a fact, with what it replaced and what replaced it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.correction import fact_of, scope_of
from clawmem_core.contract.correcting import history

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print {"fact", "versions"}, oldest first."""
    fact = fact_of(args)
    output.document({"fact": fact, "versions": history(args.path, scope_of(args), fact)})
    return 0
