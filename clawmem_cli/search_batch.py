"""`clawmem search --batch`: one query object a line, one answer object a line, all over the same state of the store.

Invariants: lines are answered in order, at the latest when stdin has nothing to read; the options of the command line
are the defaults of every query; a refused line never stops the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli import output
from clawmem_cli.jsonin import LineParser
from clawmem_cli.lines import blocks_of_lines
from clawmem_cli.progress import tracked
from clawmem_cli.save_stream import OF_A_LINE
from clawmem_cli.scoped import Pages, event_read, page_fields, record_reading_of_all_scopes
from clawmem_cli.search import options_of
from clawmem_core import door
from clawmem_core.contract.render import QUERY_CAP, bounded_text
from clawmem_core.errors import ClawmemError, InvalidInputError, PartialError, UsageError
from clawmem_core.model import SearchOptions
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments
    from clawmem_core.view import View

_BATCH = 1 << 16  # bytes of answers that are written at once
_LISTS = {"source": "sources", "session": "sessions", "tag": "tags"}
_KEYS = frozenset(
    ("query", *door.VECTOR_KEYS, "k", "top_k", "vector_weight", "keyword_weight", *_LISTS, "since", "until")
)


def run_batch(args: Arguments) -> int:
    """Answer every query of stdin with {"line", "hits"}; exit 3 when some were refused."""
    defaults, parser = options_of(args), LineParser()
    answers: list[bytes] = []
    size = total = refused = 0
    if args.format != "json" or args.deadline_ms is not None or args.strict:
        raise UsageError(detail="--batch answers in JSON, without a deadline")
    read = event_read(args)
    if read is not None and read.scope is None:
        record_reading_of_all_scopes(args, args.lock_timeout)
    with open_view(args.path) as view:
        pages = Pages(view, read)
        output.reports(view.reports)
        for block in tracked(blocks_of_lines(), "searching"):
            for number, line in block:
                total += 1
                try:
                    if not isinstance(line, bytes):
                        raise line
                    query = parser.parse(line, number)
                    answer = {"line": number, "hits": _hits(pages, query, defaults)}
                except ClawmemError as problem:
                    if problem.exit not in OF_A_LINE:
                        raise
                    refused += 1
                    answer = {"line": number, "status": "refused", "error": problem.document()}
                answers.append(output.json_bytes(answer) + b"\n")
                size += len(answers[-1])
                if size >= _BATCH:
                    output.write(b"".join(answers))
                    answers.clear()
                    size = 0
            if answers and not block:
                output.write(b"".join(answers))
                answers.clear()
                size = 0
        output.write(b"".join(answers))
    output.summary({"lines": total, "answered": total - refused, "refused": refused})
    if refused:
        raise PartialError(refused=refused, total=total, done="answered")
    return 0


def _hits(pages: Pages, query: dict[str, Any], defaults: SearchOptions) -> list[dict[str, Any]]:
    """The page of one query object."""
    for key in query:
        if key not in _KEYS:
            raise InvalidInputError(field=key, detail="is no part of a query")
    text = query.get("query")
    if text is not None:
        door.text("query", text, door.MAX_CHUNK)
    vector = _vector(pages.view, query)
    if text is None and vector is None:
        raise InvalidInputError(field="query", detail="a query needs a text, a vector, or both")
    if text is not None and pages.read is not None:
        text = bounded_text(text, QUERY_CAP)
    return page_fields(pages.page(vector, text, _options(query, defaults)))


def _vector(view: View, query: dict[str, Any]) -> list[float] | None:
    """The query's vector, given as array or base64, as numbers."""
    if query.get("embedding") is not None and not any(query.get(name) is not None for name in door.VECTOR_KEYS[1:]):
        given: list[float] = query["embedding"]
        return given
    data = door.object_vector(query, view.base.dim, float16=False)
    if data is None:
        return None
    from array import array

    values = array("f", data)
    return values.tolist()


def _options(query: dict[str, Any], defaults: SearchOptions) -> SearchOptions:
    """The search options of one query: its own over those of the command line."""
    changed: dict[str, Any] = {}
    if "k" in query or "top_k" in query:
        changed["k"] = query.get("k", query.get("top_k"))
    for name in ("vector_weight", "keyword_weight"):
        if name in query:
            changed[name] = query[name]
    for name, option in _LISTS.items():
        if name in query:
            value = query[name]
            changed[option] = tuple(value) if isinstance(value, list) else (value,)
    for name in ("since", "until"):
        if query.get(name) is not None:
            changed[name] = door.timestamp(query[name], field=name)
    return SearchOptions(**{**{name: getattr(defaults, name) for name in SearchOptions.__slots__}, **changed})
