"""What is wrong with a source, row by row.

Invariants: every problem of every row is kept, however many there are: they lie in a private SQLite database that
spills to disk by itself and is gone with the process; refused rows go to the rejects file one JSON object a line.
"""

from __future__ import annotations

import math
import sqlite3
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from clawmem_core.storage.atomic import AtomicFile

_BUFFER = 1 << 20


class Problem(NamedTuple):
    """Why a row is refused: its column (in the source's words), what is there, how to fix it."""

    column: str
    what: str
    fix: str


class Refusals:
    """Collects the refused rows of a run. `rejects`: path of the NDJSON file of refused rows, or None.

    `rows`: refused rows, `by_table` the same by table; `problems`: all their problems.
    """

    def __init__(self, rejects: str | None = None) -> None:
        self.rows = self.problems = 0
        self.by_table: dict[str, int] = {}
        self._kept = sqlite3.connect("", isolation_level=None)
        self._kept.execute("CREATE TABLE problem(kind TEXT, row TEXT, col TEXT, what TEXT, fix TEXT)")
        self._kept.execute("BEGIN")
        self._file = AtomicFile(rejects) if rejects is not None else None
        self._buffer = bytearray()

    def add(self, kind: str, row: int | str | None, problems: Sequence[Problem], values: Mapping[str, Any]) -> None:
        """Refuse one row of a table. `row`: its id as far as it has one; `values`: its columns as they are stored."""
        self.rows += 1
        self.by_table[kind] = self.by_table.get(kind, 0) + 1
        self.problems += len(problems)
        label = orjson.dumps(row).decode()
        self._kept.executemany(
            "INSERT INTO problem VALUES(?, ?, ?, ?, ?)", [(kind, label, *problem) for problem in problems]
        )
        if self._file is not None:
            line = {
                "table": kind,
                "row": row,
                "problems": [problem._asdict() for problem in problems],
                "values": {name: printable(value) for name, value in values.items()},
            }
            self._buffer += orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
            if len(self._buffer) >= _BUFFER:
                self._flush()

    def _flush(self) -> None:
        if self._file is not None:
            self._file.write(self._buffer)
            self._buffer.clear()

    def documents(self) -> Iterator[dict[str, Any]]:
        """Every problem as an object: table, row, column, what, fix."""
        for kind, row, column, what, fix in self._kept.execute("SELECT * FROM problem ORDER BY rowid"):
            yield {"table": kind, "row": orjson.loads(row), "column": column, "what": what, "fix": fix}

    def commit(self) -> None:
        """Make the rejects file appear."""
        if self._file is not None:
            self._flush()
            self._file.commit()

    def close(self) -> None:
        """Forget everything; a rejects file that was not committed is removed."""
        self._kept.close()
        if self._file is not None:
            self._file.discard()

    def __enter__(self) -> Refusals:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def printable(value: Any) -> Any:
    """A stored value as JSON: blobs as {"base64": …}, text that is not UTF-8 likewise, NaN and infinity as text."""
    if isinstance(value, bytes):
        return {"base64": b2a_base64(value, newline=False).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
