"""Run a verb with one fault and judge what it leaves: the old state or the new one, and a store that works.

Invariants checked after every fault: exit code and message as documented; what was acknowledged is there; "the old
state is kept" is true where it was said; no temporary file but after a death or where removing it was the very call
that failed; the next save works, and the next checkpoint leaves neither findings nor temporary files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from clawmem_core import MemoryEntry, MemoryStore
from tests.faults.command import CRASHED, Answer, command
from tests.faults.faulty import HARMLESS, Call, Fault, FaultyLayer
from tests.faults.states import State, findings, left_over, state_of
from tests.faults.verbs import Bench, Job, words_for

THOROUGH = bool(os.environ.get("CLAWMEM_FAULTS_THOROUGH"))

#: verbs whose new state is reached in two durable steps: the operation is logged, then the file is rewritten
TWO_STEPS = ("compact", "purge")


class Laboratory:
    """One verb: its states before and after a clean run, and the calls that run makes."""

    def __init__(self, bench: Bench, job: Job) -> None:
        self.bench, self.job = bench, job
        path = bench.place(job)
        self.old, self.old_copy = state_of(path), state_of(path.parent / "copy.h5")
        answer, self.trace = traced(job, path)
        assert answer.code == 0, answer
        self.new, self.new_copy = state_of(path), state_of(path.parent / "copy.h5")
        assert left_over(path.parent) == []
        bench.remove(path)

    def judge(self, fault: Fault) -> bool:
        """Run the verb with a fault; whether it was reached. Raises AssertionError."""
        path = self.bench.place(self.job)
        layer = FaultyLayer(fault)
        answer = command(*words_for(self.job, path), stdin=self.job.stdin, layer=layer)
        if answer.code != CRASHED or fault.kind not in ("crash", "torn"):
            self._check_answer(answer, fault, layer.hit, path)
        self._check_leftovers(path, fault, layer.hit)
        found = state_of(path)
        self._check_state(found, answer, fault)
        self._check_copy(path, answer)
        self._go_on(path, found, answer, fault)
        self.bench.remove(path)
        return layer.hit

    def _call(self, fault: Fault) -> Call:
        return self.trace[min(fault.at, len(self.trace)) - 1]

    def _check_answer(self, answer: Answer, fault: Fault, hit: bool, path: Path) -> None:
        answer.check()
        if not hit or fault.kind in HARMLESS:
            assert answer.code == 0, answer
        found_something = answer.code == 13 and self.job.words[0] == "doctor"  # a file it cannot read is a finding
        assert answer.code in (0, 74) or found_something, answer
        if answer.code == 74:
            assert str(path.parent) in answer.error["message"], answer
            assert ".tmp-" not in answer.error["message"], answer

    def _check_leftovers(self, path: Path, fault: Fault, hit: bool) -> None:
        may_stay = fault.kind in ("crash", "torn") or self._call(fault).operation in ("unlink", "listdir")
        if not may_stay:
            assert left_over(path.parent) == []

    def _check_state(self, found: State | None, answer: Answer, fault: Fault) -> None:
        if self.job.name == "save --ndjson":
            assert self.old is not None and found is not None
            acknowledged = [line["index"] for line in answer.lines]
            assert set(self.old.records) | set(acknowledged) <= set(found.records)
        elif answer.code == 0:
            assert found == self.new
        elif answer.code == 74 and answer.error["code"] == "io" and self.job.name not in TWO_STEPS:
            assert found == self.old, f"the message says the old state is kept: {answer}"
        assert found in (self.old, self.new)

    def _check_copy(self, path: Path, answer: Answer) -> None:
        if self.job.made:
            copy = state_of(path.parent / "copy.h5")
            assert copy == self.new_copy if answer.code == 0 else copy in (self.old_copy, self.new_copy)

    def _thorough(self, fault: Fault) -> bool:
        """Whether the files are examined and a checkpoint is made afterwards: always where a process died."""
        return THOROUGH or fault.kind in ("crash", "torn") or not fault.at % 8

    def _go_on(self, path: Path, found: State | None, answer: Answer, fault: Fault) -> None:
        """The next save, then the next checkpoint, on what the fault left."""
        if found is None:
            assert answer.code != 0
            if not path.exists():  # nothing was made, so making it must work
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
        if not self._thorough(fault):
            return
        assert findings(path) <= {"temp-left"}, findings(path)
        with MemoryStore.open(path) as store:
            store.flush_wal()
        assert state_of(path) == after
        assert findings(path) == set()
        assert [name for name in left_over(path.parent) if name.startswith("m.h5")] == []


def traced(job: Job, path: Path) -> tuple[Answer, list[Call]]:
    """Run a verb without a fault; its answer and the calls it made."""
    layer = FaultyLayer(None)
    fd = os.memfd_create("trace")
    try:
        layer.trace_to(fd)
        answer = command(*words_for(job, path), stdin=job.stdin, layer=layer)
        lines = os.pread(fd, os.fstat(fd).st_size, 0).splitlines()
    finally:
        os.close(fd)
    return answer, [Call(*json.loads(line)) for line in lines]
