"""The writer's lock: one holder, freed by death, safe against fork, told by name."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawmem_core import clock
from clawmem_core.errors import ClosedError, ForkedError, LockedError, StorageError
from clawmem_core.storage import fs
from clawmem_core.storage.lock import StoreLock, owner
from clawmem_core.storage.paths import StorePaths

HOLDER = """
import sys
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.paths import StorePaths
lock = StoreLock.acquire(StorePaths(sys.argv[1]), 10, "the holder")
{then}
print("held", flush=True)
sys.stdin.read()
"""


def _holder(paths: StorePaths, then: str = "") -> subprocess.Popen[str]:
    """Another process that holds the lock until its stdin ends."""
    command = [sys.executable, "-c", HOLDER.format(then=then), paths.real]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, env=environment)
    assert process.stdout is not None
    assert "held" == process.stdout.readline().strip()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    """Names of a store in an empty folder."""
    return StorePaths(tmp_path / "m.h5")


def test_second_writer_is_told_who_holds_it(paths: StorePaths) -> None:
    """Exit 11 with pid, start time and command of the owner, after the time-out."""
    process = _holder(paths)
    try:
        start = clock.monotonic()
        with pytest.raises(
            LockedError, match=rf"pid {process.pid} since \d{{4}}-.*Z: the holder; waited 0.2 s"
        ) as caught:
            StoreLock.acquire(paths, 0.2)
        assert 11 == caught.value.exit
        assert 0.2 <= clock.monotonic() - start < 5
        assert f"pid {process.pid}" in str(owner(paths))
    finally:
        _end(process)


def test_waiting_writer_gets_it(paths: StorePaths) -> None:
    """A lock that is let go within the time-out is taken."""
    process = _holder(paths)
    assert process.stdin is not None
    process.stdin.close()
    with StoreLock.acquire(paths, 30) as lock:
        lock.check()
    assert process.stdout is not None
    process.stdout.close()
    process.wait()


def test_killed_owner_frees_it(paths: StorePaths) -> None:
    """After kill -9 the lock is free at once, and its file still there."""
    process = _holder(paths)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert owner(paths) is None
    StoreLock.acquire(paths).release()
    assert os.path.exists(paths.lock)


def test_two_locks_in_one_process(paths: StorePaths) -> None:
    """A second handle of the same process is refused like any other."""
    with StoreLock.acquire(paths), pytest.raises(LockedError):
        StoreLock.acquire(paths)
    StoreLock.acquire(paths).release()


def test_fork(paths: StorePaths) -> None:
    """A child may not use the handle, cannot free the lock, and does not keep it when the parent lets go."""
    lock = StoreLock.acquire(paths)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(done[1])  # or a failing parent would leave it waiting for ever
        code = 1
        try:
            lock.check()
        except ForkedError:
            code = 0
        lock.release()
        os.write(ready[1], bytes([code]))
        os.read(done[0], 1)
        os._exit(0)
    assert b"\0" == os.read(ready[0], 1)
    with pytest.raises(LockedError):
        StoreLock.acquire(paths)
    lock.release()
    StoreLock.acquire(paths).release()
    os.write(done[1], b"x")
    os.waitpid(child, 0)
    for fd in (*ready, *done):
        os.close(fd)


def test_child_of_a_killed_owner_does_not_keep_it(paths: StorePaths) -> None:
    """A child that outlives its killed parent holds nothing."""
    process = _holder(paths, "import os\nif not os.fork():\n    os.read(0, 1)\n    os._exit(0)")
    try:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        StoreLock.acquire(paths, 5).release()
    finally:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def test_removed_lock_file_protects_nothing(paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file that lost its name between open and flock is taken again, on the new file."""
    real = fs.flock
    removed = []

    def flock(fd: int, exclusive: bool = True, blocking: bool = False) -> bool:
        if not removed:
            removed.append(os.unlink(paths.lock))
        return real(fd, exclusive, blocking)

    monkeypatch.setattr(fs, "flock", flock)
    with StoreLock.acquire(paths) as lock:
        assert fs.same_file(lock.fd, paths.lock)


def test_read_only_folder(paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no lock file can be made: exit 74, and nothing is left."""

    class ReadOnly(fs.RealLayer):
        @staticmethod
        def open(path: str, flags: int, mode: int = 0o777) -> int:
            if flags & os.O_CREAT:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return os.open(path, flags, mode)

    monkeypatch.setattr(fs, "layer", ReadOnly())
    with pytest.raises(StorageError, match="Permission denied") as caught:
        StoreLock.acquire(paths)
    assert 74 == caught.value.exit
    assert [] == os.listdir(paths.directory)


def test_released_lock_is_closed(paths: StorePaths) -> None:
    """check raises after release, and release may be called again."""
    lock = StoreLock.acquire(paths)
    lock.release()
    lock.release()
    with pytest.raises(ClosedError):
        lock.check()


def test_owner_line_is_one_safe_line(paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the command only program and verb are kept, never what is saved; what the file holds prints as one line."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/clawmem", "--path", "m.h5", "save", "--json", '{"chunk":"secret"}'])
    with StoreLock.acquire(paths):
        text = Path(paths.lock).read_text()
        assert 256 == len(text)
        assert text.rstrip().endswith(": clawmem save")
    for arguments in (["--query", "secret", "save"], ["--key=secret"], ["Secret!"]):
        monkeypatch.setattr(sys, "argv", ["clawmem", *arguments])
        with StoreLock.acquire(paths):
            assert "secret" not in Path(paths.lock).read_text().lower()
    with StoreLock.acquire(paths):
        Path(paths.lock).write_bytes(b"\x1b[31m\n\xff" + b"x" * 5000)
        shown = owner(paths)
        assert shown is not None
        assert shown.isprintable()
        assert len(shown) < 300


def test_nobody_owns_a_store_without_a_lock_file(paths: StorePaths) -> None:
    """Asking creates nothing."""
    assert owner(paths) is None
    assert [] == os.listdir(paths.directory)
