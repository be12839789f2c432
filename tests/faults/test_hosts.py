"""The main job in surroundings that break programs: locales, time zones, umasks, other users, odd paths."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import MemoryEntry, MemoryStore
from tests.cli.conftest import environment
from tests.faults.command import command

ROOT = Path(__file__).resolve().parents[2]
START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from clawmem_cli.entry import main; sys.exit(main())"
TEXT = "naïve 日本 🦀\nsecond line"
NOBODY = 65534


def clawmem(
    path: bytes | str | Path, *words: str, stdin: bytes = b"", python: tuple[str, ...] = (), code: int = 0,
    env: dict[str, str] | None = None, **how: Any,
) -> bytes:  # fmt: skip
    """Run the command as a process; its stdout, after checking exit code and stderr."""
    done = subprocess.run(
        [sys.executable, *python, "-c", START, "--path", os.fsencode(path), *words],
        input=stdin, capture_output=True, env=environment(**(env or {})), timeout=60, **how,
    )  # fmt: skip
    assert (code, b"" if not code else done.stderr) == (done.returncode, done.stderr), (words, done)
    assert b"Traceback" not in done.stderr
    return bytes(done.stdout)


def short_job(path: bytes | str | Path, **how: Any) -> list[Any]:
    """Make a store, save, checkpoint: everything is as everywhere. What it exports."""
    record = {"chunk": TEXT, "embedding": [1, 2, 3], "timestamp": "2024-03-10T07:30:00Z", "tags": "日本"}
    clawmem(path, "create", "--dim", "3", **how)
    clawmem(path, "save", stdin=json.dumps(record, ensure_ascii=False).encode(), **how)
    clawmem(path, "flush-wal", **how)
    rows = [json.loads(line) for line in clawmem(path, "export", **how).splitlines()]
    assert [(TEXT, 1710055800.0, "日本")] == [(row["chunk"], row["timestamp"], row["tags"]) for row in rows]
    return rows


def main_job(path: bytes | str | Path, **how: Any) -> None:
    """The same, then a stream, a search by time and text, a copy, and a look at all files."""
    rows = short_job(path, **how)
    lines = b'{"chunk":"two","timestamp":"2024-11-03T01:30:00-04:00"}\n{"chunk":"three"}\n'
    clawmem(path, "save", "--ndjson", "--quiet", stdin=lines, **how)
    since = ("--since", "2024-11-03T05:30:00Z", "--until", "2024-11-03T05:30:01Z")
    assert [1] == [hit["index"] for hit in json.loads(clawmem(path, "search", "--query", "two", *since, **how))]
    copy = os.fsdecode(path) + ".copy"
    clawmem(path, "snapshot", copy, **how)
    copied = [json.loads(line) for line in clawmem(copy, "export", **how).splitlines()]
    assert (rows, 3) == (copied[:1], len(copied))
    assert [] == json.loads(clawmem(path, "doctor", **how))["findings"]


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "TZ": "Asia/Kathmandu"},
        {"TZ": "America/New_York"},
        {"TZ": "nonsense/zone", "LANG": "xx_YY.KOI8-R"},
    ],
    ids=["C locale", "Kathmandu", "New York", "nonsense"],
)
def test_locales_and_zones(tmp_path: Path, env: dict[str, str]) -> None:
    """Times across both changes of daylight saving, and text beyond ASCII, whatever the host believes in."""
    main_job(tmp_path / "m.h5", env=env)


def test_warnings_are_errors(tmp_path: Path) -> None:
    """Nothing that we or our libraries do is deprecated or left open."""
    main_job(tmp_path / "m.h5", python=("-W", "error", "-X", "dev"))


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_umasks(tmp_path: Path, umask: int) -> None:
    """Every file is the owner's alone, whatever the umask would allow."""
    short_job(tmp_path / "m.h5", umask=umask)
    assert {0o600} == {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "name",
    [b"with space.h5", b"new\nline.h5", b"not-utf8-\xff\xfe.h5", "日本.h5".encode(), b"'quote\".h5", b"-dash.h5", b"m"],
    ids=["space", "newline", "bytes", "unicode", "quotes", "dash", "no-suffix"],
)
def test_names(tmp_path: Path, name: bytes) -> None:
    """A store may have any name that the file system takes."""
    short_job(os.fsencode(tmp_path) + b"/" + name)


def test_relative_and_symlinked_paths(tmp_path: Path) -> None:
    """A relative path; a symlinked folder; a symlinked file, which stays one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    short_job("relative.h5", cwd=tmp_path / "link")
    assert (tmp_path / "real/relative.h5.wal").exists()
    (tmp_path / "name.h5").symlink_to("real/relative.h5")
    clawmem(tmp_path / "name.h5", "save", stdin=b'{"chunk":"through the link"}')
    clawmem(tmp_path / "name.h5", "flush-wal")
    assert (tmp_path / "name.h5").is_symlink()
    assert not (tmp_path / "name.h5.wal").exists()
    assert json.loads(clawmem(tmp_path / "real/relative.h5", "stats"))["count"] == 2


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users reach, which pytest's are not."""
    place = Path("/tmp" if os.path.isdir("/tmp") else "/var/tmp") / f"clawmem-{os.getpid()}"
    place.mkdir(mode=0o755)
    yield place
    for one in place.rglob("*"):
        one.chmod(0o700)
    shutil.rmtree(place)


def become_ordinary() -> None:
    """Nobody's rights instead of a superuser's."""
    if not os.getuid():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def test_read_only_folder_as_an_ordinary_user(shared: Path) -> None:
    """Reading works and writes nothing; writing is refused with exit 74 and leaves nothing behind."""
    path = shared / "m.h5"
    with MemoryStore.create(path, dim=3) as store:
        store.save(MemoryEntry("checkpointed", None, timestamp=1.0))
        store.flush_wal()
        store.save(MemoryEntry("pending", None, timestamp=1.0))
    for file in shared.iterdir():
        file.chmod(0o444)
    shared.chmod(0o555)
    before = {file.name: file.stat().st_mtime_ns for file in shared.iterdir()}
    for words in (("stats",), ("export",), ("search", "--query", "pending"), ("recall", "1"), ("agents-md",)):
        answer = command("--path", path, *words, before=become_ordinary)
        assert answer.code == 0, answer
        assert answer.out
    for words in (("save", "--json", '{"chunk":"x"}'), ("flush-wal",), ("compact",), ("index",), ("tick",)):
        answer = command("--path", path, *words, before=become_ordinary)
        answer.check()
        assert answer.code == 74, answer
    assert before == {file.name: file.stat().st_mtime_ns for file in shared.iterdir()}


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no tmpfs here")
def test_memory_file_system() -> None:
    """A store on tmpfs."""
    place = Path(f"/dev/shm/clawmem-{os.getpid()}")
    place.mkdir()
    try:
        short_job(place / "m.h5")
    finally:
        shutil.rmtree(place)
