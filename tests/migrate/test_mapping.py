"""Other layouts: the shipped mappings on their tools' schemas, and mapping files."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from clawmem_core.errors import MappingError
from clawmem_core.store import MemoryStore
from clawmem_migrate import mapping

LLM = """
CREATE TABLE collections(id INTEGER PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE embeddings(collection_id INTEGER REFERENCES collections(id), id TEXT, embedding BLOB, content TEXT,
    content_blob BLOB, content_hash BLOB, metadata TEXT, updated INTEGER, PRIMARY KEY(collection_id, id));
INSERT INTO collections VALUES(1, 'notes', 'ada'), (2, 'docs', 'ada');
"""
MEMORIES = """
CREATE TABLE memories(id INTEGER PRIMARY KEY, content TEXT NOT NULL, embedding BLOB,
    created_at TEXT DEFAULT CURRENT_TIMESTAMP, tags TEXT, metadata TEXT);
"""

GOOD = '[records]\ntable = "t"\nid = "i"\nchunk = "c"'


def _records(path):
    with MemoryStore.open_read_only(path) as store:
        return list(store.records(include_deleted=True))


def test_llm(tmp_path, make, migrate):
    """Ids of two columns, content that falls back to the id, the collection's name as tag."""
    source = make.script(tmp_path / "e.db", LLM)
    put = "INSERT INTO embeddings VALUES(?, ?, ?, ?, NULL, x'00', '{}', ?)"
    for values in ((2, "b.txt", make.vector(1, 2), None, 1700000001), (1, "z", make.vector(3, 4), "text z", 1700000000),
                   (1, "a", make.vector(5, 6), "text a", None)):  # fmt: skip
        make.script(source, put, *values)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--mapping", "llm", "--validate-full")
    assert answer.code == 0, answer
    assert {"content_blob", "content_hash", "metadata"} == set(answer.report["source"]["not_carried"])
    found = [(r.source_id, r.chunk, r.tags, r.timestamp, r.source_channel) for r in _records(tmp_path / "m.h5")]
    assert [
        ("1/a", "text a", "notes", 0.0, "llm"), ("1/z", "text z", "notes", 1.7e9, "llm"),
        ("2/b.txt", "b.txt", "docs", 1.7e9 + 1, "llm"),
    ] == found  # fmt: skip
    make.script(source, "UPDATE embeddings SET content = 'new' WHERE id = 'z'")
    again = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--mapping", "llm", "--incremental")
    assert (0, 1, 0, 0, 2) == again.counts


def test_memories(tmp_path, make, migrate):
    """SQLite's own times, RFC 3339 and seconds; tags as text and as JSON array; NULL vectors."""
    source = make.script(tmp_path / "e.db", MEMORIES)
    put = "INSERT INTO memories(content, embedding, created_at, tags) VALUES(?, ?, ?, ?)"
    times = ("2023-11-14 22:13:20", "2023-11-14T23:13:20.5+01:00", 1700000000.25)
    tags = ("a, b", '["x", "y z"]', '["x", 1]')
    for n, (time, tag) in enumerate(zip(times, tags, strict=True)):
        make.script(source, put, f"memory {n}", make.vector(n + 1, 0) if n else None, time, tag)
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--mapping", "memories").code == 0
    found = _records(tmp_path / "m.h5")
    assert [1.7e9, 1.7e9 + 0.5, 1.7e9 + 0.25] == [record.timestamp for record in found]
    assert ["a, b", "x,y z", '["x", 1]'] == [record.tags for record in found]
    assert [None, np.array([2, 0], "<f2").tobytes()] == [record.vector for record in found[:2]]


@pytest.mark.parametrize(
    ("encoding", "stored"),
    [
        ("f16", np.array([1, -2.5], "<f2").tobytes()),
        ("f64", np.array([1, -2.5], "<f8").tobytes()),
        ("json", "[1, -2.5]"),
    ],
)
def test_encodings_units_and_a_joined_table(tmp_path, make, migrate, encoding, stored):
    """Vectors of a second table in any encoding, milliseconds, a filter, literals, text ids."""
    source = make.script(
        tmp_path / "e.db",
        """
        CREATE TABLE item(uid TEXT, body TEXT, at INTEGER, kind TEXT);
        CREATE TABLE vec(item TEXT, data);
        INSERT INTO item VALUES('b', 'two', 1700000000125, 'x'), ('a', 'one', 1700000000000, 'x'), ('c', 'no', 0, 'y');
        """,
    )
    make.script(source, "INSERT INTO vec VALUES('a', ?), ('b', ?)", stored, stored)
    (tmp_path / "map.toml").write_text(
        f"""
        [records]
        table = "item"
        id = "uid"
        chunk = "body"
        embedding = {{ column = "v.data", encoding = "{encoding}" }}
        timestamp = {{ column = "at", unit = "ms" }}
        source_channel = {{ value = "import" }}
        [join.v]
        table = "vec"
        key = "item"
        on = "uid"
        [filter]
        kind = "x"
        """
    )
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--map", tmp_path / "map.toml")
    assert answer.code == 0, answer
    half = struct.pack("<2e", 1, -2.5)
    assert [("a", "one", 1.7e9, half), ("b", "two", 1.7e9 + 0.125, half)] == [
        (r.source_id, r.chunk, r.timestamp, r.vector) for r in _records(tmp_path / "m.h5")
    ]
    make.script(source, "INSERT INTO vec VALUES('a', ?)", stored)
    (problem,) = migrate("--check", "--sqlite", source, "--hdf5", tmp_path / "m.h5", "--map", tmp_path / "map.toml"
                         ).report["problems"]  # fmt: skip
    assert ("a", "a stands twice") == (problem["row"], problem["what"])


def test_a_map_without_vectors_and_graph(tmp_path, make, migrate):
    """Only id and text: no vectors, no sessions, no graph, the default dimension."""
    source = make.script(tmp_path / "e.db", "CREATE TABLE t(b TEXT); INSERT INTO t VALUES('one'), ('two')")
    (tmp_path / "map.toml").write_text('[records]\ntable = "t"\nid = "rowid"\nchunk = "b"\n')
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--map", tmp_path / "map.toml").code == 0
    found = [(record.source_id, record.chunk, record.vector) for record in _records(tmp_path / "m.h5")]
    assert [("1", "one", None), ("2", "two", None)] == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[records", "not TOML"),
        ("", "no [records]"),
        ('[records]\ntable = "t"\nid = "i"', "lacks chunk"),
        (GOOD + '\nembeding = "e"', "embedding"),
        ('[records]\ntable = "t"\nid = "i"\nchunk = 7', "must be a table"),
        ('[records]\ntable = "t"\nid = {value = 1}\nchunk = "c"', "unknown key 'value'"),
        ('[records]\ntable = "t"\nid = "i"\nchunk = {column = "c", value = "d"}', "one of"),
        (GOOD + '\nembedding = {column = "e", encoding = "f8"}', "f32"),
        (GOOD + '\ntimestamp = {column = "e", unit = "h"}', "must be one of s, ms"),
        ('[records]\ntable = ""\nid = "i"\nchunk = "c"', "must be a name"),
        (GOOD + '\n[relations]\ntable = "r"\nsrc = "a"\ntgt = "b"\nrelation = "c"',
         "without [entities]"),
        (GOOD + '\n[filter]\na = [1]', "[filter] a"),
        (GOOD + '\n[join.x]\ntable = "t"\nkey = "k"', "[join.x] on"),
    ],
)  # fmt: skip
def test_mapping_files_that_make_no_sense(text, says):
    """What is wrong is named."""
    with pytest.raises(MappingError) as caught:
        mapping.parse("map.toml", text)
    assert says in caught.value.message


