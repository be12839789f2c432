"""Spread independent cases over forked processes."""

from __future__ import annotations

import os
import pickle
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

WORKERS = max(1, min(len(os.sched_getaffinity(0)), int(os.environ.get("CLAWMEM_FAULT_WORKERS", "2"))))


def each(cases: Sequence[Any], function: Callable[[Any], object], workers: int = WORKERS) -> list[str]:
    """Call `function` on every case; what failed comes back as `case: traceback`, in the order of the cases."""
    ends = []
    for number in range(min(workers, len(cases))):
        ends.append(forked(partial(_work, cases, number, workers, function)))
    found: list[tuple[int, str]] = []
    for child, reading in ends:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        found += pickle.loads(data) if data else [(-1, "a worker died")]
    return [text for _, text in sorted(found)]


def forked(work: Callable[[int], object]) -> tuple[int, int]:
    """Call `work` in a forked process with a pipe to write to; its process id and the pipe's other end."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os.close(reading)
            work(writing)
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def _work(cases: Sequence[Any], first: int, step: int, function: Callable[[Any], object], out: int) -> None:
    failures = _run(cases, first, step, function)
    with os.fdopen(out, "wb") as pipe:
        pickle.dump(failures, pipe)


def _run(cases: Sequence[Any], first: int, step: int, function: Callable[[Any], object]) -> list[tuple[int, str]]:
    failures = []
    for number in range(first, len(cases), step):
        try:
            function(cases[number])
        except BaseException:
            failures.append((number, f"{cases[number]}: {traceback.format_exc()}"))
    return failures
