"""`clawmem expire`: a fact that held until a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.correction import fact_of, scope_of
from clawmem_cli.search import time_of
from clawmem_cli.writing import open_writer
from clawmem_core.contract.correcting import expire

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """End the fact."""
    scope, fact = scope_of(args), fact_of(args)
    with open_writer(args) as writer:
        output.document(expire(writer, scope, fact, reason=args.reason, at=time_of("--at", args.at)))
    return 0
