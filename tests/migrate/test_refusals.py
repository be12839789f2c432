"""Bad rows: every one is named with column and remedy, before any output exists."""

from __future__ import annotations

import json
import math

import pytest

BAD = {
    "chunk": [None, "", "a\0b", b"blob", 5],
    "embedding": [None, b"", b"\0" * 15, b"\0" * 12, b"\0" * 20, "text", 3, b"\0" * 16],
    "source_channel": ["a\0b", b"x", 1],
    "timestamp": [None, "2026-01-01", b"x", 1.7e12, math.inf],
    "session_id": ["a\0b", b"x", 7],
    "tags": ["a\0b", b"x", 1.5],
    "deleted": [None, 2, -1, 0.5, "yes"],
}
CASES = [(column, value) for column, values in BAD.items() for value in values]


@pytest.mark.parametrize(("column", "value"), CASES, ids=repr)
def test_one_bad_value(tmp_path, make, migrate, column, value):
    """A value that cannot be stored is refused by row and column, with a way to mend it."""
    source = make.rows(tmp_path / "a.db", [make.row(1), make.row(7, **{column: value}), make.row(9)])
    # column affinity turns some numbers into texts; what counts is what is stored
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    stored_as_text = column in ("source_channel", "session_id", "tags", "chunk") and isinstance(value, int | float)
    if stored_as_text:
        assert answer.code == 0
        return
    assert (2, "source-rows") == (answer.code, answer.error["code"])
    (problem,) = answer.report["problems"]
    assert ("records", 7, column) == (problem["table"], problem["row"], problem["column"])
    assert problem["what"] and problem["fix"]
    assert ["a.db"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((math.nan, 1, 1, 1), "NaN"),
        ((1, -math.inf, 1, 1), "infinity"),
        ((1, 1, 65505, 1), "65505"),
        ((1, 1, 1, -65519.996), "65504"),
        ((1e-9, 0, 0, 0), "zeros"),
        ((0, 0, 0, 0), "zeros"),
    ],
)
def test_vectors_a_store_cannot_hold(tmp_path, make, migrate, values, says):
    """NaN, infinity, magnitudes beyond float16, vectors that are or round to zero."""
    source = make.rows(tmp_path / "a.db", [make.row(1), make.row(2, embedding=make.vector(*values))])
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    (problem,) = answer.report["problems"]
    assert says in problem["what"]


@pytest.mark.parametrize("length", [3, 5])
def test_vectors_of_another_length(tmp_path, make, migrate, files_of, length):
    """A short or a long row is named, neither padded nor cut, and the store that is there is kept (defects M2, M3)."""
    good = make.rows(tmp_path / "good.db", [make.row(1)])
    assert 0 == migrate("--sqlite", good, "--hdf5", tmp_path / "m.h5").code
    (tmp_path / "m.h5.lock").unlink()  # it names whoever held it last
    before = files_of(tmp_path)
    source = make.rows(tmp_path / "a.db", [make.row(1), make.row(2, embedding=make.vector(*[0.5] * length))])
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--incremental")
    assert (2, "source-rows") == (answer.code, answer.error["code"])
    (problem,) = answer.report["problems"]
    assert ("records", 2, "embedding") == (problem["table"], problem["row"], problem["column"])
    assert f"{length} values" in problem["what"]
    source.unlink()
    (tmp_path / "m.h5.lock").unlink()
    assert before == files_of(tmp_path)


def test_all_problems_are_listed(tmp_path, make, migrate):
    """Problems of one row, of several rows and tables, all in one report; good rows go on with --skip-invalid."""
    script = """
    INSERT INTO sessions VALUES('s0', 1, 99, '', 0, ''), ('', 1, 1, '', 0, ''), ('s2', 'x', 1, x'00', NULL, '');
    INSERT INTO entities VALUES(1, NULL, 'person', -1), (2, 'B', 'person', 1.5), (3, 'C', 'p', -1), (4, 'D', 'p', -1);
    INSERT INTO relations VALUES(3, 4711, 'knows', 1, 1), (3, 4, NULL, 1, 1), (3, 4, 'a', 'much', 1), (3, 4, 'b', 1, 1),
        (3, 4, 'b', 1, 1), (1, 3, 'c', 1, 1);
    """
    rows = [make.row(1), make.row(2, chunk=None, tags=b"x", deleted=3), make.row(3)]
    source = make.rows(tmp_path / "a.db", rows, script)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    found = [(problem["table"], problem["row"], problem["column"]) for problem in answer.report["problems"]]
    assert [
        ("records", 2, "chunk"), ("records", 2, "tags"), ("records", 2, "deleted"),
        ("sessions", "", "id"), ("sessions", "s0", "end_idx"), ("sessions", "s2", "channel"),
        ("sessions", "s2", "start_idx"), ("entities", 1, "name"), ("entities", 2, "embedding_idx"),
        ("relations", "1 c 3", "src"), ("relations", "3 NULL 4", "relation"), ("relations", "3 a 4", "weight"),
        ("relations", "3 b 4", "relation"), ("relations", "3 knows 4711", "tgt"),
    ] == found  # fmt: skip
    assert answer.report["refused"] == 11
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--skip-invalid")
    assert (3, "partial-migration") == (answer.code, answer.error["code"])
    tables = answer.report["tables"]
    assert [2, 0, 2, 1] == [tables[kind]["accepted"] for kind in ("records", "sessions", "entities", "relations")]


