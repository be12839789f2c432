"""The last word before a migrated file gets its name: it is read back from disk and searched.

Invariants: nothing but the finished file is believed; every row is compared by hash, and 1,000 of them (or all) with
rows read from the source once more; one difference and the file is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from clawmem_core.errors import MigrationMismatchError
from clawmem_core.model import SearchOptions
from clawmem_core.storage import derived, fs, schema
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Entity, Relation, Session
from clawmem_core.store import MemoryStore
from clawmem_migrate import stored
from clawmem_migrate.batch import Batch
from clawmem_migrate.proof import Batches, Differences, Side, compare_graph, compare_rows

SAMPLE = 1000
SEARCHES = 5
_K = 10
_SAME = 0.999  # cosine of two vectors that a search may well take for each other
_QUERY = 2000  # characters of a text that is searched for


@dataclass
class Expectation:
    """What a file must hold. `rows`: hashes of the records; `source_ids`: only rows with one of these count, None: all.

    Record references of the graph are record ids; `settings`: values of /meta.
    """

    rows: Side
    sessions: list[Session]
    entities: list[Entity]
    relations: list[Relation]
    settings: dict[str, Any]
    source_ids: set[str] | None = None
    count: int | None = None


@dataclass
class Validation:
    """What was compared and searched, and what came of it."""

    rows: int = 0
    reread: int = 0
    full: bool = False
    searches: int = 0
    found: int = 0
    source_sha256: str = ""
    stored_sha256: str = ""
    differences: Differences = field(default_factory=Differences)


def validate(
    temp: str, source_path: str, expected: Expectation, read_source: Batches, again: Iterator[Batch], full: bool
) -> Validation:
    """Read a finished file back. `again`: source rows read anew (a sample, or all of them).

    Raises MigrationMismatchError, whose fields hold the Validation as `validation`, and DamagedError.
    """
    result = Validation(full=full)
    resampled: set[bytes] = set()
    for batch in again:
        resampled.update(batch.hashes())
        result.reread += len(batch)
    with schema.open_columns(StorePaths(temp)) as columns:
        found = result.differences
        _check_settings(columns, expected, found)
        side = Side()
        for batch in _counted(columns, expected):
            hashes = batch.hashes()
            side.add(hashes)
            resampled.difference_update(hashes)
        result.rows = side.rows
        result.source_sha256, result.stored_sha256 = expected.rows.digest(), side.digest()
        compare_rows(expected.rows, side, read_source, lambda: _counted(columns, expected), found)
        if resampled and not found.count:
            found.add("records", "", "reread", f"{len(resampled)} rows read differently the second time", None)
        compare_graph(expected.sessions, expected.entities, expected.relations, columns, found)
        if not found.count:
            _search(temp, columns, result)
    if found.count:
        raise MigrationMismatchError(
            path="the new file", source=source_path, differences=found.count, outcome="it was dropped",
            validation=result,
        )  # fmt: skip
    return result


def _check_settings(columns: Columns, expected: Expectation, found: Differences) -> None:
    for name, value in expected.settings.items():
        if getattr(columns.config, name) != value:
            found.add("settings", name, name, value, getattr(columns.config, name))
    if expected.count is not None and columns.count != expected.count:
        found.add("records", "", "count", expected.count, columns.count)


def _counted(columns: Columns, expected: Expectation) -> Iterator[Batch]:
    """The stored rows that the expectation speaks of."""
    for batch in stored.batches(columns):
        if expected.source_ids is None:
            yield batch
            continue
        rows = [row for row, one in enumerate(batch.source_ids) if one in expected.source_ids]
        if rows:
            yield batch if len(rows) == len(batch) else batch.take(rows)


def _search(temp: str, columns: Columns, result: Validation) -> None:
    """Look for some live migrated records through the public search: by vector where there is one, else by text."""
    rows = [row for row in _spread(columns.count, 4 * SEARCHES) if not columns.tombstones[row]][:SEARCHES]
    scopes = columns.scopes()
    with MemoryStore.open_read_only(temp) as store:
        for row in rows:
            record = columns.record(row)
            if record.id in scopes:
                continue
            vector = store.embedding(record)
            options = SearchOptions(k=_K, context=False)
            hits = store.search(vector, None, options) if vector else store.search(None, record.chunk[:_QUERY], options)
            result.searches += 1
            direct = any(hit.index == record.id for hit in hits)
            result.found += direct
            near = bool(hits) and (vector is None or hits[0].similarity >= _SAME)
            if not direct and not near and (vector is not None or _has_words(record.chunk)):
                result.differences.add("records", record.source_id, "search", "found", "not found")


def _has_words(text: str) -> bool:
    """Whether a text has anything a text search can look for."""
    return any(char.isalnum() for char in text)


def _spread(count: int, wanted: int) -> list[int]:
    """`wanted` whole numbers spread evenly over 0..count-1, first and last included; all where there are fewer."""
    if count <= wanted:
        return list(range(count))
    return sorted({number * (count - 1) // (wanted - 1) for number in range(wanted)})


def sample_of(count: int) -> list[int]:
    """Ranks of the rows that are read once more."""
    return _spread(count, SAMPLE)


class Aside:
    """Derived files of a file under its temporary name, to be moved beside it when it has its own.

    Searching the temporary file needs an index; building it twice would be waste.
    """

    def __init__(self) -> None:
        self._temp: StorePaths | None = None

    def make(self, temp: str) -> None:
        """Write the derived files of the finished file."""
        self._temp = StorePaths(temp)
        with schema.open_columns(self._temp) as columns:
            derived.write(self._temp, columns)

    def adopt(self, paths: StorePaths, columns: Columns) -> Iterable[str]:
        """Move them to the store (an argument for `derive`)."""
        if self._temp is None or fs.stat(self._temp.index) is None:
            return derived.write(paths, columns)
        fs.replace(self._temp.index, paths.index)
        if fs.stat(self._temp.keys) is not None:
            fs.replace(self._temp.keys, paths.keys)
        self._temp = None
        return []

    def discard(self) -> None:
        """Remove what was not adopted."""
        if self._temp is not None:
            for path in (self._temp.index, self._temp.keys):
                fs.unlink(path)
