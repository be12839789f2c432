"""Sources of every kind and condition: read without changing them, or refused with a clear error."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from clawmem_core.errors import DamagedError, LockedError, NotASourceError, NotFoundError
from clawmem_migrate.database import Database, Undecodable, quoted

WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    db.execute(statement)
print("ready", flush=True)
sys.stdin.read()
"""


class Writer:
    """Another process that has a database open."""

    def __init__(self, path, *statements):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), *statements], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def _count(path, **how):
    with Database(str(path), **how) as database:
        return database.count("memory_chunks")


def test_a_live_writer_is_read_through_its_log(tmp_path, make, files_of):
    """Committed rows of another process's write-ahead log are read; its files stay as they are."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    statements = ("PRAGMA journal_mode = wal", "PRAGMA wal_autocheckpoint = 0",
                  "INSERT INTO memory_chunks(id, chunk) VALUES(2, 'two')")  # fmt: skip
    with Writer(source, *statements):
        before = files_of(tmp_path)
        assert _count(source) == 2
        after = files_of(tmp_path)
        assert {name: sha for name, sha in before.items() if not name.endswith("-shm")} == {
            name: sha for name, sha in after.items() if not name.endswith("-shm")
        }


def test_the_log_of_a_killed_writer_is_read_from_a_copy(tmp_path, make, files_of):
    """Nobody has the write-ahead log open: recovery happens in a private copy, which is removed."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    writer = Writer(source, "PRAGMA journal_mode = wal", "INSERT INTO memory_chunks(id, chunk) VALUES(2, 'two')")
    writer.kill()
    before = files_of(tmp_path)
    assert "a.db-wal" in before
    assert _count(source) == 2
    assert before == files_of(tmp_path)


def test_a_log_in_a_read_only_folder(tmp_path, make, files_of):
    """The same where the folder can not be written to."""
    folder = tmp_path / "closed"
    folder.mkdir()
    source = make.rows(folder / "a.db", [make.row(1)])
    Writer(source, "PRAGMA journal_mode = wal", "INSERT INTO memory_chunks(id, chunk) VALUES(2, 'two')").kill()
    folder.chmod(0o555)
    before = files_of(folder)
    try:
        assert _count(source) == 2
        assert before == files_of(folder)
    finally:
        folder.chmod(0o755)


def test_a_quiet_wal_database_leaves_no_files(tmp_path, make, files_of):
    """WAL mode in the header, no -wal beside it: read as it is."""
    source = make.rows(tmp_path / "a.db", [make.row(1)], "PRAGMA journal_mode = wal;")
    before = files_of(tmp_path)
    assert ["a.db"] == list(before)
    assert _count(source) == 1
    assert before == files_of(tmp_path)


def test_a_hot_journal_is_played_back_in_a_copy(tmp_path, make, files_of):
    """A writer that died in a transaction left a rollback journal: the state before it is read."""
    source = make.rows(tmp_path / "a.db", [make.row(id, chunk="x" * 3000) for id in range(60)])
    writer = Writer(source, "PRAGMA cache_size = 1", "PRAGMA cache_spill = 1", "BEGIN IMMEDIATE",
                    "UPDATE memory_chunks SET chunk = chunk || 'y'", "DELETE FROM memory_chunks")  # fmt: skip
    writer.kill()
    assert "a.db-journal" in files_of(tmp_path)
    before = files_of(tmp_path)
    assert _count(source) == 60
    assert before == files_of(tmp_path)


def test_a_locked_database_names_its_owner(tmp_path, make):
    """After the wait: exit 11 and the process that holds the lock."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    with Writer(source, "BEGIN EXCLUSIVE") as writer, pytest.raises(LockedError) as caught:
        _count(source, lock_timeout=0.1)
    assert str(writer.process.pid) in caught.value.message


def test_a_pipe_is_no_database(tmp_path):
    """Nothing waits for somebody to write into it."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotASourceError):
        _count(tmp_path / "pipe")


def test_what_is_no_database(tmp_path, make):
    """A missing file, a folder, text, an encrypted or truncated file: refused by name, nothing made."""
    source = make.rows(tmp_path / "a.db", [make.row(id, chunk="x" * 2000) for id in range(9)])
    data = source.read_bytes()
    (tmp_path / "text").write_text("no database\n" * 99)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 99)
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    before = {path.name for path in tmp_path.iterdir()}
    cases = {"nope": NotFoundError, ".": NotASourceError, "text": NotASourceError, "empty": NotASourceError,
             "noise": NotASourceError, "cut": DamagedError}  # fmt: skip
    for name, kind in cases.items():
        with pytest.raises(kind) as caught:
            _count(tmp_path / name)
        assert name == "." or name in caught.value.message
    assert before == {path.name for path in tmp_path.iterdir()}


