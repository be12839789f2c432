"""Many processes on one store: writers of groups, readers that count, and deaths."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from clawmem_core import MemoryEntry, MemoryStore, door
from clawmem_core.errors import LockedError
from clawmem_core.view import open_view
from clawmem_core.writer import Writer

DIM = 3
GROUP = 3  # records of a group; all carry its name as their tag
PATIENCE = 60.0  # seconds to wait for a lock


def spawn(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a forked process; what it raises is appended to `log`. Returns the process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    status = 0
    try:
        work()
    except BaseException:
        status = 1
        with log.open("a", encoding="utf-8") as file:
            file.write(traceback.format_exc())
    finally:
        os._exit(status)


def groups_of(path: Path) -> Counter[str]:
    """How many records each group has, as a fresh reader sees it."""
    with open_view(path) as view:
        found = Counter(record.tags for record in view.records())
        assert view.state.active == sum(found.values())
    return found


class Journal:
    """What one writer was told is stored: a file of group names, appended to after each acknowledgement."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def acknowledge(self, group: str) -> None:
        os.write(self.fd, f"{group}\n".encode())


def acknowledged(folder: Path) -> list[str]:
    """Every group of every journal."""
    return [line for file in sorted(folder.glob("*.journal")) for line in file.read_text("utf-8").split()]


def entries(group: str) -> list[MemoryEntry]:
    """The records of a group."""
    return [MemoryEntry(f"{group} {n}", [1.0, 2.0, n + 1.0], timestamp=1.0, tags=group) for n in range(GROUP)]


def write(path: Path, journal: Path, name: str, until: Callable[[int], bool], seed: int, checkpoints: bool) -> None:
    """Save groups, in turn by a long-lived handle and by one-shot writers; now and then a checkpoint."""
    rng, told, number = random.Random(seed), Journal(journal), 0
    while not until(number):
        if rng.random() < 0.5:
            with MemoryStore.open(path, lock_timeout=PATIENCE) as store:
                for _ in range(rng.randrange(1, 4)):
                    group = f"{name}-{number}"
                    store.save_batch(entries(group))
                    told.acknowledge(group)
                    number += 1
                if checkpoints and rng.random() < 0.3:
                    store.flush_wal()
        else:
            with Writer.open(path, PATIENCE) as writer:
                group = f"{name}-{number}"
                writer.save_together([door.entry_record(entry, DIM, writer.float16) for entry in entries(group)])
                writer.commit()
            told.acknowledge(group)
            number += 1


def read(path: Path, until: Callable[[int], bool]) -> None:
    """Look at the store again and again: counts never go down, groups are whole, nothing is there twice."""
    before: Counter[str] = Counter()
    number = 0
    while not until(number):
        found = groups_of(path)
        assert set(found.values()) <= {GROUP}, f"part of a group, or a group twice: {found - before}"
        assert not before - found, f"gone: {before - found}"
        before = found
        number += 1


def wait(children: Iterable[int], killed: Iterable[int] = ()) -> list[int]:
    """Wait for processes; those that failed. A killed one may not have ended by itself."""
    dead = set(killed)
    failed = []
    for child in children:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status and not (child in dead and status == -signal.SIGKILL):
            failed.append(child)
    return failed


def hold_and_die(path: Path) -> float:
    """A process that holds the lock is killed; seconds until another one has it."""
    ready, tell = os.pipe()

    def work() -> None:
        with Writer.open(path, PATIENCE):
            os.write(tell, b"x")
            signal.pause()

    child = spawn(work, path.parent / "errors")
    assert os.read(ready, 1) == b"x"
    try:
        Writer.open(path).close()
        raise AssertionError("the lock was not held")
    except LockedError:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    os.close(tell)
    start = time.monotonic()
    Writer.open(path).close()  # no waiting: it is free at once
    return time.monotonic() - start
