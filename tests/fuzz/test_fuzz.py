"""A short round of fuzzing, and everything that was ever interesting."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.fuzz.engine import examine
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
ROUNDS = int(os.environ.get("CLAWMEM_FUZZ_ROUNDS", "6"))
SEED = int(os.environ.get("CLAWMEM_FUZZ_SEED", "20240501"))


@pytest.mark.parametrize("name", list(TARGETS))
def test_kept_and_new_inputs(name: str) -> None:
    """No crash, no traceback, bounded time and memory, documented exit codes; for derived files the same answers."""
    target, rng = TARGETS[name], random.Random(f"{SEED} {name}")
    seeds = list(target.seeds())
    kept = [file.read_bytes() for file in sorted((CORPUS / name).glob("*"))]
    new = [target.mutate(rng.choice([*seeds, *kept]), rng) for _ in range(ROUNDS)]
    failures = examine(target, [*seeds, *kept, *new])
    assert not failures, "\n".join(f"{failure.data[:200]!r}: {failure.reason}" for failure in failures[:3])
