"""Every verb on a store that has something of everything, for whoever wants to disturb one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from clawmem_core import MemoryEntry, MemoryStore
from clawmem_core.contract.purging import Selection, dry_run
from tests.core.contract.events import SCOPE, episode, fact, save

DIM = 4
PENDING = 6  # id of the first record that is in the log only
OLD_FACT = fact("likes tea")
FACT = str(OLD_FACT["factId"])
TEXT = "The operator prefers short answers"


class Job(NamedTuple):
    """One command on a copy of the store: what is run, and what a success of it may do to the copy's folder.

    `words` stand behind `--path`; in them DEST is the path of a second store, SCOPE a scope file, FACT the id of a
    fact, DIGEST that of the plan to purge it. `new`: the store does not exist before. `made`: it makes a second store.
    """

    name: str
    words: tuple[str, ...]
    stdin: bytes = b""
    new: bool = False
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
    Job("snapshot", ("snapshot", "DEST"), made=True),
    Job("snapshot --force", ("snapshot", "DEST", "--force"), made=True),
    Job("delete", ("delete", "0", str(PENDING))),
    Job("compact", ("compact",)),
    Job("tick", ("tick",)),
    Job("save event", ("save",), json.dumps(fact("likes cake", sourceEventId="turn-9", kind="food")).encode()),
    Job("replace", ("replace", "--scope", "SCOPE", "--fact", "FACT", "--text", "likes coffee")),
    Job("retract", ("retract", "--scope", "SCOPE", "--fact", "FACT", "--reason", "never said")),
    Job("expire", ("expire", "--scope", "SCOPE", "--fact", "FACT")),
    Job("purge", ("purge", "--event", "FACT", "--confirm", "DIGEST")),
    Job("index", ("index",)),
    Job("doctor --repair", ("doctor", "--repair")),
    Job("export", ("export", "--include-deleted")),
    Job("search", ("search", "--query", "operator", "--embedding", "[1,2,3,4]")),
    Job("stats", ("stats",)),
    Job("recall", ("recall", "0")),
    Job("agents-md", ("agents-md",)),
    Job("doctor", ("doctor",)),
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
    save(path, OLD_FACT, episode())
    with MemoryStore.open(path) as store:
        store.flush_wal()
        store.save(MemoryEntry("Pending one", [0, 1, 0, 1], timestamp=7.0, key="k2"))
        store.save(MemoryEntry("Pending two", [1, 0, 1, 0], timestamp=8.0, session_id="s2"))
        store.delete(PENDING + 1)
        store.boost([1, PENDING], 0.5)
    save(path, fact("has a cat", sourceEventId="turn-2", kind="animal"))
    (folder / "scope.json").write_text(json.dumps(SCOPE), encoding="utf-8")
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
    meant = {"DEST": str(path.parent / "copy.h5"), "SCOPE": str(path.parent / "scope.json"), "FACT": FACT}
    if "DIGEST" in job.words:
        meant["DIGEST"] = dry_run(str(path), Selection(events=(FACT,)))["digest"]
    return ["--path", str(path), *(meant.get(word, word) for word in job.words)]