@pytest.mark.parametrize("name", mapping.SHIPPED)
def test_shipped_mappings_are_valid(name):
    """Each parses under its name."""
    assert mapping.shipped(name).name == name


def test_a_table_the_mapping_does_not_have(tmp_path, make, migrate):
    """--sessions-table with a mapping that has no sessions is an error, not ignored."""
    source = make.script(tmp_path / "e.db", MEMORIES)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--mapping", "memories", "--sessions-table", "s")
    assert (2, "mapping") == (answer.code, answer.error["code"])


def test_inspect_prints_a_mapping_that_works(tmp_path, make, migrate):
    """Tables, columns and counts as comments; the mapping below migrates the database as it is."""
    source = make.script(
        tmp_path / "e.db",
        """
        CREATE TABLE "Memory Items"(uuid TEXT, text TEXT, vector BLOB, created INTEGER, labels TEXT, "od""d" ANY);
        CREATE TABLE sessions(id TEXT, title TEXT);
        INSERT INTO sessions VALUES('s', 'a title');
        """,
    )
    put = """INSERT INTO "Memory Items" VALUES('u1', 'hello', ?, 1700000000, 'a', 1)"""
    make.script(source, put, make.vector(1, 2))
    answer = migrate("--inspect", "--sqlite", source)
    assert answer.code == 0 and "# Memory Items: 1 rows" in answer.out
    (tmp_path / "map.toml").write_text(answer.out)
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--map", tmp_path / "map.toml").code == 0
    (record,) = _records(tmp_path / "m.h5")
    assert ("u1", "hello", 1.7e9, "a") == (record.source_id, record.chunk, record.timestamp, record.tags)
    counted = json.loads(migrate("--sqlite", source, "--dry-run", "--map", tmp_path / "map.toml").out)
    assert {"records": 1, "sessions": 1} == counted["would_migrate"]
