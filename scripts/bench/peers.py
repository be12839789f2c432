"""Databases and scripts of peers that do the same job: a JSON vector and words in, a JSON page out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.corpus import DIM, Corpus, Question

SCALE = 127 / 0.25  # int8 per unit: values of these vectors lie within ±0.25, rarely beyond

#: exact int8 neighbours and BM25, fused by reciprocal ranks
HYBRID = """
import json, sys
from struct import pack
import apsw
path, extension, scale, vector, words = sys.argv[1:]
database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
database.enable_load_extension(True)
database.load_extension(extension)
small = pack("384b", *[max(-127, min(127, round(value * float(scale)))) for value in json.loads(vector)])
near = [row for row, in database.execute(
    "select rowid from near where vector match vec_int8(?) and k = 64 order by distance", (small,))]
wanted = " OR ".join(words.split())
said = [row for row, in database.execute("select rowid from said where said match ? order by rank limit 64", (wanted,))]
score = {}
for rows in (near, said):
    for rank, row in enumerate(rows):
        score[row] = score.get(row, 0.0) + 1 / (60 + rank)
best = sorted(score, key=lambda row: (-score[row], row))[:10]
text = "select text from records where id = ?"
print(json.dumps([
    {"index": row, "score": score[row], "chunk": database.execute(text, (row,)).fetchone()[0]} for row in best]))
"""
#: BM25 alone
WORDS = """
import json, sys
import apsw
path, words = sys.argv[1:]
database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
wanted = " OR ".join(words.split())
print(json.dumps([{"index": row, "score": score, "chunk": text} for row, score, text in database.execute(
    "select rowid, rank, text from said where said match ? order by rank limit 10", (wanted,))]))
"""

Command = Callable[[Question], list[str]]


def databases(folder: Path, corpus: Corpus) -> dict[str, Command]:
    """Build the SQLite database of a corpus; the commands that search it, by name of the peer."""
    import apsw
    import sqlite_vec

    extension = sqlite_vec.loadable_path()
    path = folder / f"peer-{corpus.count}.db"
    database = apsw.Connection(str(path))
    database.enable_load_extension(True)
    database.load_extension(extension)
    for statement in (
        "create table records(id integer primary key, text text)",
        "create virtual table said using fts5(text, content='records', content_rowid='id')",
        f"create virtual table near using vec0(vector int8[{DIM}])",
    ):
        database.execute(statement)
    with database:
        database.executemany("insert into records values(?, ?)", enumerate(corpus.texts))
        database.executemany("insert into said(rowid, text) values(?, ?)", enumerate(corpus.texts))
        rows = ((row, small_vector(vector)) for row, vector in enumerate(corpus.vectors))
        database.executemany("insert into near(rowid, vector) values(?, vec_int8(?))", rows)
    database.execute("insert into said(said) values('optimize')")
    database.close()
    return {
        "sqlite-vec + FTS5": lambda q: [
            sys.executable, "-c", HYBRID, str(path), extension, str(SCALE), q.json, q.text
        ],
        "FTS5 alone": lambda q: [sys.executable, "-c", WORDS, str(path), q.text],
    }  # fmt: skip


def small_vector(vector: np.ndarray) -> bytes:  # type: ignore[type-arg]
    """A vector as int8, the way the peers hold it."""
    return np.rint(vector * SCALE).clip(-127, 127).astype(np.int8).tobytes()
