"""The events of one scope of an open store, for library callers: what the subcommands do with --scope.

Invariants: a handle has one scope for good, and everything it does stays in it; what a call returned is durable and is
seen by the next one.

    >>> memories = store.scoped(scope)
    ... memories.save(event)
    ... memories.search(None, "what does ann drink")
    ... memories.replace(fact_id, {"text": "drinks coffee"}, reason="said so")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clawmem_core.contract import correcting, review
from clawmem_core.contract.event_row import recalled_memory
from clawmem_core.contract.recall import EventFilter, read_scope_rows, search_events
from clawmem_core.contract.saving import SavedEvent, save_event
from clawmem_core.contract.scope import scope_key, scope_of
from clawmem_core.model import SearchHit, SearchOptions
from clawmem_core.storage.row_ops import EventRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clawmem_core.store import MemoryStore
    from clawmem_core.writer import Writer


class FoundEvent(NamedTuple):
    """One hit: how it matched, and the version of the event that was seen."""

    hit: SearchHit
    row: EventRow

    def memory(self) -> dict[str, Any]:
        """The hit as `format_recalled_memories` and `format_fenced_memories` take it."""
        return recalled_memory(self.row, self.hit.score)


class ScopedMemories:
    """Episodes and facts of one scope; make one with `MemoryStore.scoped`."""

    def __init__(self, store: MemoryStore, scope: Mapping[str, Any]) -> None:
        self._store = store
        self.scope = scope_of(scope)
        self._key = bytes.fromhex(scope_key(scope))

    def save(self, event: Mapping[str, Any]) -> SavedEvent:
        """Store an event durably: "saved", "exists", or "pending" where its value was rejected before.

        Raises as `saving.save_event`.
        """

        def work(writer: Writer) -> SavedEvent:
            saved = save_event(writer, event, self.scope)
            writer.commit()
            return saved

        return self._store.change(work)

    def search(
        self, embedding: Sequence[float] | None, text: str | None, options: SearchOptions | None = None,
        wanted: EventFilter | None = None,
    ) -> list[FoundEvent]:  # fmt: skip
        """The best matches that the filter lets through, best first. Raises as `MemoryStore.search`."""
        with self._store.viewed() as view:
            readable = read_scope_rows(view, self._key, wanted or EventFilter())
            hits = search_events(view, readable, self._key, embedding, text, options or SearchOptions())
            return [FoundEvent(hit, readable.rows[hit.index]) for hit in hits]

    def replace(self, fact_id: str, fields: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        """See `correcting.replace`."""
        return self._store.change(lambda writer: correcting.replace(writer, self.scope, fact_id, fields, **how))

    def retract(self, fact_id: str, **how: Any) -> dict[str, Any]:
        """See `correcting.retract`."""
        return self._store.change(lambda writer: correcting.retract(writer, self.scope, fact_id, **how))

    def expire(self, fact_id: str, **how: Any) -> dict[str, Any]:
        """See `correcting.expire`."""
        return self._store.change(lambda writer: correcting.expire(writer, self.scope, fact_id, **how))

    def approve(self, fact_id: str, **how: Any) -> dict[str, Any]:
        """See `review.approve`."""
        return self._store.change(lambda writer: review.approve(writer, self.scope, fact_id, **how))

    def reject(self, fact_id: str, **how: Any) -> dict[str, Any]:
        """See `review.reject`."""
        return self._store.change(lambda writer: review.reject(writer, self.scope, fact_id, **how))

    def history(self, fact_id: str) -> list[dict[str, Any]]:
        """See `correcting.history`."""
        with self._store.viewed() as view:
            return correcting.versions_of(view, self.scope, fact_id)

    def pending(self) -> list[dict[str, Any]]:
        """See `review.pending`."""
        with self._store.viewed() as view:
            return review.pending_of(view, self.scope)
