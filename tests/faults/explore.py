"""Run a verb with one fault and judge what it leaves: the old state or the new one, and a store that works.

Invariants checked after every fault: exit code and message as documented; what was acknowledged is there; "the old
state is kept" is true where it was said, and so is "it is in the log"; no temporary file but after a death or where
removing it was the very call that failed; the next save works, and the next checkpoint leaves neither findings nor
temporary files.

Most faults leave a folder that another one left before, to the byte: a failed read leaves what was there. What such a
folder holds and whether the next save and checkpoint work on it is found out once (`Laboratory.outcome`); what the
command said about it is judged each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from clawmem_core import MemoryEntry, MemoryStore, clock
from tests.faults.branches import Branch, BranchingLayer, branches
from tests.faults.command import CRASHED, Answer, command
from tests.faults.faulty import EVERYWHERE, HARMLESS, Call, Fault, FaultyLayer
from tests.faults.states import State, findings, left_over, state_of
from tests.faults.verbs import Bench, Job, words_for

#: what a failed change may leave, by the code of its error
OLD, NEW = frozenset(("io",)), frozenset(("unfinished",))


class Outcome(NamedTuple):
    """What a folder holds in which the next save and checkpoint work: the store and a copy of it, None if missing."""

    found: State | None
    copy: State | None


class Laboratory:
    """One verb: its states before and after a clean run, and the calls that run makes."""

    def __init__(self, bench: Bench, job: Job) -> None:
        self.bench, self.job = bench, job
        self._outcomes: dict[bytes, Outcome] = {}
        path = bench.place(job)
        self.old, self.old_copy = state_of(path), state_of(path.parent / "copy.h5")
        answer, self.trace = traced(job, path)
        assert answer.code == 0, answer
        self.new, self.new_copy = state_of(path), state_of(path.parent / "copy.h5")
        assert left_over(path.parent) == []
        bench.remove(path)

    def explore(self, faults: Sequence[Fault]) -> None:
        """Judge every fault, as many as possible out of one run. Raises AssertionError for all that went wrong."""
        failures = []
        path = self.bench.place(self.job)
        single = [fault for fault in faults if fault.at != EVERYWHERE]
        every = [self._alone(fault) for fault in faults if fault.at == EVERYWHERE]
        seen = 0
        for branch in (*every, *branches(lambda layer: run(self.job, path, layer), single, path.parent)):
            seen += 1
            try:
                self.judge(branch, path)
            except Exception:  # also what a damaged store raises when it is opened again
                failures.append(f"{branch.fault}: {traceback.format_exc()}")
            shutil.rmtree(branch.folder)
        self.bench.remove(path)
        assert seen == len(faults), "a run ended before its time"
        assert not failures, "\n".join(failures[:5])

    def _alone(self, fault: Fault) -> Branch:
        """What a fault leads to, in a run of its own."""
        path = self.bench.place(self.job)
        layer = FaultyLayer(fault)
        answer = run(self.job, path, layer)
        return Branch(fault, answer, layer.hits, path.parent)

    def judge(self, branch: Branch, ran: Path) -> None:
        """What a fault led to. `ran`: where the store was. Raises AssertionError."""
        fault, answer, hits, folder = branch
        path = folder / ran.name
        if answer.code != CRASHED or fault.kind not in ("crash", "torn"):
            self._check_answer(answer, fault)
        assert hits >= fault.calls(self.trace), "the run is another one than the clean one"
        self._check_leftovers(path, fault)
        outcome = self.outcome(path)
        self._check_state(outcome.found, answer)
        if self.job.made:
            assert outcome.copy == self.new_copy if answer.code == 0 else outcome.copy in (self.old_copy, self.new_copy)

    def outcome(self, path: Path) -> Outcome:
        """What a fault left at `path`; uses it up. Raises AssertionError if one cannot go on with it."""
        seen = digest(path.parent)
        if seen not in self._outcomes:
            outcome = Outcome(state_of(path), state_of(path.parent / "copy.h5"))
            go_on(path, outcome.found)
            self._outcomes[seen] = outcome
        return self._outcomes[seen]

    def _check_answer(self, answer: Answer, fault: Fault) -> None:
        answer.check()
        if fault.kind in HARMLESS:
            assert answer.code == 0, answer
        found_something = answer.code == 13 and self.job.words[0] == "doctor"  # a file it cannot read is a finding
        assert answer.code in (0, 74) or found_something, answer
        if answer.code == 74:
            assert str(self.bench.folder) in answer.error["message"], answer
            assert ".tmp-" not in answer.error["message"], answer

    def _check_leftovers(self, path: Path, fault: Fault) -> None:
        call = None if fault.at == EVERYWHERE else self.trace[fault.at - 1]
        may_stay = fault.kind in ("crash", "torn") or (call and call.operation in ("unlink", "listdir"))
        if not may_stay:
            assert left_over(path.parent) == []

    def _check_state(self, found: State | None, answer: Answer) -> None:
        if self.job.name == "save --ndjson":
            assert self.old is not None and found is not None
            acknowledged = [line["index"] for line in answer.lines]
            assert set(self.old.records) | set(acknowledged) <= set(found.records)
        elif answer.code == 0:
            assert found == self.new
        elif answer.code == 74 and answer.error["code"] in OLD:
            assert found == self.old, f"the message says the old state is kept: {answer}"
        elif answer.code == 74 and answer.error["code"] in NEW:
            assert found == self.new, f"the message says it is in the log: {answer}"
        assert found in (self.old, self.new)


def go_on(path: Path, found: State | None) -> None:
    """The next save, then the next checkpoint, on a store that a fault left."""
    if found is None:  # nothing was made, so making it must work
        MemoryStore.create(path, dim=4).close()
        found = state_of(path)
        assert found is not None
    with MemoryStore.open(path) as store:
        assert "log-corrupt" not in str(store.warnings)
        saved = store.save(MemoryEntry("afterwards", [1, 2, 3, 4], timestamp=9.0))
    assert saved.index not in found.records
    after = state_of(path)
    assert after is not None
    assert {**found.records, saved.index: after.records[saved.index]} == after.records
    assert findings(path) <= {"temp-left"}, findings(path)
    with MemoryStore.open(path) as store:
        store.flush_wal()
    assert state_of(path) == after
    assert findings(path) == set()
    assert [name for name in left_over(path.parent) if name.startswith("m.h5")] == []


def digest(folder: Path) -> bytes:
    """The files of a folder by name, mode and content. What never differs for a reader is left out: random parts of the
    names of temporary files and their contents, which nobody reads, and whom the lock file names.
    """
    parts = []
    for file in sorted(folder.iterdir()):
        name, temporary, _ = file.name.partition(".tmp-")
        content = b"" if temporary or name.endswith(".lock") else hashlib.sha256(file.read_bytes()).digest()
        parts.append((name, temporary, file.stat().st_mode, content))
    return hashlib.sha256(repr(sorted(parts)).encode()).digest()


def run(job: Job, path: Path, layer: FaultyLayer) -> Answer:
    """Run a verb with the same random numbers each time, so that equal outcomes are equal to the byte."""

    def still() -> None:
        clock.random_bytes = random.Random(0).randbytes
        if isinstance(layer, BranchingLayer):
            layer.keep_output()

    return command(*words_for(job, path), stdin=job.stdin, layer=layer, before=still)


def traced(job: Job, path: Path) -> tuple[Answer, list[Call]]:
    """Run a verb without a fault; its answer and the calls it made."""
    layer = FaultyLayer(None)
    fd = os.memfd_create("trace")
    try:
        layer.trace_to(fd)
        answer = run(job, path, layer)
        lines = os.pread(fd, os.fstat(fd).st_size, 0).splitlines()
    finally:
        os.close(fd)
    return answer, [Call(*json.loads(line)) for line in lines]
