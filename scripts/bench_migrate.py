#!/usr/bin/env python3
"""Migrate a made-up database and print rows a second next to a plain SELECT of the same rows in the same run.

bench_migrate.py [ROWS] [DIM]        default 100,000 rows of 384 values; `clawmem-migrate` is taken from PATH
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS = "id, chunk, embedding, source_channel, timestamp, session_id, tags, deleted"


def make(path: Path, rows: int, dim: int) -> None:
    """A database of the documented layout."""
    dice = np.random.default_rng(7)
    db = sqlite3.connect(path)
    db.executescript(
        """
        CREATE TABLE memory_chunks(id INTEGER PRIMARY KEY, chunk TEXT, embedding BLOB, source_channel TEXT,
            timestamp REAL, session_id TEXT, tags TEXT, deleted INTEGER);
        CREATE TABLE sessions(id TEXT PRIMARY KEY, start_idx INTEGER, end_idx INTEGER, channel TEXT, timestamp REAL,
            summary TEXT);
        CREATE TABLE entities(id INTEGER PRIMARY KEY, name TEXT, type TEXT, embedding_idx INTEGER);
        CREATE TABLE relations(src INTEGER, tgt INTEGER, relation TEXT, weight REAL, timestamp REAL);
        """
    )
    for first in range(0, rows, 1000):
        count = min(1000, rows - first)
        vectors = dice.standard_normal((count, dim)).astype("<f4")
        words = dice.zipf(1.3, (count, 12)) % 30_000
        db.executemany(
            "INSERT INTO memory_chunks VALUES(?, ?, ?, 'chat', ?, ?, 'made', 0)",
            [
                (first + n, " ".join(f"word{word}" for word in words[n]), vectors[n].tobytes(), 1.7e9 + first + n,
                 f"s{(first + n) // 50}")
                for n in range(count)
            ],
        )  # fmt: skip
    db.commit()
    db.close()


def select(path: Path) -> float:
    """Seconds of reading every row in id order."""
    db = sqlite3.connect(path)
    started = time.perf_counter()
    for _ in db.execute(f"SELECT {COLUMNS} FROM memory_chunks ORDER BY id"):
        pass
    seconds = time.perf_counter() - started
    db.close()
    return seconds


def main() -> int:
    """Make, scan, migrate, scan; print one JSON line."""
    rows, dim = (int(word) for word in [*sys.argv[1:], *("100000", "384")[len(sys.argv) - 1 :]])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.db"
        make(source, rows, dim)
        select(source)
        scans = [select(source) for _ in range(3)]
        command = ["clawmem-migrate", "--sqlite", str(source), "--hdf5", os.path.join(folder, "m.h5")]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        seconds = time.perf_counter() - started
        scans += [select(source) for _ in range(3)]
        if done.returncode:
            sys.stderr.buffer.write(done.stderr)
            return done.returncode
        scan = statistics.median(scans)
        answer = {
            "rows": rows, "dim": dim, "select_rows_per_second": round(rows / scan),
            "migrate_rows_per_second": round(rows / seconds), "ratio": round(seconds / scan, 1),
            "peak_rss_mib": json.loads(done.stdout)["cost"]["peak_rss_mib"],
        }  # fmt: skip
        print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
