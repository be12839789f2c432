"""The storage shim: errors in one place, whole reads and writes, normal answers where they are normal."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from clawmem_core.errors import StorageError
from clawmem_core.storage import fs


class Layer(fs.RealLayer):
    """The real layer, some methods of which a test replaces."""

    def __init__(self, **methods: Any) -> None:
        for name, method in methods.items():
            setattr(self, name, method)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with ten bytes."""
    (tmp_path / "file").write_bytes(b"0123456789")
    return str(tmp_path / "file")


def test_missing_file_is_a_normal_answer(tmp_path: Path) -> None:
    """None or False where a caller asks whether; StorageError with the reason where it says so."""
    missing = str(tmp_path / "no" / "file")
    assert fs.open_existing(missing) is None
    assert fs.stat(missing) is None
    assert fs.lstat(missing) is None
    assert fs.read_all(missing, 10) is None
    assert not fs.exists(missing)
    assert not fs.unlink(missing)
    assert 0 == fs.size(missing)
    with pytest.raises(StorageError, match="No such file") as caught:
        fs.open_file(missing)
    assert (missing, errno.ENOENT, 74) == (caught.value.fields["path"], caught.value.fields["errno"], caught.value.exit)
    assert isinstance(caught.value.__cause__, OSError)


def test_existing_file_is_a_normal_answer(path: str, tmp_path: Path) -> None:
    """Nothing is overwritten by making, linking or creating a directory."""
    assert fs.open_new(path) is None
    assert not fs.link(path, path)
    assert not fs.mkdir(str(tmp_path))
    assert b"0123456789" == fs.read_all(path, 100)


def test_new_files_are_private_and_do_not_follow_links(tmp_path: Path, path: str) -> None:
    """0600 and close-on-exec whatever the umask; a symlink counts as taken, a dangling one too."""
    old = os.umask(0)
    try:
        fd = fs.open_new(str(tmp_path / "new"))
    finally:
        os.umask(old)
    assert fd is not None
    assert 0o600 == fs.fstat(fd).st_mode & 0o777
    assert not os.get_inheritable(fd)
    fs.close(fd)
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    assert fs.open_new(str(tmp_path / "link")) is None
    os.symlink(path, tmp_path / "link2")
    with pytest.raises(StorageError):
        fs.open_existing(str(tmp_path / "link2"), fs.RDONLY | fs.NOFOLLOW)


def test_new_file_like_another(tmp_path: Path, path: str) -> None:
    """Mode bits are taken over exactly; an owner that may not be set is left."""
    os.chmod(path, 0o640)
    like = fs.stat(path)
    fd = fs.open_new(str(tmp_path / "new"), like)
    assert fd is not None
    assert 0o640 == fs.fstat(fd).st_mode & 0o777
    fs.close(fd)


def test_failed_dressing_leaves_no_file(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file whose mode cannot be set is removed again."""

    def refuse(fd: int, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(fs, "layer", Layer(fchmod=refuse))
    with pytest.raises(StorageError):
        fs.open_new(str(tmp_path / "new"), fs.stat(path))
    assert ["file"] == fs.listdir(str(tmp_path))


def test_short_reads_and_writes_are_completed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bytes at a time and interrupts in between give whole results; a read ends with the file."""
    calls = []

    def interrupted() -> None:
        calls.append(1)
        if len(calls) % 3 == 0:
            raise InterruptedError

    def pread(fd: int, size: int, offset: int) -> bytes:
        interrupted()
        return os.pread(fd, min(size, 3), offset)

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        interrupted()
        return os.pwrite(fd, bytes(data)[:3], offset)

    monkeypatch.setattr(fs, "layer", Layer(pread=pread, pwrite=pwrite))
    fd = fs.open_file(path, fs.RDWR)
    fs.pwrite(fd, b"abcdefghij", 5)
    assert b"01234abcdefghij" == fs.pread(fd, 100, 0)
    assert b"abcd" == fs.pread(fd, 4, 5)
    assert b"" == fs.pread(fd, 4, 50)
    fs.close(fd)


def test_write_that_makes_no_progress_ends(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that writes nothing is an error, not an endless loop."""
    monkeypatch.setattr(fs, "layer", Layer(pwrite=lambda fd, data, offset: 0))
    fd = fs.open_file(path, fs.RDWR)
    with pytest.raises(StorageError, match="wrote nothing"):
        fs.pwrite(fd, b"abc", 0)
    fs.close(fd)


@pytest.mark.parametrize("how", ["kernel", "unsupported", "zero"])
def test_copy_range(tmp_path: Path, path: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies inside the kernel or by reading, and stops where the source does."""

    def unsupported(*arguments: int) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if how != "kernel":
        answer = unsupported if how == "unsupported" else lambda *arguments: 0
        monkeypatch.setattr(fs, "layer", Layer(copy_range=answer))
    source, target = fs.open_file(path), fs.open_new(str(tmp_path / "copy"))
    assert target is not None
    assert 8 == fs.copy_range(source, target, 100, source_offset=2, target_offset=1)
    assert b"\x0023456789" == fs.read_all(str(tmp_path / "copy"), 100)
    for fd in (source, target):
        fs.close(fd)


def test_copy_range_tells_a_full_disk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the medium is told, not worked around."""

    def full(*arguments: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fs, "layer", Layer(copy_range=full))
    fd = fs.open_file(path, fs.RDWR)
    with pytest.raises(StorageError, match="No space"):
        fs.copy_range(fd, fd, 5)
    fs.close(fd)


def test_map_file(path: str) -> None:
    """A file is mapped read-only; asking for more than it has is an error."""
    fd = fs.open_file(path)
    mapped = fs.map_file(fd, 10)
    assert b"345" == mapped[3:6]
    mapped.close()
    with pytest.raises(StorageError):
        fs.map_file(fd, 11)
    fs.close(fd)


def test_locks_belong_to_the_open_file(path: str) -> None:
    """Exclusive and shared locks of two descriptors of one process meet."""
    first, second = fs.open_file(path), fs.open_file(path)
    assert fs.flock(first)
    assert not fs.flock(second)
    assert not fs.flock(second, exclusive=False)
    fs.unlock(first)
    assert fs.flock(second, exclusive=False)
    assert fs.flock(first, exclusive=False)
    for fd in (first, second):
        fs.close(fd)


def test_close_is_not_repeated(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted close has closed: a second one could hit a file opened meanwhile."""
    calls = []

    def close(fd: int) -> None:
        calls.append(fd)
        os.close(fd)
        raise InterruptedError

    monkeypatch.setattr(fs, "layer", Layer(close=close))
    fd = fs.open_file(path)
    fs.close(fd)
    assert [fd] == calls


def test_names(tmp_path: Path, path: str) -> None:
    """Rename, link, truncate, list, synced directory."""
    fs.replace(path, str(tmp_path / "b"))
    assert fs.link(str(tmp_path / "b"), str(tmp_path / "a"))
    fs.sync_directory(str(tmp_path))
    assert ["a", "b"] == fs.listdir(str(tmp_path))
    fd = fs.open_file(str(tmp_path / "a"), fs.RDWR)
    fs.truncate(fd, 4)
    fs.fsync(fd)
    fs.fdatasync(fd)
    assert 4 == fs.size(str(tmp_path / "b"))
    assert fs.same_file(fd, str(tmp_path / "b"))
    assert fs.unlink(str(tmp_path / "b"))
    assert not fs.same_file(fd, str(tmp_path / "b"))
    fs.close(fd)
    assert fs.is_directory(str(tmp_path)) and not fs.is_directory(str(tmp_path / "a"))
