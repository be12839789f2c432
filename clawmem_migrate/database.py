"""Opening a foreign SQLite database without changing a byte beside or inside it.

Invariants: the file is never created, written or left with a `-wal` or `-shm` it did not have; everything is read in
one read transaction, so all tables are of one state. How that is done depends on what lies there:

- no write-ahead log in use: an ordinary read-only connection (which makes no files);
- WAL mode and another process has it open: a read-only connection through that process's `-shm`;
- WAL mode and no `-wal` beside it: `immutable=1`, and `confirm_unchanged` refuses what was written to meanwhile;
- a `-wal` or a hot rollback journal that nobody has open: both files are copied to a private folder and read there,
  because recovery would write beside the original.

Text comes as `str`, or as `Undecodable` where it is not UTF-8. sqlite3's own errors leave as errors of this toolchain.
Sources: SQLite documentation, "Database File Format" § 1.3 and § 4, "Write-Ahead Logging" § read-only databases.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import struct
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

from clawmem_core.errors import (
    ClawmemError,
    DamagedError,
    LockedError,
    NotASourceError,
    NotFoundError,
    SourceChangedError,
    StorageError,
)
from clawmem_core.storage import fs
from clawmem_migrate.workspace import Workspace

MAGIC = b"SQLite format 3\0"
MAX_VALUE = 20 << 20  # bytes of one row; the longest text a store takes has 16 MiB
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PENDING_BYTE = 0x40000000  # first lock byte of the database file
_LOCK_BYTES = 512
_SHM_ALIVE = 128  # byte of the -shm file that every open connection holds a lock on
#: struct flock of 64-bit systems
_FLOCK, _FLOCK_FIELDS = (
    (struct.Struct("qqihh"), ("start", "length", "pid", "type", "whence"))
    if sys.platform == "darwin"
    else (struct.Struct("hhqqi4x"), ("type", "whence", "start", "length", "pid"))
)


class Undecodable(bytes):
    """Bytes of a TEXT value that are not UTF-8."""


def _text(data: bytes) -> str | Undecodable:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Undecodable(data)


class Database:
    """A database in one read transaction. Use as a context manager.

    `lock_timeout`: seconds to wait for a writer that holds the file. Raises NotFoundError, NotASourceError,
    DamagedError, LockedError, StorageError.
    """

    def __init__(self, path: str, lock_timeout: float = 10.0) -> None:
        self.path = path
        self.lock_timeout = lock_timeout
        self._real = fs.realpath(path)  # SQLite names its logs after it
        self._cleanup = contextlib.ExitStack()
        self._immutable = False
        self._before = self._state()
        try:
            self._connection = self._connect()
            self._cleanup.callback(self._connection.close)
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the transaction, close the connection, remove what was copied."""
        self._cleanup.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ opening

    def _state(self) -> tuple[int, ...]:
        """What changes when the main file is written or replaced."""
        found = fs.stat(self._real)
        if found is None:
            raise NotFoundError(kind="source file", id=self.path, hint="--sqlite names a database that exists")
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def _connect(self) -> sqlite3.Connection:
        kind = fs.stat(self._real)
        if kind is None or not stat.S_ISREG(kind.st_mode):
            what = "a directory" if kind is not None and stat.S_ISDIR(kind.st_mode) else "no ordinary file"
            raise NotASourceError(path=self.path, detail=f"it is {what}")
        wal, journal = self._real + "-wal", self._real + "-journal"
        with _opened(self._real) as fd:
            head, size = fs.pread(fd, 100, 0), fs.fstat(fd).st_size
        if size == 0:
            raise NotASourceError(path=self.path, detail="the file is empty")
        if head[:16] != MAGIC:
            detail = "it does not begin with SQLite's magic (encrypted, or another kind of file)"
            raise NotASourceError(path=self.path, detail=detail)
        in_use = _locked(self._real, _PENDING_BYTE, _LOCK_BYTES) or _locked(self._real + "-shm", _SHM_ALIVE, 1)
        wal_mode = head[18:20] == b"\x02\x02"
        has_wal = wal_mode and fs.size(wal) > 0
        if not has_wal and not in_use:
            self._check_length(head, size)
        if not in_use and (has_wal or _is_hot(journal)):
            return self._open(self._copy((wal,) if has_wal else (journal,)), "mode=rw")
        self._immutable = wal_mode and not in_use
        return self._open(self._real, "mode=ro&immutable=1" if self._immutable else "mode=ro")

    def _check_length(self, head: bytes, size: int) -> None:
        """Refuse a file that ends before the pages its header counts (valid if both counters agree)."""
        page = int.from_bytes(head[16:18], "big")
        page = 65536 if page == 1 else page
        pages = int.from_bytes(head[28:32], "big")
        if head[24:28] == head[92:96] and page * pages > size:
            detail = f"it ends after {size} of {page * pages} bytes"
            raise DamagedError(path=self.path, detail=detail, hint="take a complete copy; it was left as it is")

    def _copy(self, companions: tuple[str, ...]) -> str:
        """Copy the database and its log into a private folder; the copy is consistent because nobody has it open."""
        folder = self._cleanup.enter_context(Workspace.temporary())
        target = folder.path("source.db")
        for path in (self._real, *companions):
            with _opened(path) as source:
                folder.copy_from(source, target + path[len(self._real) :])
        if self._state() != self._before:
            raise SourceChangedError(path=self.path)
        return target

    def _open(self, path: str, options: str) -> sqlite3.Connection:
        uri = f"file:{quote(os.fsencode(os.path.abspath(path)))}?{options}"
        with self.errors():
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=self.lock_timeout)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        return connection

    def _begin(self) -> None:
        with self.errors():
            for setting in ("query_only = 1", "trusted_schema = 0", "cell_size_check = 1", "mmap_size = 0"):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def confirm_unchanged(self) -> None:
        """Raise SourceChangedError where a database that is read without a lock was written to since it was opened."""
        if self._immutable and (self._state() != self._before or fs.size(self._real + "-wal")):
            raise SourceChangedError(path=self.path)

    # ------------------------------------------------------------ reading

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, read as they are asked for."""
        with self.errors():
            count = 0
            try:
                for row in self._connection.execute(statement, values):
                    count += 1
                    yield row
                return
            except sqlite3.OperationalError as error:
                if self._connection.text_factory is _text or getattr(error, "sqlite_errorcode", None) is not None:
                    raise
            # a text is not UTF-8: from here on each is looked at, which is slow; one transaction gives the same rows
            self._connection.text_factory = _text
            yield from islice(self._connection.execute(statement, values), count, None)

    def tables(self) -> list[str]:
        """Names of the tables and views, in order of their names."""
        found = self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return sorted(name for (name,) in found if isinstance(name, str) and not name.startswith("sqlite_"))

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Name and declared type of each column of an existing table."""
        return [(row[1], row[2]) for row in self.rows(f"PRAGMA table_xinfo({quoted(table)})")]

    def count(self, table: str) -> int:
        """Rows of an existing table."""
        (found,) = next(self.rows(f"SELECT count(*) FROM {quoted(table)}"))
        return int(found)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn sqlite3's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from None

    def _translated(self, error: sqlite3.Error) -> ClawmemError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            who = _owner_of(self._real)
            hint = "end that program, or raise --lock-timeout"
            return LockedError(path=self.path, owner=who, seconds=self.lock_timeout, hint=hint)
        if code == sqlite3.SQLITE_NOTADB:
            return NotASourceError(path=self.path, detail="its first page is not readable (encrypted, or overwritten)")
        if code == sqlite3.SQLITE_CORRUPT:
            hint = "`sqlite3 FILE .recover` may save the rest; the file was left as it is"
            return DamagedError(path=self.path, detail=str(error), hint=hint)
        if code == sqlite3.SQLITE_TOOBIG:
            return DamagedError(path=self.path, detail=f"a row has more than {MAX_VALUE} bytes", hint="")
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY,
                    sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_AUTH):  # fmt: skip
            return StorageError(path=self.path, detail=str(error))
        return NotASourceError(path=self.path, detail=str(error))


