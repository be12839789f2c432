"""Processes that die in the middle of random work, one after the other on the same store, against the model."""

from __future__ import annotations

import functools
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import MemoryStore
from clawmem_core.storage import fs
from clawmem_core.writer import Writer
from tests.faults.command import CRASHED, forked
from tests.faults.faulty import CHANGING, Fault, FaultyLayer
from tests.faults.parallel import each
from tests.faults.states import left_over
from tests.faults.workload import DIM, Plan, Worker, model_of, settle

SEEDS = int(os.environ.get("CLAWMEM_CRASH_SEEDS", "10"))
DEATHS, STEPS = 5, 8
#: seeds that once failed
REGRESSIONS: tuple[int, ...] = ()


class CrashLayer(FaultyLayer):
    """Counts only calls that change something."""

    def _strikes(self, fault: Fault, operation: str, arguments: tuple[Any, ...]) -> bool:
        if operation not in CHANGING and operation != "create":
            self.count -= 1
            return False
        return self.count == fault.at


def run(seed: int) -> int:
    """One store that several processes die on; returns how many did."""
    rng = random.Random(seed)
    died = 0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m.h5"
        MemoryStore.create(path, dim=DIM, wal_max_entries=rng.choice((3, 500))).close()
        model = model_of(path)
        for _ in range(DEATHS):
            plan = Plan(model, rng)
            for _ in range(STEPS):
                plan.add()
            fault = Fault(rng.randrange(1, 120), "crash")
            answer = forked(functools.partial(_work, path, plan, fault))
            assert answer.code in (0, CRASHED), answer
            died += answer.code == CRASHED
            done = answer.out.count(b"\n")
            with Writer.open(path) as writer:  # the lock of the dead is free at once
                assert {report.code for report in writer.reports} <= {"log-torn", "log-already-applied"}
            settled = settle(model_of(path), plan.states[done : done + 2])
            assert settled is not None, (fault, plan.steps[done : done + 1])
            model = settled
        with MemoryStore.open(path) as store:
            store.flush_wal()
        assert settle(model_of(path), [model]) is not None
        assert left_over(path.parent) == []
    return died


def _work(path: Path, plan: Plan, fault: Fault) -> int:
    """The process that dies: a line on stdout for every step it acknowledges."""
    fs.layer = CrashLayer(fault)
    worker = Worker(path)
    for step in plan.steps:
        worker.do(step)
        os.write(1, b"done\n")
    worker.close()
    return 0


@pytest.mark.parametrize("seeds", [range(SEEDS), REGRESSIONS], ids=["new", "regressions"])
def test_acknowledged_steps_survive(seeds: range) -> None:
    """After each death the store is as after the last acknowledged step, or as after the one that had begun."""
    failures = each(seeds, run)
    assert not failures, "\n".join(failures[:3])
