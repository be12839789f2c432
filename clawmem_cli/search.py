"""`clawmem search`: by vector, text or both. HOT; events are search_events.py, many queries search_batch.py."""

from __future__ import annotations

from clawmem_cli import jsonin, output
from clawmem_cli.records import hit_fields
from clawmem_cli.scope_options import asks_for_events
from clawmem_core import door
from clawmem_core.errors import UsageError
from clawmem_core.model import SearchOptions
from clawmem_core.search.engine import request_of, search
from clawmem_core.view import open_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments

USUAL_HITS = 5


def run(args: Arguments) -> int:
    """Print the best matches as an array, best first; no match is []."""
    if args.batch:
        if args.embedding is not None or args.query is not None:
            raise UsageError(detail="--batch reads queries from stdin; it takes neither --embedding nor --query")
        from clawmem_cli.search_batch import run_batch

        return run_batch(args)
    if args.embedding is None and args.query is None:
        raise UsageError(detail="nothing to search for", hint="give --query TEXT, --embedding JSON, or both")
    vector = None if args.embedding is None else jsonin.parse_array("--embedding", args.embedding)
    options = options_of(args)
    if asks_for_events(args) or args.format != "json" or args.deadline_ms is not None or args.strict:
        from clawmem_cli.search_events import run_search

        return run_search(args, vector, options)
    with open_view(args.path) as view:
        hits = search(view, request_of(view, vector, args.query, options))
        output.document([hit_fields(hit) for hit in hits])
        output.reports(view.reports)
    return 0


def options_of(args: Arguments) -> SearchOptions:
    """The search options of a command line. Raises InvalidTimeError, InvalidInputError."""
    options = SearchOptions(
        USUAL_HITS if args.top_k is None else args.top_k, vector_weight=args.vector_weight,
        keyword_weight=args.keyword_weight, sources=args.source,
        sessions=args.session, tags=args.tag, since=time_of("--since", args.since),
        until=time_of("--until", args.until), context=args.context, explain=args.explain, min_score=args.min_score,
    )  # fmt: skip
    if args.rerank:
        options = options.with_rerank()
    if args.reject_weak:
        options = options.with_confidence()
    return options


def time_of(name: str, text: str | None) -> float | None:
    """Seconds since the epoch of a command-line time: a number of seconds, or RFC 3339 with a zone."""
    if text is None:
        return None
    value: object = text
    if "_" not in text:
        try:
            value = float(text)
        except ValueError:
            value = text
    return door.timestamp(value, field=name)