def quoted(name: str) -> str:
    """A name as an SQL identifier. The caller has checked that it exists: SQLite reads an unknown one as a text."""
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = fs.open_file(path)
    try:
        yield fd
    finally:
        fs.close(fd)


def _is_hot(journal: str) -> bool:
    """Whether a rollback journal that nobody has open waits to be played back."""
    if fs.size(journal) < 512:
        return False
    with _opened(journal) as fd:
        return fs.pread(fd, 8, 0) == _JOURNAL_MAGIC


def _locked(path: str, start: int, length: int) -> int:
    """Process id of another process that locks any of those bytes of a file, or 0.

    Never call it while this process has a connection on the file: closing a descriptor drops all its locks.
    """
    fd = fs.open_existing(path)
    if fd is None:
        return 0
    try:
        ask = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": start, "length": length, "pid": 0}
        found = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(*(ask[name] for name in _FLOCK_FIELDS)))
    except OSError:  # a file system without such locks: nobody can hold one
        return 0
    finally:
        fs.close(fd)
    answer = dict(zip(_FLOCK_FIELDS, _FLOCK.unpack(found), strict=True))
    return 0 if answer["type"] == fcntl.F_UNLCK else max(answer["pid"], 1)


def _owner_of(path: str) -> str:
    """Who holds a lock on a database, for a message."""
    pid = _locked(path, _PENDING_BYTE, _LOCK_BYTES)
    if not pid:
        return "another process"
    command = fs.read_all(f"/proc/{pid}/cmdline", 4096) if fs.exists(f"/proc/{pid}/cmdline") else b""
    words = (command or b"").replace(b"\0", b" ").decode(errors="replace").strip()
    return f"pid {pid}: {words[:120]}" if words else f"pid {pid}"
