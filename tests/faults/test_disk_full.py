"""No space: by a limit on the size of files, and on a small file system where the tests may mount one."""

from __future__ import annotations

import functools
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.command import Answer, command
from tests.faults.states import left_over, state_of
from tests.faults.verbs import DIM, JOBS, Bench, Job, words_for

WRITING = [job for job in JOBS if job.name not in ("doctor --repair", "doctor", "export", "search", "stats", "recall",
                                                   "agents-md")]  # fmt: skip


def limit_files(size: int) -> None:
    """No file of this process may grow beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def check_refusal(answer: Answer, path: Path) -> None:
    """Exit 74 naming a file of the store, and no temporary file."""
    answer.check()
    assert answer.code == 74, answer
    assert str(path.parent) in answer.error["message"]
    assert left_over(path.parent) == []


@pytest.mark.parametrize("job", WRITING, ids=lambda job: job.name)
def test_files_that_may_not_grow(job: Job, tmp_path: Path) -> None:
    """Each verb that writes is refused, keeps the old state, and works when there is space again."""
    bench = Bench(tmp_path)
    for size in (0, 700, 6000):
        path = bench.place(job)
        words = words_for(job, path)
        old = state_of(path)
        answer = command(*words, stdin=job.stdin, before=functools.partial(limit_files, size))
        if answer.code == 0 and size:
            continue  # what it had to write fits
        check_refusal(answer, path)
        if job.name not in ("compact", "purge"):
            assert old == state_of(path)
        again = ["--path", str(path), "flush-wal"] if state_of(path) != old else words_for(job, path)
        assert command(*again, stdin=job.stdin).code == 0
        bench.remove(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting takes a superuser")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_file_system(small_disk: Path) -> None:
    """Saves until the disk is full: all acknowledged ones are there, and the store works on once there is space."""
    path = small_disk / "m.h5"
    assert command("--path", path, "create", "--dim", str(DIM)).code == 0
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    saved = 0
    text = b'{"chunk":"%s","timestamp":1}' % (b"x" * 9000)
    while (answer := command("--path", path, "save", stdin=text)).code == 0:
        saved += 1
        assert saved < 100
    check_refusal(answer, path)
    assert path.name in answer.error["message"]
    for words in (("flush-wal",), ("snapshot", str(small_disk / "copy.h5")), ("compact",)):
        check_refusal(command("--path", path, *words), path)
        state = state_of(path)
        assert state is not None
        assert saved == len(state.records)
    ballast.unlink()
    assert command("--path", path, "save", stdin=b'{"chunk":"more"}').code == 0
    state = state_of(path)
    assert state is not None
    assert saved + 1 == len(state.records)
