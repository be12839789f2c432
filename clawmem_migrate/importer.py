"""A new store from a source: written by the bulk door, read back, and only then given its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import h5py

from clawmem_core import door
from clawmem_core.model import StoreConfig
from clawmem_core.overlay import Overlay
from clawmem_core.storage.bulk import BulkWriter
from clawmem_core.storage.log_format import LogState
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Alias
from clawmem_migrate.batch import Batch
from clawmem_migrate.progress import Progress
from clawmem_migrate.proof import Side
from clawmem_migrate.refusals import Refusals
from clawmem_migrate.source import Plan
from clawmem_migrate.state import SOURCE_DELETED, MigrationState
from clawmem_migrate.validate import Aside, Expectation, Validation, sample_of, validate


class Source(Protocol):
    """What a migration reads from."""

    path: str
    kind: str

    def preflight(self, refusals: Refusals, advance: Callable[[int], None]) -> Plan: ...
    def batches(self, plan: Plan) -> Iterator[Batch]: ...
    def rows_at(self, plan: Plan, ranks: list[int]) -> Iterator[Batch] | None: ...
    def confirm_unchanged(self) -> None: ...
    def aliases(self) -> list[Alias]: ...


@dataclass(frozen=True)
class Effort:
    """How a run goes about it: every row read again or a sample, seconds to wait for the destination's lock."""

    full: bool
    lock_timeout: float
    progress: Progress


def again(source: Source, plan: Plan, full: bool) -> tuple[Iterator[Batch], bool]:
    """Rows to read once more, and whether these are all."""
    sample = None if full else source.rows_at(plan, sample_of(plan.accepted))
    return (source.batches(plan), True) if sample is None else (sample, False)


class _NewStore:
    """What the bulk door asks an import for (checkpoint.Amendment)."""

    def __init__(self, source: Source, plan: Plan, expected: Expectation, effort: Effort) -> None:
        self._source, self._plan, self._expected, self._effort = source, plan, expected, effort
        self.state = MigrationState()
        self.release: Callable[[], None] = lambda: None
        self.aside = Aside()
        self.validation = Validation()

    def apply(self, overlay: Overlay, state: LogState) -> LogState:
        """Nothing: a new store has no log."""
        return state

    def write(self, file: h5py.File) -> None:
        """Remember the source ids."""
        self.state.write(file)
        self.state = MigrationState()

    def confirm(self, temp: str) -> None:
        """Read the file back before it has its name."""
        self.release()  # the file is complete; building its index needs the memory
        self._effort.progress.stage("index", self._plan.accepted)
        self.aside.make(temp)
        self._effort.progress.stage("validate", self._plan.accepted)
        rows, full = again(self._source, self._plan, self._effort.full)
        self.validation = validate(
            temp, self._source.path, self._expected, lambda: self._source.batches(self._plan), rows, full
        )
        self._source.confirm_unchanged()


def create(source: Source, plan: Plan, dest: str, config: StoreConfig, effort: Effort) -> Validation:
    """Write the accepted rows of a source into a new store at `dest`.

    Raises ExistsError, LockedError, MigrationMismatchError, SourceChangedError, StorageError; no output is left then.
    """
    graph, side = plan.graph, Side()
    settings = {name: getattr(config, name) for name in ("agent_id", "embedder", "dim", "float16")}
    expected = Expectation(side, graph.sessions, graph.entities, graph.relations, settings, count=plan.accepted)
    amendment = _NewStore(source, plan, expected, effort)
    writer = BulkWriter(
        StorePaths(dest), door.config(config), lock_timeout=effort.lock_timeout, derive=amendment.aside.adopt,
        amendment=amendment,
    )  # fmt: skip
    amendment.release = writer.discard
    effort.progress.stage("write", plan.accepted)
    try:
        with writer:
            for batch in source.batches(plan):
                side.add(batch.hashes())
                amendment.state.add(batch.source_ids, bytes([SOURCE_DELETED * gone for gone in batch.deleted]))
                texts = dict(
                    zip(("source_id", "chunk", "source_channel", "session_id", "tags"), batch.texts(), strict=True)
                )
                weights = batch.weights or [1.0] * len(batch)
                writer.add_columns(texts, batch.timestamps, batch.deleted, weights, batch.vectors)
                effort.progress.advance(len(batch))
            for session in graph.sessions:
                writer.add_session(session)
            for entity in graph.entities:
                writer.add_entity(entity)
            for relation in graph.relations:
                writer.add_relation(relation)
            for alias in source.aliases():
                writer.add_alias(alias)
            amendment.state.entities = {
                theirs: entity.id for theirs, entity in zip(graph.entity_ids, graph.entities, strict=True)
            }
            writer.finish()
    finally:
        amendment.aside.discard()
    return amendment.validation
