"""Bringing a store up to date with its source, row by row (docs/migrate.md § Again).

Rows are matched by source id. The source wins, except on records the agent deleted: those stay deleted. Changes are
laid over the rows as one more set of operations, the next file is written whole, read back and searched, and only then
takes the store's name; all under the store's lock.

Invariants: a run over an unchanged source changes no byte; a row that was compacted away comes back only if the source
deleted it and takes that back; records, sessions and graph nodes that did not come from the source are left alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import h5py

from clawmem_core import clock
from clawmem_core.contract.audit import audit_line
from clawmem_core.errors import DimensionError
from clawmem_core.model import Record
from clawmem_core.overlay import Overlay
from clawmem_core.storage import ops, schema
from clawmem_core.storage.apply_overlay import apply_overlay
from clawmem_core.storage.checkpoint import Signing, apply_frames, checkpoint
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.log_format import LogState
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Entity, Relation, Session
from clawmem_core.writer import Writer, default_actor
from clawmem_migrate import stored
from clawmem_migrate.batch import Batch
from clawmem_migrate.importer import Effort, again
from clawmem_migrate.proof import Side
from clawmem_migrate.source import Plan, SqliteSource
from clawmem_migrate.state import AGENT_DELETED, SOURCE_DELETED, MigrationState
from clawmem_migrate.validate import Aside, Expectation, Validation, validate

COUNTS = ("added", "updated", "deleted", "undeleted", "unchanged")


class Held:
    """The store's rows as they are now, log included: hash and flag of each, and the row of each source id."""

    def __init__(self, columns: Columns) -> None:
        self.ids = columns.ids
        self.tombstones = columns.tombstones
        self.rows: dict[str, int] = {}
        self.hashes = bytearray()
        at = 0
        for batch in stored.batches(columns):
            self.hashes += b"".join(batch.hashes(flags=False))
            for source_id in batch.source_ids:
                if source_id and (source_id not in self.rows or self.tombstones[self.rows[source_id]]):
                    self.rows[source_id] = at
                at += 1


class Changes:
    """What a run does to a store, and what it expects to find in it afterwards."""

    def __init__(self, next_id: int) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.operations: list[tuple[int, int, object]] = []
        self.expected = Side()
        self.source_ids: set[str] = set()
        self.ranks = array("q")  # record id of each accepted row, -1 where the store has none
        self.missing = 0
        self._next_id = next_id

    def note(self, what: str) -> None:
        """Count a row."""
        self.counts[what] += 1

    def new_id(self) -> int:
        """The next record id."""
        self._next_id += 1
        return self._next_id - 1


