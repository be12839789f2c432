"""`clawmem audit`: who did what when, and whether nobody changed that record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_core.contract import audit
from clawmem_core.errors import IntegrityError
from clawmem_core.times import format_rfc3339
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run_show(args: Arguments) -> int:
    """Print the lines, oldest first, or the last --tail of them."""
    with open_view(args.path) as view:
        lines = list(audit.parse_lines(view.audit_lines()))
        output.reports(view.reports)
    first = 0 if args.tail is None else max(len(lines) - args.tail, 0)
    output.document([_fields(number, line) for number, line in enumerate(lines[first:], start=first + 1)])
    return 0


def _fields(number: int, line: audit.AuditLine) -> dict[str, Any]:
    """One line; the target is an event (the first 16 digits of its id) or a record's index."""
    event = bool(line.flags & audit.FLAG_EVENT)
    return {
        "line": number,
        "time": format_rfc3339(line.time_us / 1e6),
        "op": line.op,
        "actor": line.actor,
        "event": f"{line.target:016x}" if event else None,
        "index": None if event else line.target,
        "count": line.count,
        "digest": line.digest.hex(),
        "chain": line.chain.hex(),
    }


def run_verify(args: Arguments) -> int:
    """Print {"valid", "lines", "head", "first_bad_line"}; exit 13 where the chain is broken."""
    with open_view(args.path) as view:
        data, head = view.audit_lines(), view.state.audit_head
        output.reports(view.reports)
    bad = audit.verify_lines(data, head)
    lines = len(data) // audit.LINE_SIZE
    number = None if bad is None else bad + 1
    output.document({"valid": bad is None, "lines": lines, "head": head.hex(), "first_bad_line": number})
    if bad is not None:
        what = f"line {number} does not follow" if bad < lines else f"the log ends at line {lines}, before its head"
        raise IntegrityError(path=display_path(args.path), detail=f"audit log: {what}", hint="")
    return 0