def test_a_damaged_page(tmp_path, make, migrate):
    """Damage inside the file is found while reading: exit 13, no output."""
    source = make.rows(tmp_path / "a.db", [make.row(id, chunk="x" * 2000) for id in range(99)])
    data = bytearray(source.read_bytes())
    data[4096 * 10 : 4096 * 40] = b"\xff" * (4096 * 30)
    source.write_bytes(data)
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5")
    assert (13, "damaged") == (answer.code, answer.error["code"])
    assert ["a.db"] == [path.name for path in tmp_path.iterdir()]


def test_odd_paths(tmp_path, make):
    """Characters that mean something in a URI are only characters of a path."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    for name in ("a?mode=rwc.db", "a#b%20.db", "ä ö.db", "-x.db"):
        shutil.copy(source, tmp_path / name)
        assert _count(tmp_path / name) == 1


def test_a_writer_that_has_written_nothing_yet(tmp_path, make):
    """WAL mode, open elsewhere, an empty log: what that process commits meanwhile is no reason to refuse."""
    source = make.rows(tmp_path / "a.db", [make.row(1)], "PRAGMA journal_mode = wal;")
    with Writer(source, "SELECT count(*) FROM memory_chunks"), Database(str(source)) as database:
        make.script(source, "INSERT INTO memory_chunks(id, chunk) VALUES(2, 'two')")
        assert database.count("memory_chunks") == 1
        database.confirm_unchanged()


def test_a_writer_in_exclusive_mode(tmp_path, make, files_of):
    """A WAL database locked as a whole is in use, not to be copied: exit 11 and its owner."""
    source = make.rows(tmp_path / "a.db", [make.row(1)], "PRAGMA journal_mode = wal;")
    statements = ("PRAGMA locking_mode = exclusive", "INSERT INTO memory_chunks(id, chunk) VALUES(2, 'two')")
    with Writer(source, *statements) as writer:
        before = files_of(tmp_path)
        with pytest.raises(LockedError) as caught:
            _count(source, lock_timeout=0.1)
        assert str(writer.process.pid) in caught.value.message
        assert before == files_of(tmp_path)


def test_a_symlink(tmp_path, make, files_of):
    """Logs lie beside the real file."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "b.db").symlink_to(source)
    Writer(source, "PRAGMA journal_mode = wal", "INSERT INTO memory_chunks(id, chunk) VALUES(2, 'two')").kill()
    assert _count(folder / "b.db") == 2
    assert ["b.db"] == [path.name for path in folder.iterdir()]


def test_text_that_is_no_utf8(tmp_path, make):
    """It comes as Undecodable bytes, other text as str, blobs as bytes."""
    source = make.rows(tmp_path / "a.db", [])
    make.script(source, "INSERT INTO memory_chunks(id, chunk, tags) VALUES(1, CAST(x'ff41' AS TEXT), 'ä')")
    with Database(str(source)) as database:
        (row,) = database.rows("SELECT chunk, tags, x'ff41' FROM memory_chunks")
    assert (Undecodable, str, bytes) == tuple(map(type, row))


def test_rows_before_a_text_that_is_no_utf8_come_once(tmp_path, make):
    """The query is run again from there on."""
    source = make.rows(tmp_path / "a.db", [make.row(number) for number in range(1, 6)])
    make.script(source, "UPDATE memory_chunks SET chunk = CAST(x'ff' AS TEXT) WHERE id IN (3, 5)")
    with Database(str(source)) as database:
        for _ in range(2):
            rows = list(database.rows("SELECT id, chunk FROM memory_chunks ORDER BY id"))
            assert [1, 2, 3, 4, 5] == [id for id, _ in rows]
            assert [str, str, Undecodable, str, Undecodable] == [type(text) for _, text in rows]


def test_nothing_can_be_written(tmp_path, make):
    """The connection refuses every change."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    with Database(str(source)) as database:
        for statement in ("DELETE FROM memory_chunks", "CREATE TABLE x(y)", "PRAGMA user_version = 3"):
            with pytest.raises((sqlite3.Error, Exception)):
                list(database.rows(statement))
                list(database.rows("PRAGMA user_version"))
                raise RuntimeError  # a PRAGMA that does nothing is as good
    with sqlite3.connect(source) as db:
        assert (1, 0) == (db.execute("SELECT count(*) FROM memory_chunks").fetchone()[0],
                          db.execute("PRAGMA user_version").fetchone()[0])  # fmt: skip
    db.close()


def test_quoted():
    """A name becomes one identifier, whatever is in it."""
    assert '"a""; DROP TABLE x; --"' == quoted('a"; DROP TABLE x; --')
