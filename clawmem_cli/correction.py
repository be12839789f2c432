"""What the verbs that correct facts share: their scope, their fact, the end of a tombstone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli.scopes import read_scope
from clawmem_cli.search import time_of
from clawmem_core.errors import UsageError

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def scope_of(args: Arguments) -> dict[str, Any]:
    """The scope file of a command line, which must be there. Raises UsageError and as `read_scope`."""
    if args.scope is None:
        raise UsageError(detail="no scope given", hint="give --scope FILE")
    return read_scope(args.scope)


def fact_of(args: Arguments) -> str:
    """The fact's id, which must be there. Raises UsageError."""
    if args.fact is None:
        raise UsageError(detail="no fact given", hint="give --fact ID")
    id: str = args.fact
    return id


def rejected_until(args: Arguments) -> float:
    """When a tombstone ends, in seconds; +inf for never."""
    seconds = time_of("--rejected-until", args.rejected_until)
    return float("inf") if seconds is None else seconds
