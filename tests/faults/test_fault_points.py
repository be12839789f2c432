"""Every call to the operating system that a verb makes fails, is cut short, or is the last of its process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.explore import Laboratory
from tests.faults.faulty import EVERYWHERE, one_fault_each
from tests.faults.parallel import WORKERS, each
from tests.faults.verbs import JOBS, Bench, Job

#: verbs whose every call fails in every run; of other long ones a quarter does (all of it in scripts/faults.py)
COMPLETE = ("save", "flush-wal", "snapshot", "snapshot --force", "replace", "compact")
SHORT = 60  # faults
TURN = int(os.environ.get("CLAWMEM_FAULT_TURN", "0"))  # which kind of fault each call gets first


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_every_call_fails_once(job: Job, tmp_path: Path) -> None:
    """Old state or new, acknowledged means new, no temporary file, a documented answer, and the next save works."""
    laboratory = Laboratory(Bench(tmp_path), job)
    faults = one_fault_each(laboratory.trace, TURN)
    assert {fault.at for fault in faults} == {EVERYWHERE, *range(1, len(laboratory.trace) + 1)}
    if len(faults) > SHORT and job.name not in COMPLETE:
        faults = faults[TURN % 4 :: 4]
    failures = each([faults[number::WORKERS] for number in range(WORKERS)], laboratory.explore)
    assert not failures, "\n".join(failures[:5])
