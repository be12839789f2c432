"""Sessions, entities, relations and aliases of a store: the half of `MemoryStore` that is not about records.

Invariants: those of the handle; a row is checked before it is staged and refers to what is there; entity ids are never
reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_core import door
from clawmem_core.errors import InvalidInputError, NotFoundError
from clawmem_core.handle import Handle
from clawmem_core.storage import ops, row_ops

if TYPE_CHECKING:
    from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session


class GraphStore(Handle):
    """What a store knows beside its records; use it through `MemoryStore`."""

    def sessions(self) -> list[Session]:
        """Every session, in the order they were added."""
        return list(self._check().overlay.all_sessions())

    def add_session(
        self, id: str, start: int, end: int, channel: str = "", summary: str = "", timestamp: float | None = None
    ) -> None:
        """Put a session: its id, first and last record id (-1: none), channel, summary, time in seconds."""
        with self._mutex:
            writer = self._writing()
            if not door.text("id", id):
                raise InvalidInputError(field="id", detail="is empty")
            for name, value in (("start", start), ("end", end)):
                door.integer(name, value, -1, writer.state.next_record_id - 1)
            if end < start:
                raise InvalidInputError(field="end", detail=f"{end} lies before start {start}")
            row = row_ops.Session(
                id, start, end, door.text("channel", channel), door.text("summary", summary, door.MAX_CHUNK),
                door.timestamp(timestamp),
            )  # fmt: skip
            writer.stage(row_ops.session(row), 1, operation="session")
            self._commit([(ops.SESSION, 0, row)])

    def entities(self) -> list[Entity]:
        """Every entity, in the order they were added."""
        return list(self._check().overlay.all_entities())

    def add_entity(self, name: str, type: str, record_id: int = -1) -> int:
        """Add a graph node and return its id, which is never reused."""
        with self._mutex:
            writer = self._writing()
            door.integer("record_id", record_id, -1, writer.state.next_record_id - 1)
            row = row_ops.Entity(
                writer.state.next_entity_id, door.text("name", name), door.text("type", type), record_id
            )
            writer.stage(row_ops.entity(row), 1, operation="entity", target=row.id, next_entity_id=row.id + 1)
            self._commit([(ops.ENTITY, 0, row)])
            return row.id

    def relations(self) -> list[Relation]:
        """Every relation, in the order they were added."""
        return list(self._check().overlay.all_relations())

    def add_relation(
        self, source: int, target: int, type: str, weight: float = 1.0, timestamp: float | None = None
    ) -> None:
        """Put an edge between two entities (NotFoundError where one is missing); same ends and type replace it."""
        with self._mutex:
            writer = self._writing()
            known = {row.id for row in self._view.overlay.all_entities()}
            for end in (source, target):
                if end not in known:
                    raise NotFoundError(kind="entity", id=end)
            row = row_ops.Relation(
                source, target, door.text("type", type), door.number("weight", weight, -3e38, 3e38),
                door.timestamp(timestamp),
            )  # fmt: skip
            writer.stage(row_ops.relation(row), 1, operation="relation", target=source)
            self._commit(list(ops.decode(row_ops.relation(row))))

    def aliases(self) -> list[Alias]:
        """Every alias, in the order they were added."""
        return list(self._check().overlay.all_aliases())

    def add_alias(self, name: str, entity_id: int) -> None:
        """Put another name (kept lower-cased) of an entity."""
        with self._mutex:
            writer = self._writing()
            if entity_id not in {row.id for row in self._view.overlay.all_entities()}:
                raise NotFoundError(kind="entity", id=entity_id)
            row = row_ops.Alias(door.text("name", name).lower(), entity_id)
            if not row.name:
                raise InvalidInputError(field="name", detail="is empty")
            writer.stage(row_ops.alias(row), 1, operation="alias", target=entity_id)
            self._commit([(ops.ALIAS, 0, row)])
