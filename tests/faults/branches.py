"""Many faults out of one run of a verb: before a call the process forks, and the child meets the fault there.

The run itself goes on as if nothing had been: its folder is put back after each child, to the inode, so that its open
descriptors stay good. What a child left is copied first. So a fault costs what comes after it, not what comes before.
"""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from clawmem_core.storage import lock
from tests.faults.command import Answer
from tests.faults.faulty import Fault, FaultyLayer
from tests.faults.parallel import forked


class Branch(NamedTuple):
    """What a fault led to: the command's answer, whether the fault happened, and a copy of the folder it left."""

    fault: Fault
    answer: Answer
    hits: int
    folder: Path


class Kept:
    """The files of a folder as they are now: their inodes by a second link, contents, modes and times."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.aside = folder, folder.parent / f"{folder.name}-kept"
        self.aside.mkdir()
        self.files = {}
        for file in folder.iterdir():
            os.link(file, self.aside / file.name)
            self.files[file.name] = file.stat(), file.read_bytes()

    def restore(self) -> None:
        """Put everything back, and let the second links go."""
        for file in self.folder.iterdir():
            file.unlink()
        for name, (stat, content) in self.files.items():
            kept = self.aside / name
            if kept.read_bytes() != content:
                kept.write_bytes(content)  # into the same inode
            kept.chmod(stat.st_mode)
            os.utime(kept, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            kept.rename(self.folder / name)
        self.aside.rmdir()


class BranchingLayer(FaultyLayer):
    """A layer without a fault that forks for each of some faults, one after the other, and writes what came of it
    to the descriptor `out`. Its process must call `keep_output` first.
    """

    def __init__(self, faults: Iterable[Fault], folder: Path, out: int) -> None:
        super().__init__(None)
        self.folder, self.out = folder, out
        self.plan: dict[int, list[Fault]] = {}
        for fault in faults:
            self.plan.setdefault(fault.at, []).append(fault)

    def keep_output(self) -> None:
        """Have standard output and error in files from now on, so that each child can go on with what was said."""
        for fd in (1, 2):
            os.dup2(os.memfd_create("said"), fd)

    def _before(self) -> None:
        for fault in self.plan.pop(self.count, ()):
            if self._branch(fault):
                return

    def _branch(self, fault: Fault) -> bool:
        """Fork; True in the child. The parent waits for its end."""
        kept, read = Kept(self.folder), os.lseek(0, 0, os.SEEK_CUR)
        said = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in (1, 2)]
        files = [os.memfd_create("said") for _ in said]
        self._shared[:8] = bytes(8)
        process, held = os.getpid(), dict(lock._held)
        lock._held.clear()  # a lock is let go in a fork, and handles are refused; but this child stands for its parent
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        lock._held.update(held)
        if not child:
            os.getpid = lambda: process
            for fd, file, text in zip((1, 2), files, said, strict=True):
                os.write(file, text)
                os.dup2(file, fd)
            self.fault, self.plan = fault, {}
            return True
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = Answer(code, *(os.pread(file, os.fstat(file).st_size, 0) for file in files))
        for file in files:
            os.close(file)
        left = self.folder.parent / f"{self.folder.name}-{fault.at}-{fault.kind}-{fault.lasting}"
        shutil.copytree(self.folder, left)
        kept.restore()
        os.lseek(0, read, os.SEEK_SET)
        os.write(self.out, pickle.dumps(Branch(fault, answer, self.hits, left)))
        return False


def branches(run: Callable[[BranchingLayer], object], faults: Iterable[Fault], folder: Path) -> Iterator[Branch]:
    """What each fault leads to, in a run of a verb on the store in `folder`; `run` runs it on a layer, to its end."""
    child, reading = forked(lambda out: run(BranchingLayer(faults, folder, out)))
    with os.fdopen(reading, "rb") as pipe:
        while pipe.peek(1):
            yield pickle.load(pipe)
    os.waitpid(child, 0)
