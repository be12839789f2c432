"""What is counted, not timed: bytes of a record, memory of a search, bytes that a save reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import timing
from bench.corpus import DIM
from bench.processes import record_line, search
from bench.stores import Stores, clawmem, size_name
from bench.timing import Measured
from clawmem_core.model import MemoryEntry, StoreConfig
from clawmem_core.store import MemoryStore

FIXED = 8 + 8 + 1 + 4 + 4  # id, timestamp, tombstone, norm, activation
AUDIT_LINE = 72
MANY = 1_000_000
#: runs a command and prints the peak of its resident memory in KiB; itself small, since a child inherits the peak
PEAK = "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]); _, status, used = os.wait4(pid, 0); print(status, used.ru_maxrss)"  # noqa: E501
#: saves a record from stdin and prints how many bytes were read from files on the way
READ = """
import os, sys
from clawmem_core.storage import fs

class Counting(fs.RealLayer):
    read = 0

    @staticmethod
    def pread(*arguments):
        data = os.pread(*arguments)
        Counting.read += len(data)
        return data

    @staticmethod
    def mmap(fd, size):
        Counting.read += size
        return fs.RealLayer.mmap(fd, size)

fs.layer = Counting
from clawmem_cli import entry
code = entry.run(sys.argv[1:])
print(Counting.read, file=sys.stderr)
sys.exit(code)
"""


def measure(stores: Stores, rounds: int) -> dict[str, Measured]:
    """Counts; `rounds` has no meaning here."""
    found: dict[str, Measured] = {}
    for count in stores.counts:
        for what, value in bytes_of(stores, count).items():
            found[f"{what} {size_name(count)}"] = timing.single(value, "B")
        question = stores.corpus(count).question()
        peak = timing.process([sys.executable, "-c", PEAK, *search(stores.store(count), question)])
        status, kib = map(int, peak.out.split())
        if status:
            raise timing.WrongAnswer(f"search ended with status {status}")
        found[f"peak memory of search {size_name(count)}"] = timing.single(kib / 1024, "MiB")
        found[f"raw vectors {size_name(count)}"] = timing.single(count * DIM * 4 / 2**20, "MiB")
    found["read by a save, 10 records"] = timing.single(read_by_a_save(_small(stores, 10)), "B")
    most = MANY if max(stores.counts) >= 100_000 else max(stores.counts)
    found["read by a save, most records"] = timing.single(read_by_a_save(_small(stores, most)), "B")
    found["most records"] = timing.single(most, "")
    found["audit line"] = timing.single(AUDIT_LINE, "B")
    return found


def bytes_of(stores: Stores, count: int) -> dict[str, float]:
    """Bytes of a record: payload, store, derived files."""
    corpus, path = stores.corpus(count), stores.store(count)
    text = sum(len(text.encode()) + len(corpus.session(row)) + len("cli") for row, text in enumerate(corpus.texts))
    derived = sum(path.with_name(path.name + suffix).stat().st_size for suffix in (".idx", ".keys")
                  if path.with_name(path.name + suffix).exists())  # fmt: skip
    return {
        "payload": 2 * DIM + FIXED + text / count,
        "store": path.stat().st_size / count,
        "derived": derived / count,
    }


def _small(stores: Stores, count: int) -> Path:
    """A store of many small records with upsert keys."""
    path = stores.folder / f"small-{count}.h5"
    with MemoryStore.bulk_create(path, StoreConfig(dim=8)) as bulk:
        vector = [0.1] * 8
        for number in range(count):
            bulk.add(MemoryEntry("text", vector, "cli", 1.7e9, key=f"key-{number}"))
        bulk.finish()
    return path


def read_by_a_save(path: Path) -> int:
    """Bytes read from the store's files by one save of a record with a new upsert key."""
    record: dict[str, Any] = json.loads(record_line(0))
    record["embedding"] = record["embedding"][:8]
    words = clawmem(path, "save", "--key", "another")[1:]
    done = subprocess.run(
        [sys.executable, "-c", READ, *words], input=json.dumps(record), capture_output=True, text=True, check=True,
        env=timing.clean_environment() | {"PATH": os.defpath},
    )  # fmt: skip
    return int(done.stderr.split()[-1])
