"""--check: proof, by anybody and at any time, that a store gives back what its source holds. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

from clawmem_core.errors import DamagedError
from clawmem_core.overlay import Overlay
from clawmem_core.storage import fs, pair, schema
from clawmem_core.storage.apply_overlay import apply_overlay
from clawmem_core.storage.checkpoint import apply_frames, identity_of_file
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.log_format import Frame
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Entity, Relation, Session
from clawmem_migrate import stored
from clawmem_migrate.batch import Batch
from clawmem_migrate.proof import Side, compare_graph, compare_rows
from clawmem_migrate.source import Plan, SqliteSource
from clawmem_migrate.state import MigrationState
from clawmem_migrate.validate import Validation


def open_store(path: str) -> Columns:
    """File and log of a store as columns, without lock and derived files. Raises as a reader does."""
    paths = StorePaths(path)
    found = pair.open_pair(paths, lambda fd: identity_of_file(fd, paths.real))
    try:
        columns = schema.load(found.h5_fd, paths.real)
    except BaseException:
        fs.close(found.h5_fd)
        raise
    columns.fd = found.h5_fd
    try:
        bad: list[Frame] = []
        overlay = Overlay(columns)
        apply_frames(overlay, found.frames, bad.append, paths)
        if bad:
            raise DamagedError(path=paths.log, detail=f"the entry at byte {bad[0].offset} does not decode")
        return apply_overlay(columns, overlay)
    except BaseException:
        columns.close()
        raise


def check(source: SqliteSource, plan: Plan, columns: Columns) -> Validation:
    """Compare every row, session, entity and relation of a source with a store; records of no source do not count."""
    result = Validation(full=True)
    wanted, held = Side(), Side()
    ids: dict[int, int] = {}
    rank_of: dict[str, int] = {}
    for batch in source.batches(plan):
        wanted.add(batch.hashes())
        for one in batch.source_ids:
            rank_of[one] = len(rank_of)
    row = 0
    for batch in stored.batches(columns):
        for one, id in zip(batch.source_ids, columns.ids[row : row + len(batch)].tolist(), strict=True):
            if one in rank_of:
                ids[rank_of[one]] = id
        row += len(batch)
        mine = _from_source(batch)
        held.add(mine.hashes())
    result.rows, result.reread = held.rows, wanted.rows
    result.source_sha256, result.stored_sha256 = wanted.digest(), held.digest()
    compare_rows(wanted, held, lambda: source.batches(plan), lambda: _all_from_source(columns), result.differences)
    state = MigrationState.read(columns.file, columns.path)
    numbers = state.entities if state is not None else {}
    graph = plan.graph
    entity = [numbers.get(theirs, at) for at, theirs in enumerate(graph.entity_ids)]
    compare_graph(
        [Session(one.id, *_span(one, ids), one.channel, one.summary, one.timestamp) for one in graph.sessions],
        [Entity(entity[one.id], one.name, one.type, ids.get(one.record_id, -1)) for one in graph.entities],
        [
            Relation(entity[one.source], entity[one.target], one.type, one.weight, one.timestamp)
            for one in graph.relations
        ],
        columns,
        result.differences,
    )
    return result


def _from_source(batch: Batch) -> Batch:
    rows = [at for at, one in enumerate(batch.source_ids) if one]
    return batch if len(rows) == len(batch) else batch.take(rows)


def _all_from_source(columns: Columns) -> Iterator[Batch]:
    return map(_from_source, stored.batches(columns))


def _span(row: Session, ids: dict[int, int]) -> tuple[int, int]:
    """A session's ends as record ids, as an incremental run sets them."""
    inside = [ids[rank] for rank in range(row.start, row.end + 1) if rank in ids] if row.start >= 0 else []
    return (min(inside), max(inside)) if inside else (-1, -1)
