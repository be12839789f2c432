"""Power failures at random moments of random work of the whole engine, checkpoints included, on a simulated disk."""

from __future__ import annotations

import os
import random
from typing import NamedTuple

import pytest

from clawmem_core import MemoryStore
from clawmem_core.writer import Writer
from tests.faults.parallel import each
from tests.faults.simulated import DIRECTORY, Image, SimulatedLayer, simulated
from tests.faults.workload import DIM, Plan, Worker, model_of, settle
from tests.model import Model

PATH = f"{DIRECTORY}/m.h5"
SEEDS = int(os.environ.get("CLAWMEM_POWER_LOSS_SEEDS", "12"))
MOMENTS, STEPS, GENERATIONS = 8, 7, 2
#: seeds that once failed
REGRESSIONS: tuple[int, ...] = ()
#: what recovery may tell after a power failure; damage and foreign logs are none of its effects
EXPECTED = {"log-torn", "log-unsynced-lost", "log-already-applied"}


class Moment(NamedTuple):
    """The disk at one operation of the work: steps that were durable, and steps that had begun."""

    image: Image
    durable: int
    begun: int


def moments_of(layer: SimulatedLayer, plan: Plan, rng: random.Random) -> list[Moment]:
    """Do some steps; the disk at random operations in between."""
    kept: list[Moment] = []
    seen = durable = done = 0

    def look(operation: str, path: str) -> None:
        nonlocal seen
        seen += 1
        at = rng.randrange(seen)
        if at < MOMENTS:
            moment = Moment(layer.image(), durable, done + 1)
            if len(kept) < MOMENTS:
                kept.append(moment)
            else:
                kept[at] = moment

    worker = Worker(PATH)
    for _ in range(STEPS):
        step = plan.add()
        layer.before = look
        worker.do(step)
        done += 1
        if step.verb not in ("unsynced", "reopen"):
            durable = done
    layer.before = lambda operation, path: None
    worker.close()
    return kept


def survive(layer: SimulatedLayer, plan: Plan, moment: Moment, rng: random.Random) -> Model:
    """Lose power at a moment; what the next process finds. Raises AssertionError where that cannot be."""
    layer.restore(moment.image)
    layer.lose_power(rng)
    with Writer.open(PATH) as writer:
        assert {report.code for report in writer.reports} <= EXPECTED
    found = model_of(PATH)
    settled = settle(found, plan.states[moment.durable : moment.begun + 1])
    assert settled is not None, (plan.steps, moment.durable, moment.begun, found)
    return settled


def run(seed: int) -> int:
    """One history of several power failures; returns how many there were."""
    rng = random.Random(seed)
    losses = 0
    with simulated(seed) as layer:
        MemoryStore.create(PATH, dim=DIM, wal_max_entries=rng.choice((3, 500))).close()
        model = model_of(PATH)
        for _ in range(GENERATIONS):
            plan = Plan(model, rng)
            moments = moments_of(layer, plan, rng)
            for moment in moments:
                model = survive(layer, plan, moment, rng)
                losses += 1
            with MemoryStore.open(PATH) as store:  # the disk of the last moment: it goes on from there
                store.flush_wal()
            assert settle(model_of(PATH), [model]) is not None
            assert not [name for name in layer.names if ".tmp-" in name]
    return losses


@pytest.mark.parametrize("seeds", [range(SEEDS), REGRESSIONS], ids=["new", "regressions"])
def test_nothing_acknowledged_is_lost(seeds: range) -> None:
    """After any power failure the store is the state of some step between the last durable one and the one begun."""
    failures = each(seeds, run)
    assert not failures, "\n".join(failures[:3])
