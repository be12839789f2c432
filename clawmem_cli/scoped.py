"""Verbs that read events: the scope and filter of a command line, the page of a search, events as JSON. HOT.

Loaded only by commands that ask for events (`scope_options.asks_for_events`) or print a text for a prompt.
"""

from __future__ import annotations

from clawmem_cli.records import hit_fields, record_fields
from clawmem_cli.scope_options import ONLY_OF_EVENTS, asks_for_events
from clawmem_cli.scopes import read_scope
from clawmem_core import door
from clawmem_core.contract.event_keys import EPISODE, FACT, REPLACED
from clawmem_core.contract.event_row import recalled_memory
from clawmem_core.contract.recall import EventFilter, Readable, read_scope_rows, search_events
from clawmem_core.contract.scope import scope_key
from clawmem_core.errors import UsageError
from clawmem_core.search.engine import request_of, search
from clawmem_core.storage.row_ops import LABELS, STATUSES, TRUSTS
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_cli.parsing import Arguments
    from clawmem_core.model import Record, SearchHit, SearchOptions
    from clawmem_core.storage.row_ops import EventRow
    from clawmem_core.view import View


class EventRead:
    """The events that a command line asks for. `scope`: the five fields, None for all scopes; `key`: its 32 bytes."""

    __slots__ = ("key", "scope", "wanted")

    def __init__(self, scope: dict[str, Any] | None, wanted: EventFilter) -> None:
        self.scope, self.wanted = scope, wanted
        self.key = None if scope is None else bytes.fromhex(scope_key(scope))

    def rows(self, view: View) -> Readable:
        """What of a store it may see."""
        return read_scope_rows(view, self.key, self.wanted)


def event_read(args: Arguments) -> EventRead | None:
    """What a command line asks for of events; None where it names no scope and so sees none.

    Raises UsageError for options that need a scope, and as `read_scope`.
    """
    if not asks_for_events(args):
        return None
    every = getattr(args, "all_scopes", False)
    if args.scope is None and not every:
        named = next((name for name in ONLY_OF_EVENTS if getattr(args, name, None) not in (None, ())), "no_facts")
        raise UsageError(detail=f"--{named.replace('_', '-')} is about events; give --scope FILE")
    if args.scope is not None and every:
        raise UsageError(detail="--scope and --all-scopes exclude each other")
    return EventRead(None if every else read_scope(args.scope), _filter(args))


def _filter(args: Arguments) -> EventFilter:
    from clawmem_cli.search import time_of

    labels = [LABELS.index(label) for label in getattr(args, "label", ())]
    if not getattr(args, "facts", True):
        labels = [label for label in labels or [EPISODE] if label == EPISODE]
        if not labels:
            raise UsageError(detail="--no-facts leaves nothing of --label MEMORY_FACT")
    confidence = getattr(args, "min_confidence", None)
    return EventFilter(
        labels,
        getattr(args, "exclude_session", None) or "",
        TRUSTS.index(args.min_trust or "mixed"),
        0.0 if confidence is None else door.number("--min-confidence", confidence, 0.0, 1.0),
        time_of("--as-of", args.as_of),
        time_of("--known-at", args.known_at),
    )


def record_reading_of_all_scopes(args: Arguments, lock_timeout: float) -> None:
    """Put on record that somebody reads every scope, before anything is printed. Raises LockedError, StorageError."""
    from clawmem_core.writer import Writer

    with Writer.open(args.path, lock_timeout, args.actor) as writer:
        writer.stage(b"", 0, operation="read-all-scopes")
        writer.commit()


class Pages:
    """Searches over one view: of plain records, or of the events that a command line may see."""

    __slots__ = ("_readable", "read", "view")

    def __init__(self, view: View, read: EventRead | None) -> None:
        self.view, self.read = view, read
        self._readable = None if read is None else read.rows(view)

    def page(
        self, vector: Any, text: str | None, options: SearchOptions
    ) -> list[tuple[SearchHit, EventRow | None]]:  # fmt: skip
        """Hits, best first, with the event of those that are one. Raises as `request_of`."""
        if self._readable is None or self.read is None:
            return [(hit, None) for hit in search(self.view, request_of(self.view, vector, text, options))]
        hits = search_events(self.view, self._readable, self.read.key, vector, text, options)
        if options.explain:
            where = self.read.wanted.document(self.read.scope)
            for hit in hits:
                hit.explain = {**(hit.explain or {}), "filter": where}
        return [(hit, self._readable.rows.get(hit.index)) for hit in hits]


def page_fields(page: list[tuple[SearchHit, EventRow | None]]) -> list[dict[str, Any]]:
    """A page as JSON objects."""
    return [hit_fields(hit) if row is None else event_hit_fields(hit, row) for hit, row in page]


# ---------------------------------------------------------------- events as JSON


def event_fields(row: EventRow) -> dict[str, Any]:
    """What tells an event from a plain record, wherever one is printed. An episode has no confidence."""
    fields: dict[str, Any] = {
        "label": LABELS[row.label],
        "id": row.event_id.hex(),
        "trust": TRUSTS[row.trust],
        "status": STATUSES[row.status],
    }
    if row.label == FACT:
        fields["confidence"] = row.confidence
    if row.marked:
        fields["marks"] = ["superseded"]
    return fields


def event_hit_fields(hit: SearchHit, row: EventRow) -> dict[str, Any]:
    """One row of a page of events; the text is exactly that of the event."""
    fields = hit_fields(hit)
    if REPLACED in hit.chunk:
        fields["chunk"] = recalled_memory(row, hit.score)["text"]
    return {**fields, **event_fields(row)}


def event_record_fields(record: Record, row: EventRow, float16: bool) -> dict[str, Any]:
    """An event as `recall` prints it: its record, what tells it apart, and the event itself as `event`."""
    fields = record_fields(record, float16)
    if REPLACED in record.chunk:
        fields["chunk"] = recalled_memory(row, 0.0)["text"]
    return {**fields, **event_fields(row), "event": parse_json(row.payload)}


def event_line(row: EventRow, record: Record | None, float16: bool, embedding: bool) -> bytes:
    """An event as `export` prints it: its canonical JSON exactly, with its vector as one more, transport, member."""
    if not embedding or record is None or record.vector is None:
        return row.payload
    from binascii import b2a_base64

    name = b"embedding_f16" if float16 else b"embedding_f32"
    return b'%s,"%s":"%s"}' % (row.payload[:-1], name, b2a_base64(record.vector, newline=False))
