"""`clawmem search` over events, as text for a prompt, or with a deadline. HOT.

Invariants: an answer is whole or empty; with a deadline nothing but a wrong command line makes the command fail, unless
--strict asks for it; a reading of all scopes is on record before it is printed.
"""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.scoped import EventRead, Pages, event_read, page_fields, record_reading_of_all_scopes
from clawmem_core import clock
from clawmem_core.contract.digest import sha256_digest
from clawmem_core.contract.event_row import recalled_memory
from clawmem_core.contract.render import QUERY_CAP, bounded_text, format_fenced_memories, format_recalled_memories
from clawmem_core.errors import ClawmemError, DamagedError, DeadlineError, UsageError
from clawmem_core.times import format_rfc3339
from clawmem_core.view import open_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from clawmem_cli.parsing import Arguments
    from clawmem_core.model import SearchHit, SearchOptions
    from clawmem_core.storage.log_reports import Report
    from clawmem_core.storage.row_ops import EventRow
    from clawmem_core.view import View

    Answer = tuple[Any, list[Report]]

MOST_MEMORIES = 20  # of a text for a prompt
USUAL_MEMORIES = 8
LEAST_MS, MOST_MS = 50, 30_000
_REPEAT = 0.01  # seconds after which an alarm that a library swallowed rings again
PLAIN_LABEL = "RECORD"  # of a memory that is no event
#: what takes away entries that were on record: a fact that the log took back would be told as if it held
_HALF = ("log-header-bad", "log-mark-broken", "log-corrupt")


def run_search(args: Arguments, vector: Any, options: SearchOptions) -> int:
    """Answer one search. `options.k` is as on the command line or the usual 5."""
    read = event_read(args)
    if args.format != "json":
        options.k = _memories(args.top_k)
    text = args.query
    if text is not None and (read is not None or args.format != "json"):
        text = bounded_text(text, QUERY_CAP)
    if args.strict and args.deadline_ms is None:
        raise UsageError(detail="--strict goes with --deadline-ms")
    if args.deadline_ms is None:
        answer, reports = _answer(args, read, vector, text, options, args.lock_timeout)
    else:
        answer, reports = _in_time(args, read, vector, text, options)
    if args.format == "json":
        output.document(answer)
    else:
        output.write(answer)
    output.reports(reports)
    return 0


def _memories(top_k: int | None) -> int:
    if top_k is None:
        return USUAL_MEMORIES
    if top_k > MOST_MEMORIES:
        raise UsageError(detail=f"--top-k can be at most {MOST_MEMORIES} with --format context or fenced")
    return top_k


def _answer(
    args: Arguments, read: EventRead | None, vector: Any, text: str | None, options: SearchOptions, lock_timeout: float
) -> Answer:
    """The whole answer, not yet printed, and what was noticed."""
    if read is not None and read.scope is None:
        record_reading_of_all_scopes(args, lock_timeout)
    with open_view(args.path) as view:
        page = Pages(view, read).page(vector, text, options)
        shown = page_fields(page) if args.format == "json" else _text(args.format, view, page)
        if read is not None and options.explain:
            output.summary({"filter": read.wanted.document(read.scope)})
        return shown, view.reports


def _text(form: str, view: View, page: list[tuple[SearchHit, EventRow | None]]) -> bytes:
    """The page as a block for a prompt; nothing for an empty one."""
    memories = [_plain_memory(hit) if row is None else recalled_memory(row, hit.score) for hit, row in page]
    if form == "context":
        block = format_recalled_memories(memories)
    else:
        block = format_fenced_memories(memories, fence=fence_of(view.base.store_id))
    return f"{block}\n".encode() if block else b""


def fence_of(store_id: bytes) -> str:
    """The marker of a store's fenced blocks: 16 hex digits that no memory's author can know beforehand."""
    return sha256_digest(b"fence" + store_id)[:8].hex()


def _plain_memory(hit: SearchHit) -> dict[str, Any]:
    return {
        "label": PLAIN_LABEL, "text": hit.chunk, "score": hit.score, "observedAt": format_rfc3339(hit.timestamp),
    }  # fmt: skip


# ---------------------------------------------------------------- deadline


def _in_time(args: Arguments, read: EventRead | None, vector: Any, text: str | None, options: SearchOptions) -> Answer:
    """The answer, or an empty one with a warning where it is late or cannot be had."""
    milliseconds = args.deadline_ms
    if not LEAST_MS <= milliseconds <= MOST_MS:
        raise UsageError(detail=f"--deadline-ms can be {LEAST_MS} to {MOST_MS}")
    seconds = milliseconds / 1000
    end = clock.monotonic() + seconds
    try:
        lock_timeout = min(args.lock_timeout, seconds)
        answer, reports = _interrupted(
            lambda: _answer(args, read, vector, text, options, lock_timeout), end, milliseconds
        )  # fmt: skip
        for report in reports:
            if report.code in _HALF:
                raise DamagedError(path=args.path, detail=report.message)
        return answer, reports
    except ClawmemError as problem:
        if args.strict or problem.exit == UsageError.exit:
            raise
        output.warning("degraded", f"{problem.code}: {problem.message}")
        return [] if args.format == "json" else b"", []


def _interrupted(work: Callable[[], Answer], end: float, milliseconds: int) -> Answer:
    """What `work` returns. Raises DeadlineError once the clock passes `end`."""
    import signal

    def ring(_: int, __: object) -> None:
        raise DeadlineError(milliseconds=milliseconds)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(end - clock.monotonic(), 1e-6), _REPEAT)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
