"""The JSON report on stdout (docs/schema/migrate-report.schema.json)."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from clawmem_cli import output
from clawmem_migrate.refusals import Refusals
from clawmem_migrate.source import Plan
from clawmem_migrate.validate import Validation

_GATHERED = 1 << 20


def tables(plan: Plan) -> dict[str, Any]:
    """Rows by table: in the source, refused, migrated."""
    accepted = {
        "records": plan.accepted, "sessions": len(plan.graph.sessions), "entities": len(plan.graph.entities),
        "relations": len(plan.graph.relations),
    }  # fmt: skip
    return {
        kind: {"source": total, "refused": plan.refused.get(kind, 0), "accepted": accepted[kind]}
        for kind, total in plan.total.items()
    }


def validation(result: Validation) -> dict[str, Any]:
    """What was compared, searched and found to differ."""
    return {
        "full": result.full, "rows_compared": result.rows, "rows_read_again": result.reread,
        "searches": result.searches, "searches_found": result.found, "differences": result.differences.count,
        "named": result.differences.named,
    }  # fmt: skip


def cost(rows: int, seconds: float) -> dict[str, Any]:
    """Time and memory of the run."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    rate = round(rows / seconds) if seconds else 0
    return {"seconds": round(seconds, 3), "rows_per_second": rate, "peak_rss_mib": round(peak, 1)}


def write(document: dict[str, Any], refusals: Refusals | None = None) -> None:
    """Print the report; its problems, however many, are streamed behind the rest."""
    if refusals is None or not refusals.rows or os.isatty(1):
        problems = [] if refusals is None else list(refusals.documents())
        output.document({**document, "problems": problems})
        return
    waiting = bytearray(output.json_bytes(document)[:-1] + b',"problems":[')
    comma = b""
    for problem in refusals.documents():
        waiting += comma + output.json_bytes(problem)
        comma = b","
        if len(waiting) >= _GATHERED:
            output.write(bytes(waiting))
            waiting.clear()
    output.write(bytes(waiting) + b"]}\n")
