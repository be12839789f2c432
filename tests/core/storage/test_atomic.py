"""Replacing files whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clawmem_core.errors import StorageError
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile, remove_stale_temps, stale_temps
from clawmem_core.storage.paths import StorePaths, temp_name
from tests.faults.simulated import DIRECTORY, simulated


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file to replace."""
    path = tmp_path / "m.h5"
    path.write_bytes(b"old")
    return path


def test_commit_replaces(target: Path) -> None:
    """The new content is there under the name, with the mode asked for, and nothing else is."""
    target.chmod(0o640)
    with AtomicFile(str(target), fs.stat(str(target))) as file:
        file.write(b"ne")
        file.write(b"w")
        assert b"old" == target.read_bytes()
        file.commit()
    assert b"new" == target.read_bytes()
    assert 0o640 == target.stat().st_mode & 0o777
    assert ["m.h5"] == os.listdir(target.parent)


def test_leaving_without_a_commit_changes_nothing(target: Path) -> None:
    """No temporary file is left, with and without an error."""
    with AtomicFile(str(target)) as file:
        file.write(b"new")
    with pytest.raises(ZeroDivisionError), AtomicFile(str(target)) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert (b"old", ["m.h5"]) == (target.read_bytes(), os.listdir(target.parent))


def test_commit_new_never_clobbers(target: Path) -> None:
    """A taken name is kept; a free one is given."""
    with AtomicFile(str(target)) as file:
        file.write(b"new")
        assert not file.commit_new()
    assert (b"old", ["m.h5"]) == (target.read_bytes(), os.listdir(target.parent))
    target.unlink()
    with AtomicFile(str(target)) as file:
        file.write(b"new")
        assert file.commit_new()
    assert (b"new", ["m.h5"]) == (target.read_bytes(), os.listdir(target.parent))
    assert 1 == target.stat().st_nlink


def test_order_of_the_steps() -> None:
    """Data is synced before the name changes, and the directory after it."""
    with simulated() as layer:
        calls: list[str] = []
        layer.before = lambda operation, path: calls.append(f"{operation} {os.path.basename(path)[:4]}")
        with AtomicFile(f"{DIRECTORY}/m.h5") as file:
            file.write(b"new")
            del calls[:]
            file.commit()
        assert ["fsync m.h5", "replace m.h5", "open simu", "fsync simu", "close simu", "close m.h5"] == calls


@pytest.mark.parametrize("operation", ["pwrite", "fsync", "replace"])
def test_failure_keeps_the_old_file(operation: str) -> None:
    """Any failing step leaves the old content and no temporary file."""
    with simulated() as layer:
        with AtomicFile(f"{DIRECTORY}/m.h5") as file:
            file.write(b"old")
            file.commit()

        def fail(called: str, path: str) -> None:
            if called == operation:
                raise OSError(5, "Input/output error")

        layer.before = fail
        with pytest.raises(StorageError), AtomicFile(f"{DIRECTORY}/m.h5") as file:
            file.write(b"new")
            file.commit()
        assert {f"{DIRECTORY}/m.h5": b"old"} == {name: bytes(inode.data) for name, inode in layer.names.items()}


def test_no_locks_no_file(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has no flock, the error leaves no temporary file."""

    class NoLocks(fs.RealLayer):
        @staticmethod
        def flock(fd: int, how: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fs, "layer", NoLocks())
    with pytest.raises(StorageError, match="locks"):
        AtomicFile(str(target))
    assert ["m.h5"] == os.listdir(target.parent)


def test_temporary_file_taken_for_stale(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a cleaner removed before it was flocked is made again under another name."""
    real, removed = fs.flock, []

    def flock(fd: int, exclusive: bool = True, blocking: bool = False) -> bool:
        if not removed:
            removed.append(os.unlink(fs.path_of(fd)))
        return real(fd, exclusive, blocking)

    monkeypatch.setattr(fs, "flock", flock)
    with AtomicFile(str(target)) as file:
        file.write(b"new")
        file.commit()
    assert b"new" == target.read_bytes()


def test_stale_temporary_files(target: Path) -> None:
    """Temporary files of dead makers go, those in use and those of other stores stay."""
    paths = StorePaths(target)
    stale = [temp_name(paths.real), temp_name(paths.log), temp_name(paths.index)]
    others = [temp_name(paths.real + "x"), str(target.parent / "other.h5.tmp-1-a")]
    for name in (*stale, *others):
        Path(name).touch()
    with AtomicFile(paths.real) as used:
        assert sorted(stale) == stale_temps(paths)
        assert sorted(stale) == remove_stale_temps(paths)
        assert os.path.exists(used.temp)
    assert [] == remove_stale_temps(paths)
    assert all(os.path.exists(name) for name in others)
