"""A store that tests write to, log frame by log frame, without the writer above."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from clawmem_core.model import Record, StoreConfig
from clawmem_core.storage import ops, schema
from clawmem_core.storage.checkpoint import checkpoint, create_store, identity_of_file
from clawmem_core.storage.columns import Columns
from clawmem_core.storage.lock import StoreLock
from clawmem_core.storage.log import LogWriter
from clawmem_core.storage.paths import StorePaths

AUDIT = bytes(72)


def no_files(_: StorePaths, __: Columns) -> list[str]:
    """Derived files are tested elsewhere."""
    return []


def record(id: int, text: str = "", **fields: Any) -> Record:
    """A record with a vector of its own."""
    made = Record(id, text or f"text {id}", float(id), "chat", f"s{id // 3}", "tag")
    made.vector = np.array([id % 100 + 1, 2, 3], "<f2").tobytes()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class OpenStore:
    """A store that is written to."""

    def __init__(self, path: Path, create: bool = True) -> None:
        self.paths = StorePaths(str(path))
        if create:
            create_store(self.paths, StoreConfig(dim=3, created_at="now"), derive=no_files)
        self.lock = StoreLock.acquire(self.paths)
        self.log = LogWriter.open(self.paths, self.lock, lambda fd: identity_of_file(fd, self.paths.real))

    def put(self, payload: bytes, entries: int = 1, **state: int) -> None:
        """Log one frame; `state`: counters that change."""
        after = self.log.state.copy()
        after.seq += entries
        for name, value in state.items():
            setattr(after, name, value)
        self.log.append(payload, (), after)
        self.log.commit(sync=False)

    def save(self, *records: Record) -> None:
        """Log records."""
        for one in records:
            self.put(ops.record(one), next_record_id=max(self.log.state.next_record_id, one.id + 1))

    def checkpoint(self, **options: Any) -> Any:
        """Checkpoint without derived files."""
        return checkpoint(self.paths, self.lock, self.log, derive=no_files, **options)

    def load(self) -> Columns:
        """What the file holds."""
        return schema.open_columns(self.paths)

    def close(self) -> None:
        """Let everything go."""
        self.log.close()
        self.lock.release()

    def reopen(self) -> OpenStore:
        """As a new process would."""
        self.close()
        return OpenStore(Path(self.paths.real), create=False)


def texts(session: OpenStore) -> list[str]:
    """The texts in the file."""
    with session.load() as found:
        return list(found.chunks)


class Seal:
    """A signer that writes a mark."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self.seen: list[Any] = []

    def before(self, file: h5py.File, path: str, *, signed: bool = False) -> None:
        """Remember what was asked."""
        self.seen.append(signed)

    def seal(self, file: h5py.File, path: str, changed: Any = None) -> None:
        """Write the mark."""
        file["integrity/mark"] = len(file["memory/ids"])
        self.seen.append(None if changed is None else sorted(changed))