class Update:
    """One incremental run over an open, locked store (also its checkpoint.Amendment)."""

    def __init__(self, source: SqliteSource, plan: Plan, writer: Writer, effort: Effort) -> None:
        self._source, self._plan, self._effort = source, plan, effort
        self._writer = writer
        self.aside = Aside()
        self.validation = Validation()
        with current(writer.paths, writer.log) as columns:
            self.state = MigrationState.read(columns.file, writer.paths.given) or MigrationState()
            self._held = Held(columns)
            self.changes = Changes(writer.state.next_record_id)
            self._compare_records(columns)
            self._compare_graph(columns, writer.state.next_entity_id)

    # ------------------------------------------------------------ comparing

    def _compare_records(self, columns: Columns) -> None:
        places = self.state.places()
        seen = bytearray(len(self.state))
        left_out: list[str] = []
        new_ids: list[str] = []
        new_flags = bytearray()
        for batch in self._source.batches_and_left_out(self._plan, left_out):
            flagless, hashes = batch.hashes(flags=False), batch.hashes()
            records = list(batch.records())
            for at, source_id in enumerate(batch.source_ids):
                place = places.get(source_id)
                before = None if place is None else self.state.flags[place]
                gone = batch.deleted[at]
                id, by_agent = self._row(columns, records[at], flagless[at], before)
                self.changes.ranks.append(id)
                if id >= 0 and not by_agent:
                    self.changes.expected.add((hashes[at],))
                    self.changes.source_ids.add(source_id)
                flags = SOURCE_DELETED * gone | AGENT_DELETED * by_agent
                if place is None:
                    new_ids.append(source_id)
                    new_flags.append(flags)
                else:
                    self.state.flags[place] = flags
                    seen[place] = 1
            self._effort.progress.advance(len(batch))
        self.state.add(new_ids, bytes(new_flags))
        for source_id in left_out:
            place, row = places.get(source_id), self._held.rows.get(source_id)
            dead = row is None or bool(self._held.tombstones[row])
            if place is not None:
                seen[place] = 1
                by_agent = dead and self.state.flags[place] != SOURCE_DELETED
                self.state.flags[place] = SOURCE_DELETED | AGENT_DELETED * by_agent
            if row is not None and not dead:
                self.changes.operations.append((ops.DELETE, 0, (int(self._held.ids[row]),)))
                self.changes.note("deleted")
        self.changes.missing = seen.count(0)

    def _row(self, columns: Columns, record: Record, hash: bytes, before: int | None) -> tuple[int, bool]:
        """Bring one record up to date; its id (-1: the store has none) and whether the agent deleted it.

        `before`: flags of the last run, None for a row that was never taken in.
        """
        changes, held = self.changes, self._held
        row = held.rows.get(record.source_id)
        last = before or 0
        if row is None:
            if before is None or (last == SOURCE_DELETED and not record.deleted):
                record.id = changes.new_id()
                changes.operations.append((ops.RECORD, int(record.deleted), record))
                changes.note("added" if before is None else "undeleted")
                return record.id, False
            changes.note("unchanged")  # compacted away
            return -1, last != SOURCE_DELETED
        record.id = int(held.ids[row])
        dead = bool(held.tombstones[row])
        if dead and last != SOURCE_DELETED:
            changes.note("unchanged")
            return record.id, True
        same = held.hashes[32 * row : 32 * row + 32] == hash
        if not same:
            old = columns.record(row)
            record.key, record.activation = old.key, old.activation
            changes.operations.append((ops.RECORD, int(record.deleted), record))
        elif record.deleted != dead:
            changes.operations.append((ops.DELETE if record.deleted else ops.UNDELETE, 0, (record.id,)))
        if record.deleted != dead:
            changes.note("deleted" if record.deleted else "undeleted")
        else:
            changes.note("unchanged" if same else "updated")
        return record.id, False

    def _compare_graph(self, columns: Columns, next_entity_id: int) -> None:
        graph, operations = self._plan.graph, self.changes.operations
        sessions = {row.id: row for row in columns.session_rows}
        self.sessions = [self._session(row) for row in graph.sessions]
        operations += [(ops.SESSION, 0, row) for row in self.sessions if not _same(row, sessions.get(row.id))]
        there = {row.id: row for row in columns.entity_rows}
        numbers: list[int] = []
        self.entities: list[Entity] = []
        for theirs, row in zip(graph.entity_ids, graph.entities, strict=True):
            ours = self.state.entities.get(theirs)
            if ours is None:
                ours = self.state.entities[theirs] = next_entity_id
                next_entity_id += 1
            elif ours not in there:  # removed by the agent
                numbers.append(-1)
                continue
            numbers.append(ours)
            record_id = self.changes.ranks[row.record_id] if row.record_id >= 0 else -1
            self.entities.append(Entity(ours, row.name, row.type, record_id))
        operations += [(ops.ENTITY, 0, row) for row in self.entities if not _same(row, there.get(row.id))]
        edges = {(row.source, row.target, row.type): row for row in columns.relation_rows}
        self.relations = [
            Relation(numbers[row.source], numbers[row.target], row.type, row.weight, row.timestamp)
            for row in graph.relations
            if numbers[row.source] >= 0 and numbers[row.target] >= 0
        ]
        operations += [
            (ops.RELATION, 0, edge)
            for edge in self.relations
            if not _same(edge, edges.get((edge.source, edge.target, edge.type)))
        ]

    def _session(self, row: Session) -> Session:
        """A session with record ids for ranks: the least and greatest of the records between its ends."""
        inside = [id for id in self.changes.ranks[row.start : row.end + 1] if id >= 0] if row.start >= 0 else []
        first, last = (min(inside), max(inside)) if inside else (-1, -1)
        return Session(row.id, first, last, row.channel, row.summary, row.timestamp)

    # ------------------------------------------------------------ writing (checkpoint.Amendment)

    def apply(self, overlay: Overlay, state: LogState) -> LogState:
        """Lay the changes over the rows, with one audit line for all of them."""
        state = state.copy()
        overlay.apply(self.changes.operations)
        count = len(self.changes.operations)
        line = audit_line(state.audit_head, clock.now_us(), "import", default_actor(), 0, count)
        overlay.apply([(ops.AUDIT, 0, line)])
        state.audit_seq += 1
        state.audit_head = line[-32:]
        state.seq += count
        return state

    def write(self, file: h5py.File) -> None:
        """Remember what was seen."""
        self.state.write(file)

    def confirm(self, temp: str) -> None:
        """Read the new file back before it has its name."""
        changes = self.changes
        self._effort.progress.stage("index", 0)
        self.aside.make(temp)
        self._effort.progress.stage("validate", 0)
        expected = Expectation(
            changes.expected, self.sessions, self.entities, self.relations, {}, source_ids=changes.source_ids
        )
        rows, full = again(self._source, self._plan, self._effort.full)
        self.validation = validate(
            temp, self._source.path, expected, lambda: self._expected(self._source.batches(self._plan)),
            self._expected(rows), full,
        )  # fmt: skip
        self._source.confirm_unchanged()

    def _expected(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The rows that the store is to hold as the source has them."""
        for batch in batches:
            rows = [row for row, one in enumerate(batch.source_ids) if one in self.changes.source_ids]
            if rows:
                yield batch.take(rows)


def update(
    source: SqliteSource, plan: Plan, writer: Writer, effort: Effort, signing: Signing | None = None
) -> tuple[Update, list[str]]:
    """Bring the locked store of `writer` up to date; returns what was done and warnings.

    Raises MigrationMismatchError, SourceChangedError, SigningKeyRequiredError, StorageError; nothing is changed then.
    """
    effort.progress.stage("compare", plan.accepted)
    run = Update(source, plan, writer, effort)
    warnings: list[str] = []
    if run.changes.operations:
        effort.progress.stage("write", 0)
        try:
            result = checkpoint(
                writer.paths, writer.lock, writer.log, signing=signing, derive=run.aside.adopt, amendment=run
            )
        finally:
            run.aside.discard()
        warnings = result.warnings
    else:
        source.confirm_unchanged()
        run.validation.source_sha256 = run.validation.stored_sha256 = run.changes.expected.digest()
        run.validation.rows = run.changes.expected.rows
    return run, warnings


def current(paths: StorePaths, log: LogWriter) -> Columns:
    """The store's rows with its log laid over them, for reading. Close them afterwards."""
    columns = schema.open_columns(paths)
    try:
        overlay = Overlay(columns)
        apply_frames(overlay, log.frames(), log.reject, paths)
        return apply_overlay(columns, overlay)
    except BaseException:
        columns.close()
        raise


def check_dimension(given: int | None, dim: int) -> None:
    """Raise DimensionError where --embedding-dim is not the store's."""
    if given is not None and given != dim:
        raise DimensionError(expected=dim, given=given)


def _same(one: Session | Entity | Relation, other: Session | Entity | Relation | None) -> bool:
    """Whether two rows of a table are equal in every field."""
    return other is not None and all(getattr(one, name) == getattr(other, name) for name in one.__slots__)
