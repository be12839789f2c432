"""The log's operations since a checkpoint, applied over it: the normal form of "what changed".

Readers lay an Overlay over the index of the checkpointed rows; a checkpoint lays the same Overlay over the columns of
the HDF5 file. There is one implementation of what each operation means, and it is `Overlay.apply`.

Invariants: `records`, `deleted`, `undeleted` and `dropped` are disjoint; an id of `deleted` or `undeleted` is a row of
the base; applying the frames of a log in order to the base they were written over gives the state they acknowledged.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Protocol

    from clawmem_core.model import Record
    from clawmem_core.storage.row_ops import Alias, Entity, EventRow, Relation, Session, ValueRow

    EventKey = tuple[int, bytes, bytes]

    class Base(Protocol):
        """What an overlay asks of the rows below it."""

        def row_of(self, id: int) -> int: ...
        def record(self, row: int) -> Record: ...
        def deleted_ids(self) -> Iterable[int]: ...
        def sessions(self) -> Iterable[Session]: ...
        def entities(self) -> Iterable[Entity]: ...
        def relations(self) -> Iterable[Relation]: ...
        def aliases(self) -> Iterable[Alias]: ...


class Overlay:
    """What operations changed over a base.

    `records`: new and replaced records by id (a deleted one has `.deleted`). `deleted`, `undeleted`: ids of base rows
    whose flag changed. `dropped`: ids that are physically gone (compaction, purge); `purged`: those of them whose
    events are gone too. `activation`: weights of base rows. `sessions`, `entities`, `relations`, `aliases`: complete
    tables, or None where nothing changed. `events`: new versions in order; `closed`: for the newest base version of an
    event, the record time (microseconds) at which the first of `events` closed it. `values`: value tombstones by
    (scope key, value key). `audit`: lines in order. `config`: changed settings as JSON text. `next_id`: least next id.
    """

    __slots__ = (
        "activation", "aliases", "audit", "base", "closed", "config", "current_events", "deleted", "dropped",
        "entities", "events", "next_id", "purged", "records", "relations", "sessions", "undeleted", "values",
    )  # fmt: skip

    def __init__(self, base: Base) -> None:
        self.base = base
        self.records: dict[int, Record] = {}
        self.deleted: set[int] = set()
        self.undeleted: set[int] = set()
        self.dropped: set[int] = set()
        self.purged: set[int] = set()
        self.activation: dict[int, float] = {}
        self.sessions: dict[str, Session] | None = None
        self.entities: dict[int, Entity] | None = None
        self.relations: dict[tuple[int, int, str], Relation] | None = None
        self.aliases: dict[str, Alias] | None = None
        self.events: list[EventRow] = []
        self.current_events: dict[EventKey, EventRow] = {}
        self.closed: dict[EventKey, int] = {}
        self.values: dict[tuple[bytes, bytes], ValueRow] = {}
        self.audit: list[bytes] = []
        self.config: dict[str, str] = {}
        self.next_id = 0

    # ------------------------------------------------------------ reading

    @property
    def empty(self) -> bool:
        """Whether nothing that a search can see changed."""
        return not (self.records or self.deleted or self.undeleted or self.dropped or self.activation)

    def hidden_ids(self) -> set[int]:
        """Ids whose base row does not count any more (deleted, dropped, or replaced by one of `records`)."""
        return self.deleted | self.dropped | self.records.keys()

    def live_records(self) -> list[Record]:
        """Records that count and are not live rows of the base, in id order: new, replaced and undeleted ones."""
        found = [record for record in self.records.values() if not record.deleted]
        for id in self.undeleted:
            record = self.base.record(self.base.row_of(id))
            record.deleted = False
            record.activation = self.activation.get(id, record.activation)
            found.append(record)
        found.sort(key=lambda record: record.id)
        return found

    # ------------------------------------------------------------ applying

    def apply(self, operations: Iterable[tuple[int, int, Any]]) -> None:
        """Apply decoded operations (ops.decode) in order."""
        from clawmem_core.storage import ops  # most searches have no log to read

        records, record_op = self.records, ops.RECORD
        for op, flags, value in operations:
            if op == record_op:
                records[value.id] = value
                if self.deleted or self.undeleted or self.activation:
                    self._uncover(value.id)
            elif op == ops.AUDIT:
                self.audit.append(value)
            else:
                _APPLY[ops.NAMES[op]](self, flags, value)

    def _uncover(self, id: int) -> None:
        """Forget what was said of the base's record with this id."""
        self.deleted.discard(id)
        self.undeleted.discard(id)
        self.activation.pop(id, None)

    def _delete(self, _: int, ids: tuple[int, ...]) -> None:
        for id in ids:
            if id in self.records:
                self.records[id].deleted = True
            elif id in self.undeleted:
                self.undeleted.discard(id)
            else:
                self.deleted.add(id)

    def _undelete(self, _: int, ids: tuple[int, ...]) -> None:
        for id in ids:
            if id in self.records:
                self.records[id].deleted = False
            elif id in self.deleted:
                self.deleted.discard(id)
            else:
                self.undeleted.add(id)

    def _compact(self, _: int, __: None) -> None:
        gone = {id for id, record in self.records.items() if record.deleted} | self.deleted
        replaced = self.records.keys() | self.undeleted
        gone.update(id for id in self.base.deleted_ids() if id not in replaced)
        self._drop(gone)

    def _purge(self, _: int, ids: tuple[int, ...]) -> None:
        self._drop(set(ids))
        self.purged.update(ids)
        self.events = [event for event in self.events if event.record_id not in self.purged]
        self.current_events = {
            key: event for key, event in self.current_events.items() if event.record_id not in self.purged
        }

    def _drop(self, gone: set[int]) -> None:
        self.dropped |= gone
        self.deleted -= gone
        self.undeleted -= gone
        for id in gone:
            self.records.pop(id, None)
            self.activation.pop(id, None)

    def _activate(self, _: int, weights: tuple[tuple[int, float], ...]) -> None:
        for id, weight in weights:
            if id in self.records:
                self.records[id].activation = weight
            else:
                self.activation[id] = weight

    def _session(self, _: int, row: Session) -> None:
        self._session_table()[row.id] = row

    def _entity(self, _: int, row: Entity) -> None:
        self._entity_table()[row.id] = row

    def _relation(self, _: int, row: Relation) -> None:
        self._relation_table()[row.source, row.target, row.type] = row

    def _alias(self, _: int, row: Alias) -> None:
        self._alias_table()[row.name] = row

    def _session_table(self) -> dict[str, Session]:
        if self.sessions is None:
            self.sessions = {row.id: row for row in self.base.sessions()}
        return self.sessions

    def _entity_table(self) -> dict[int, Entity]:
        if self.entities is None:
            self.entities = {row.id: row for row in self.base.entities()}
        return self.entities

    def _relation_table(self) -> dict[tuple[int, int, str], Relation]:
        if self.relations is None:
            self.relations = {(row.source, row.target, row.type): row for row in self.base.relations()}
        return self.relations

    def _alias_table(self) -> dict[str, Alias]:
        if self.aliases is None:
            self.aliases = {row.name: row for row in self.base.aliases()}
        return self.aliases

    def _remove(self, _: int, value: tuple[int, int, int, str]) -> None:
        from clawmem_core.storage import row_ops

        kind, source, target, name = value
        if kind == row_ops.SESSION_KIND:
            self._session_table().pop(name, None)
        elif kind == row_ops.ENTITY_KIND:
            self._entity_table().pop(source, None)
        elif kind == row_ops.RELATION_KIND:
            self._relation_table().pop((source, target, name), None)
        else:
            self._alias_table().pop(name, None)

    def _event(self, _: int, row: EventRow) -> None:
        key = (row.label, row.event_id, row.scope_key)
        before = self.current_events.get(key)
        if before is not None:
            before.recorded_to = row.recorded_from
        elif row.version > 1:
            self.closed[key] = row.recorded_from
        self.events.append(row)
        self.current_events[key] = row

    def _value(self, _: int, row: ValueRow) -> None:
        self.values[row.scope_key, row.value_key] = row

    def _config(self, _: int, setting: tuple[str, str]) -> None:
        name, text = setting
        self.config[name] = text

    def _reserve(self, _: int, ids: tuple[int, ...]) -> None:
        self.next_id = max(self.next_id, *ids)

    def all_sessions(self) -> Iterator[Session]:
        """Every session, changed or not."""
        return iter(self.base.sessions() if self.sessions is None else self.sessions.values())

    def all_entities(self) -> Iterator[Entity]:
        """Every entity, changed or not."""
        return iter(self.base.entities() if self.entities is None else self.entities.values())

    def all_relations(self) -> Iterator[Relation]:
        """Every relation, changed or not."""
        return iter(self.base.relations() if self.relations is None else self.relations.values())

    def all_aliases(self) -> Iterator[Alias]:
        """Every alias, changed or not."""
        return iter(self.base.aliases() if self.aliases is None else self.aliases.values())


#: by name of the operation (ops.NAMES)
_APPLY: dict[str, Any] = {
    "delete": Overlay._delete,
    "undelete": Overlay._undelete,
    "compact": Overlay._compact,
    "session": Overlay._session,
    "entity": Overlay._entity,
    "relation": Overlay._relation,
    "alias": Overlay._alias,
    "activation": Overlay._activate,
    "config": Overlay._config,
    "event": Overlay._event,
    "value": Overlay._value,
    "purge": Overlay._purge,
    "reserve": Overlay._reserve,
    "remove": Overlay._remove,
}
