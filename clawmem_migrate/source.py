"""A SQLite database as a source of batches: checked once in whole, then read again to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from clawmem_core.errors import UsageError
from clawmem_core.storage.row_ops import Alias
from clawmem_migrate.batch import Batch
from clawmem_migrate.database import Database
from clawmem_migrate.graph import Graph, GraphReader
from clawmem_migrate.mapping import Mapping
from clawmem_migrate.query import Query
from clawmem_migrate.refusals import Refusals
from clawmem_migrate.rows import RowIndex, RowReader

DEFAULT_DIM = 384  # of a store whose source has no vectors at all

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Reading:
    """How a source is read: width of the vectors, their length if given, whether deleted rows are left out."""

    float16: bool = True
    dim: int | None = None
    skip_deleted: bool = False


@dataclass
class Plan:
    """What preflight found: a source that can be migrated as far as `refused` rows allow.

    `total`: rows by table; `accepted`, `left_out`: records; `dim_from`: id of the row that told the dimension;
    `refused`: rows by table.
    """

    dim: int
    dim_from: str | None
    accepted: int
    left_out: int
    graph: Graph
    total: dict[str, int]
    refused: dict[str, int]
    index: RowIndex = field(default_factory=RowIndex)


class SqliteSource:
    """One database read through one mapping."""

    kind = "sqlite"

    def __init__(self, database: Database, mapping: Mapping, reading: Reading) -> None:
        self.path, self.mapping = database.path, mapping
        self._database, self._reading = database, reading
        self._query = Query(database, mapping)

    def counts(self) -> dict[str, int]:
        """Rows by table that a migration would read, without looking at them."""
        live = self._reading.skip_deleted
        return {kind: self._query.count(kind, live=live and kind == "records") for kind in self.mapping.tables}

    def not_carried(self) -> list[str]:
        """Columns of the records' table that no field of a record takes."""
        return self._query.not_carried()

    def preflight(self, refusals: Refusals, advance: Advance) -> Plan:
        """Check every row of every table. Raises UsageError where no row tells the dimension and none was given."""
        index = RowIndex()
        reader = self._reader(self._reading.dim, refusals, index, only_check=True)
        before = 0
        for _ in reader.batches(self._query.rows("records")):
            advance(reader.total - before)
            before = reader.total
        graph = GraphReader(self.mapping, index, refusals)
        for kind in self.mapping.tables:
            if kind != "records":
                graph.read(kind, self._query.rows(kind))
        dim = reader.dim or (DEFAULT_DIM if self.mapping.encoding == "none" else None)
        if dim is None and not refusals.rows:
            raise UsageError(
                detail=f"{self.path} has no row that tells the length of the vectors", hint="give --embedding-dim N"
            )
        return Plan(
            dim or 0, reader.dim_from, reader.accepted, reader.left_out, graph.graph,
            {"records": reader.total, **graph.total}, dict(refusals.by_table), index,
        )  # fmt: skip

    def batches(self, plan: Plan) -> Iterator[Batch]:
        """The accepted rows, read again in id order."""
        return self._reader(plan.dim).batches(self._query.rows("records"))

    def batches_and_left_out(self, plan: Plan, left_out: list[str]) -> Iterator[Batch]:
        """The same; ids of the rows that --skip-deleted leaves out are appended to `left_out`."""
        reader = self._reader(plan.dim)
        reader.left_out_ids = left_out
        return reader.batches(self._query.rows("records"))

    def rows_at(self, plan: Plan, ranks: Sequence[int]) -> Iterator[Batch] | None:
        """The accepted rows of these ranks (ascending), read once more; None where ids are no whole numbers."""
        wanted = iter(ranks)
        rank, next_rank = 0, next(wanted, -1)
        ids: list[tuple[int]] = []
        if len(plan.index.ids) != plan.total["records"]:
            return None
        for id, kept in zip(plan.index.ids, plan.index.kept, strict=True):
            if kept:
                if rank == next_rank:
                    ids.append((id,))
                    next_rank = next(wanted, -1)
                rank += 1
        return self._reader(plan.dim).batches(self._query.records_with(ids))

    def aliases(self) -> list[Alias]:
        """A SQLite source has none."""
        return []

    def _reader(
        self, dim: int | None, refusals: Refusals | None = None, index: RowIndex | None = None, only_check: bool = False
    ) -> RowReader:
        return RowReader(
            self.mapping, float16=self._reading.float16, dim=dim, skip_deleted=self._reading.skip_deleted,
            refusals=refusals, index=index, only_check=only_check,
        )  # fmt: skip

    def confirm_unchanged(self) -> None:
        """Raise SourceChangedError where what was read may be no single state of the source."""
        self._database.confirm_unchanged()