def test_rejects_keep_the_rows(tmp_path, make, migrate):
    """Each refused row is one object with its values; blobs as base64."""
    source = make.rows(tmp_path / "a.db", [make.row(1), make.row(2, chunk="a\0b", embedding=b"\1\2\3")])
    migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--rejects", tmp_path / "r.ndjson")
    (line,) = (tmp_path / "r.ndjson").read_text().splitlines()
    row = json.loads(line)
    assert ("records", 2) == (row["table"], row["row"])
    assert ["chunk", "embedding"] == [problem["column"] for problem in row["problems"]]
    assert ("a\0b", {"base64": "AQID"}) == (row["values"]["chunk"], row["values"]["embedding"])


def test_text_that_is_no_utf8(tmp_path, make, migrate):
    """Bytes stored as TEXT that are not UTF-8 are refused, not replaced."""
    source = make.rows(tmp_path / "a.db", [make.row(1), make.row(2)])
    make.script(source, "UPDATE memory_chunks SET chunk = CAST(x'ff41' AS TEXT) WHERE id = 2")
    (problem,) = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5").report["problems"]
    assert (2, "chunk") == (problem["row"], problem["column"]) and "UTF-8" in problem["what"]


def test_duplicate_and_strange_ids(tmp_path, make, migrate):
    """Where the id is no primary key: duplicates, NULL, REAL and mixed kinds are refused."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    make.script(
        source,
        """
        CREATE TABLE loose AS SELECT * FROM memory_chunks;
        INSERT INTO loose SELECT 1, chunk, embedding, 'x', timestamp, session_id, tags, deleted FROM memory_chunks;
        INSERT INTO loose SELECT NULL, chunk, embedding, 'x', timestamp, session_id, tags, deleted FROM memory_chunks;
        CREATE TABLE looser(id, chunk, embedding, source_channel, timestamp, session_id, tags, deleted);
        INSERT INTO looser SELECT * FROM memory_chunks;
        INSERT INTO looser SELECT 'one', chunk, embedding, 'x', timestamp, session_id, tags, deleted FROM memory_chunks;
        INSERT INTO looser SELECT 1.5, chunk, embedding, 'x', timestamp, session_id, tags, deleted FROM memory_chunks;
        """,
    )
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--chunks-table", "loose")
    assert [(None, "id"), (1, "id")] == [(p["row"], p["column"]) for p in answer.report["problems"]]
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--chunks-table", "looser")
    assert [(None, "id"), ("one", "id")] == [(p["row"], p["column"]) for p in answer.report["problems"]]


def test_deleted_rows_are_left_out_whatever_is_wrong_with_them(tmp_path, make, migrate):
    """--skip-deleted does not stumble over rows it does not take."""
    source = make.rows(tmp_path / "a.db", [make.row(1, deleted=1, embedding=None, chunk=None), make.row(2)])
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--skip-deleted")
    assert (0, 1) == (answer.code, answer.report["records"]["left_out"])


def test_tables_and_columns_that_are_missing(tmp_path, make, migrate):
    """Named, with the nearest that exist; an injection is only a name that does not exist."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    make.script(source, "CREATE TABLE other(id, chunk, embeding, source_channel, timestamp, session_id, tags, deleted)")
    for name, says in (
        ("memory_chunk", "memory_chunks"),
        ("other", "embeding"),
        ('memory_chunks"; DROP TABLE sessions; --', "has no table"),
        ("sqlite_master", "has no table"),
    ):
        answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--chunks-table", name)
        assert (14, "source-layout") == (answer.code, answer.error["code"])
        assert says in answer.error["message"]
    make.script(source, "DROP TABLE relations")
    assert "'relations'" in migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5").error["message"]


def test_a_table_name_that_needs_quoting(tmp_path, make, migrate):
    """Quotes, blanks, keywords; case does not matter, as in SQLite."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    make.script(source, 'ALTER TABLE memory_chunks RENAME TO "my ""odd"" select"')
    assert migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5", "--chunks-table", 'My "odd" SELECT').code == 0
