"""Source databases and the command under test, run in this process or in one of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from clawmem_core.model import Record
from clawmem_core.store import MemoryStore
from clawmem_migrate import entry

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/migrate-report.schema.json").read_text())
TABLES = """
CREATE TABLE memory_chunks(id INTEGER PRIMARY KEY, chunk TEXT, embedding BLOB, source_channel TEXT DEFAULT 'api',
    timestamp REAL, session_id TEXT, tags TEXT DEFAULT '', deleted INTEGER DEFAULT 0);
CREATE TABLE sessions(id TEXT PRIMARY KEY, start_idx INTEGER, end_idx INTEGER, channel TEXT, timestamp REAL,
    summary TEXT);
CREATE TABLE entities(id INTEGER PRIMARY KEY, name TEXT, type TEXT, embedding_idx INTEGER DEFAULT -1);
CREATE TABLE relations(src INTEGER, tgt INTEGER, relation TEXT, weight REAL DEFAULT 1.0, timestamp REAL);
"""
DIM = 4


class Answer:
    """Exit code, report and error of one run."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def report(self) -> dict[str, Any]:
        """The report on stdout, checked against its schema."""
        found: dict[str, Any] = json.loads(self.out)
        jsonschema.validate(found, SCHEMA)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The one error line on stderr."""
        (found,) = [json.loads(line)["error"] for line in self.err.splitlines() if line.startswith('{"error"')]
        return dict(found)

    @property
    def counts(self) -> tuple[int, ...]:
        """added, updated, deleted, undeleted, unchanged."""
        return tuple(self.report["records"][name] for name in ("added", "updated", "deleted", "undeleted", "unchanged"))

    def __repr__(self) -> str:
        return f"exit {self.code}, stdout {self.out[:600]!r}, stderr {self.err[:600]!r}"


class Maker:
    """Makes databases of the documented layout and stores from them."""

    @staticmethod
    def vector(*values: float) -> bytes:
        return struct.pack(f"<{len(values)}f", *values)

    def row(self, id: int, **values: Any) -> dict[str, Any]:
        """A good row; `values` replace some of its columns."""
        good = {
            "id": id, "chunk": f"text {id} naïve 日本", "embedding": self.vector(*(id + at + 0.5 for at in range(DIM))),
            "source_channel": "chat", "timestamp": 1.7e9 + id, "session_id": "s", "tags": "a, b", "deleted": 0,
        }  # fmt: skip
        return {**good, **values}

    def rows(self, path: Path, rows: Iterable[dict[str, Any]], script: str = "") -> Path:
        """A database with these rows, put in as given; `script` adds to it."""
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executescript(TABLES)
            self.insert(db, rows)
            db.executescript(script)
            db.commit()
        return path

    @staticmethod
    def insert(db: sqlite3.Connection, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO memory_chunks({', '.join(row)}) VALUES({marks})", tuple(row.values()))

    @staticmethod
    def script(path: Path, script: str, *values: Any) -> Path:
        """Run SQL on a database."""
        with contextlib.closing(sqlite3.connect(path)) as db:
            if values:
                db.execute(script, values)
            else:
                db.executescript(script)
            db.commit()
        return path


def records(path: Path, *, deleted: bool = True) -> list[Record]:
    """Every record of a store."""
    with MemoryStore.open_read_only(path) as store:
        return list(store.records(include_deleted=deleted))


def listing(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture
def make() -> Maker:
    """Maker of databases."""
    return Maker()


@pytest.fixture
def migrate(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs one command line in this process."""

    def run(*words: object) -> Answer:
        capfd.readouterr()
        code = entry.run([str(word) for word in words])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Answer(code, out, err)

    return run


@pytest.fixture
def migrate_process() -> Callable[..., Answer]:
    """Runs one command line in a process of its own; needed where this one has the source open."""

    def run(*words: object) -> Answer:
        start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from clawmem_migrate.entry import main; exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", start, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def records_of() -> Callable[..., list[Record]]:
    """Reads every record of a store."""
    return records


@pytest.fixture
def files_of() -> Callable[[Path], dict[str, str]]:
    """Hashes every file of a folder."""
    return listing
