"""Medians of what is measured in turn.

A case is one thing that is timed and whose answer is checked. `in_turn` runs every case once a round, so that all cases
meet the same machine; a median of one run is compared only with medians of the same rounds.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

#: a number with its spread: {"unit", "median", "low", "high", "rounds"} and, for processes, "cpu": the median of
#: their processor time
Measured = dict[str, "float | int | str"]


class WrongAnswer(Exception):
    """What was measured did not do its work."""


class Finished(NamedTuple):
    """A process that ended well: wall and processor milliseconds, and what it printed."""

    wall: float
    cpu: float
    out: str


def summary(values: Sequence[float], unit: str, cpu: Sequence[float] = ()) -> Measured:
    """Median and range of some values."""
    found: Measured = {
        "unit": unit, "median": round(statistics.median(values), 6), "low": round(min(values), 6),
        "high": round(max(values), 6), "rounds": len(values),
    }  # fmt: skip
    if cpu:
        found["cpu"] = round(statistics.median(cpu), 6)
    return found


def single(value: float, unit: str) -> Measured:
    """A number that is counted, not timed."""
    return summary([value], unit)


def process(argv: Sequence[str], stdin: str | None = None, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command to its end. Raises WrongAnswer where it fails."""
    given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin.encode()}
    before = _children()
    began = time.perf_counter()
    done = subprocess.run(list(argv), **given, capture_output=True, env={**clean_environment(), **(env or {})})  # type: ignore[call-overload]
    wall = time.perf_counter() - began
    if done.returncode:
        raise WrongAnswer(f"{' '.join(argv)[:200]}: exit {done.returncode}: {done.stderr.decode()[-500:]}")
    return Finished(wall * 1000, (_children() - before) * 1000, done.stdout.decode())


def clean_environment() -> dict[str, str]:
    """The environment without what steers clawmem or Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CLAWMEM", "CLAWHDF5", "PYTHON"))}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_turn(cases: Mapping[str, Callable[[], Finished]], rounds: int) -> dict[str, Measured]:
    """Every case once a round; the first round only warms up. A case checks its own answer."""
    found: dict[str, list[Finished]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            finished = case()
            if number:
                found[name].append(finished)
    return {name: summary([one.wall for one in runs], "ms", [one.cpu for one in runs]) for name, runs in found.items()}


def timed(call: Callable[[], object]) -> Finished:
    """The milliseconds of a call in this process."""
    cpu, began = time.process_time(), time.perf_counter()
    call()
    wall = time.perf_counter() - began
    return Finished(wall * 1000, (time.process_time() - cpu) * 1000, "")
