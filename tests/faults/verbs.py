"""Every verb on a store that has something of everything, for whoever wants to disturb one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from clawmem_core import MemoryEntry, MemoryStore

DIM = 4
TEXT = "The operator prefers short answers"


class Job(NamedTuple):
    """One command on a copy of the store: what is run, and what a success of it may do to the copy's folder.

    `words` stand behind `--path`; DEST in them is the path of a second store. `new`: the store does not exist before.
    `writes`: it changes the store; `made`: it makes a second store.
    """

    name: str
    words: tuple[str, ...]
    stdin: bytes = b""
    new: bool = False
    writes: bool = True
    made: bool = False


def line(text: str, **more: object) -> bytes:
    """One record as JSON."""
    return json.dumps({"chunk": text, "embedding": [1, 2, 3, 4], "timestamp": 1_700_000_000, **more}).encode() + b"\n"


JOBS = (
    Job("create", ("create", "--dim", str(DIM)), new=True),
    Job("save", ("save",), line("one more", tags="new")),
    Job("save --key", ("save", "--key", "k1"), line("another text for k1")),
    Job("save --ndjson", ("save", "--ndjson"), b"".join(line(f"line {number}") for number in range(5))),
    Job("save --no-sync", ("save", "--no-sync"), line("in a hurry")),
    Job("flush-wal", ("flush-wal",)),
    Job("snapshot", ("snapshot", "DEST"), writes=False, made=True),
    Job("snapshot --force", ("snapshot", "DEST", "--force"), writes=False, made=True),
    Job("delete", ("delete", "0", "4")),
    Job("compact", ("compact",)),
    Job("tick", ("tick",)),
    Job("index", ("index",), writes=False),
    Job("doctor --repair", ("doctor", "--repair")),
    Job("export", ("export", "--include-deleted"), writes=False),
    Job("search", ("search", "--query", "operator", "--embedding", "[1,2,3,4]"), writes=False),
    Job("stats", ("stats",), writes=False),
    Job("recall", ("recall", "0"), writes=False),
    Job("agents-md", ("agents-md",), writes=False),
    Job("doctor", ("doctor",), writes=False),
)


def template(folder: Path) -> Path:
    """A store with checkpointed and pending records, deleted ones of both, keys, sessions, a graph, activations."""
    path = folder / "m.h5"
    with MemoryStore.create(path, dim=DIM) as store:
        store.save_batch(
            [
                MemoryEntry(TEXT, [1, 2, 3, 4], timestamp=1.0, session_id="s1", key="k1"),
                MemoryEntry("Deployment runs on Fridays", [4, 3, 2, 1], timestamp=2.0, session_id="s1", tags="a,b"),
                MemoryEntry("Nothing of note", None, timestamp=3.0, source_channel="chat"),
                MemoryEntry("Soon gone", [1, 1, 1, 1], timestamp=4.0),
            ]
        )
        store.add_session("s1", 0, 1, "chat", "about the operator", 5.0)
        first, second = store.add_entity("Operator", "person", 0), store.add_entity("Friday", "day")
        store.add_relation(first, second, "deploys-on", 0.5, 6.0)
        store.add_alias("Boss", first)
        store.delete(3)
        store.flush_wal()
        store.save(MemoryEntry("Pending one", [0, 1, 0, 1], timestamp=7.0, key="k2"))
        store.save(MemoryEntry("Pending two", [1, 0, 1, 0], timestamp=8.0, session_id="s2"))
        store.delete(5)
        store.boost([1, 4], 0.5)
    return path


class Bench:
    """Fresh copies of the template, and of what a snapshot would replace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "template").mkdir()
        self.template = template(folder / "template")
        self.number = 0

    def place(self, job: Job) -> Path:
        """The path of the store for one run of a job."""
        self.number += 1
        target = self.folder / f"{os.getpid()}-{self.number}"
        if job.new:
            target.mkdir()
        else:
            shutil.copytree(self.template.parent, target)
        if "--force" in job.words:
            with MemoryStore.create(target / "copy.h5", dim=2) as store:
                store.save(MemoryEntry("was there before", [1, 2], timestamp=1.0))
        return target / "m.h5"

    def remove(self, path: Path) -> None:
        """Give the place of a run up."""
        shutil.rmtree(path.parent)


def words_for(job: Job, path: Path) -> list[str]:
    """The command line of a job on the store at `path`."""
    copy = str(path.parent / "copy.h5")
    return ["--path", str(path), *(copy if word == "DEST" else word for word in job.words)]
