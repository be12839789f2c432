"""`clawmem replace`: a new fact in place of an old one, both linked, in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli import jsonin, output
from clawmem_cli.correction import fact_of, rejected_until, scope_of
from clawmem_cli.save import held
from clawmem_cli.writing import open_writer
from clawmem_core.contract.correcting import replace
from clawmem_core.errors import UsageError

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Replace, or hold the new fact for review (exit 16) where its value was rejected before."""
    scope, old = scope_of(args), fact_of(args)
    until, fields = rejected_until(args), _fields(args)
    with open_writer(args) as writer:
        answer = replace(
            writer, scope, old, fields, reason=args.reason, also=args.also, override=args.override_tombstone or "",
            expires=until,
        )  # fmt: skip
        output.document({**answer, "count": writer.state.rows})
    if answer["status"] == "pending":
        raise held(answer["id"])
    return 0


def _fields(args: Arguments) -> dict[str, Any]:
    """The new fact, as far as it was given."""
    if args.text is not None:
        if args.json is not None:
            raise UsageError(detail="--text and --json exclude each other")
        return {"text": args.text}
    return jsonin.read_object(args.json)
