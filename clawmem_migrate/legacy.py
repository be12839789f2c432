"""A store of the Rust tools as a source of batches, its pending log included (storage/legacy_hdf5.py).

Record numbers of the old store become the source ids; sessions, entities, relations and aliases keep their numbers.

Invariants: the old files are only read; vectors go from float32 to the new store's width by the rules of the door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from clawmem_core.door import FLOAT16_MAX
from clawmem_core.storage import legacy_hdf5
from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session
from clawmem_migrate import stored
from clawmem_migrate.batch import Batch
from clawmem_migrate.graph import Graph
from clawmem_migrate.refusals import Problem, Refusals
from clawmem_migrate.source import Plan, Reading


class LegacyStore:
    """One old store. Close it when done."""

    kind = "clawhdf5"

    def __init__(self, path: str, reading: Reading) -> None:
        self.path, self._reading = path, reading
        self._columns = legacy_hdf5.load(path)
        self.config = self._columns.config
        self.warnings = self._columns.warnings
        self._rank: dict[int, int] = {}
        self._refused: set[int] = set()

    def close(self) -> None:
        """Let the file go."""
        self._columns.close()

    def __enter__(self) -> LegacyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        columns = self._columns
        return {
            "records": columns.active if self._reading.skip_deleted else columns.count,
            "sessions": len(columns.session_rows), "entities": len(columns.entity_rows),
            "relations": len(columns.relation_rows),
        }  # fmt: skip

    def preflight(self, refusals: Refusals, advance: Callable[[int], None]) -> Plan:
        """Check every vector against the width of the new store, and the references of sessions and graph."""
        columns, accepted, left_out = self._columns, 0, 0
        for start, batch in self._blocks():
            bad = self._unstorable(batch)
            for at, id in enumerate(columns.ids[start : start + len(batch)].tolist()):
                if self._reading.skip_deleted and batch.deleted[at]:
                    left_out += 1
                elif at in bad:
                    refusals.add("records", id, [bad[at]], {"chunk": batch.chunks[at]})
                    self._refused.add(id)
                else:
                    self._rank[id] = accepted
                    accepted += 1
            advance(len(batch))
        total = {**self.counts(), "records": columns.count}
        return Plan(
            columns.config.dim, None, accepted, left_out, self._graph(refusals), total, dict(refusals.by_table)
        )  # fmt: skip

    def _blocks(self) -> Iterator[tuple[int, Batch]]:
        start = 0
        for batch in stored.batches(self._columns):
            batch.source_ids = [str(id) for id in self._columns.ids[start : start + len(batch)].tolist()]
            yield start, batch
            start += len(batch)

    def _unstorable(self, batch: Batch) -> dict[int, Problem]:
        """Rows whose vector the new store cannot hold."""
        if not self._reading.float16:
            return {}
        largest = np.abs(batch.vectors).max(axis=1, initial=0)
        return {
            int(at): Problem(
                "embeddings", f"holds {largest[at]:g}, beyond the ±65504 of float16", "scale the vectors, or give --f32"
            )
            for at in np.flatnonzero(largest > FLOAT16_MAX)
        }

    def _graph(self, refusals: Refusals) -> Graph:
        columns, graph = self._columns, Graph()
        graph.sessions = [
            Session(row.id, *self._range(row.start, row.end), row.channel, row.summary, row.timestamp)
            for row in {row.id: row for row in reversed(columns.session_rows)}.values()
        ][::-1]
        graph.entities = [
            Entity(row.id, row.name, row.type, self._rank.get(row.record_id, -1)) for row in columns.entity_rows
        ]
        graph.entity_ids = [row.id for row in graph.entities]
        known, edges = set(graph.entity_ids), dict[tuple[int, int, str], Relation]()
        for row in columns.relation_rows:
            missing = [end for end in (row.source, row.target) if end not in known]
            if missing:
                problem = Problem("relation", f"{missing[0]} is the id of no entity", "--skip-invalid leaves it out")
                refusals.add("relations", f"{row.source} {row.type} {row.target}", [problem], {"relation": row.type})
            else:
                edges[row.source, row.target, row.type] = row
        graph.relations = list(edges.values())
        return graph

    def _range(self, start: int, end: int) -> tuple[int, int]:
        """Ranks of the first and last migrated record of a session, (-1, -1) where none is left."""
        if start < 0 or end < start:
            return -1, -1
        ids = self._columns.ids
        low, high = np.searchsorted(ids, start), np.searchsorted(ids, end, side="right")
        ranks = [self._rank[id] for id in ids[low:high].tolist() if id in self._rank]
        return (ranks[0], ranks[-1]) if ranks else (-1, -1)

    def batches(self, plan: Plan) -> Iterator[Batch]:
        """The accepted rows in order, vectors in the width of the new store."""
        ids = self._columns.ids
        for start, batch in self._blocks():
            rows = [at for at, id in enumerate(ids[start : start + len(batch)].tolist()) if id in self._rank]
            found = batch if len(rows) == len(batch) else batch.take(rows)
            if self._reading.float16:
                found.vectors = found.vectors.astype("<f2")
            has: npt.NDArray[np.bool_] = np.asarray(found.vectors.any(axis=1), np.bool_)
            found.present = None if has.all() else has
            if len(found):
                yield found

    def rows_at(self, plan: Plan, ranks: list[int]) -> Iterator[Batch] | None:
        """None: an old store is always read again in full."""
        return None

    def aliases(self) -> list[Alias]:
        """Other names of entities."""
        known = {row.id for row in self._columns.entity_rows}
        return [row for row in self._columns.alias_rows if row.entity_id in known]

    def confirm_unchanged(self) -> None:
        """The file was read into memory whole."""
