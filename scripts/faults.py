"""The long mode of the fault tests: every kind of fault at every call of every verb, and many power failures.

    python scripts/faults.py [--job save --job replace] [--losses 1000] [--crashes 500] [--minutes 60] [--counts FILE]

Without --minutes everything is visited. Prints a line per verb and ends with 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults import test_crashes, test_engine_power_loss  # noqa: E402
from tests.faults.explore import Laboratory  # noqa: E402
from tests.faults.faulty import every_fault  # noqa: E402
from tests.faults.parallel import each  # noqa: E402
from tests.faults.verbs import JOBS, Bench, Job  # noqa: E402

BATCH = 40  # cases between two looks at the clock
TOGETHER = 250  # faults out of one run of a verb


class Run:
    """One run: until when, and what went wrong."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes
        self.failures: list[str] = []

    def over(self) -> bool:
        return time.monotonic() > self.end

    def all(self, cases: Sequence[Any], function: Callable[[Any], object]) -> int:
        """Judge cases until the time is over; how many were judged."""
        done = 0
        while done < len(cases) and not self.over():
            batch = cases[done : done + BATCH]
            found = each(batch, function)
            for failure in found:
                print(failure, flush=True)
            self.failures += found
            done += len(batch)
        return done


def faults_of(job: Job, run: Run) -> int:
    """Every fault of one verb; how many were injected."""
    with tempfile.TemporaryDirectory() as name:
        laboratory = Laboratory(Bench(Path(name)), job)
        faults = every_fault(laboratory.trace)
        random.Random(0).shuffle(faults)
        runs = -(-len(faults) // TOGETHER)
        cases = [faults[number::runs] for number in range(runs)]
        done = run.all(cases, laboratory.explore)
        return sum(fault.calls(laboratory.trace) for case in cases[:done] for fault in case)


def main() -> int:
    """Faults, crashes, power failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", action="append", choices=[job.name for job in JOBS])
    parser.add_argument("--losses", type=int, default=1000, help="power failures")
    parser.add_argument("--crashes", type=int, default=500, help="deaths in the middle of random work")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--counts", type=Path, help="write the numbers of the run to this JSON file")
    args = parser.parse_args()
    run = Run(args.minutes)
    numbers: dict[str, Any] = {"faults": {}}
    histories = -(-args.losses // (test_engine_power_loss.MOMENTS * test_engine_power_loss.GENERATIONS))
    done = run.all(range(1000, 1000 + histories), test_engine_power_loss.run)
    numbers["power_losses"] = done * test_engine_power_loss.MOMENTS * test_engine_power_loss.GENERATIONS
    print(f"power failures: {numbers['power_losses']}", flush=True)
    histories = -(-args.crashes // test_crashes.DEATHS)
    numbers["crash_histories"] = run.all(range(1000, 1000 + histories), test_crashes.run)
    print(f"histories with {test_crashes.DEATHS} deaths: {numbers['crash_histories']}", flush=True)
    for job in JOBS:
        if not args.job or job.name in args.job:
            numbers["faults"][job.name] = faults_of(job, run)
            print(f"{job.name}: {numbers['faults'][job.name]} faults", flush=True)
    numbers["fault_failures"] = len(run.failures)
    print(f"{sum(numbers['faults'].values())} faults, {len(run.failures)} failures")
    if args.counts:
        args.counts.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
