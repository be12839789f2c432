"""Power failures, kills and full disks at random moments: what was acknowledged is there, once."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from clawmem_core.errors import StorageError
from clawmem_core.storage.atomic import remove_stale_temps
from clawmem_core.storage.pair import open_pair
from clawmem_core.storage.paths import StorePaths
from tests.core.storage import support
from tests.faults.simulated import DIRECTORY, PowerLoss, SimulatedLayer, simulated

RUNS = int(os.environ.get("CLAWMEM_POWER_LOSS_RUNS", "300"))


class Trial:
    """Random writers on one store. `synced`: entries acknowledged as durable; `written`: every one ever handed in."""

    def __init__(self, layer: SimulatedLayer, paths: StorePaths, rng: random.Random) -> None:
        self.layer, self.paths, self.rng = layer, paths, rng
        self.synced: list[int] = []
        self.unsynced: list[int] = []  # acknowledged by --no-sync since the last durable one
        self.ids: set[int] = set()  # acknowledged as durable

    def session(self) -> None:
        """One process: a few groups, perhaps a checkpoint, perhaps one that is not rotated."""
        rng = self.rng
        with support.Session(self.paths) as log:
            for _ in range(rng.randrange(1, 4)):
                group = []
                for _ in range(rng.choice((1, 1, 1, 3))):
                    number = log.state.next_record_id
                    support.stage(log, number, rng.choice((10, 300, 700, 2000)))
                    group.append(number)
                sync = rng.random() < 0.7
                log.commit(sync)
                self.unsynced += group
                if sync:
                    self.acknowledge()
            if rng.random() < 0.2:
                support.checkpoint(self.paths, log, rotate=rng.random() < 0.7)
                self.acknowledge()

    def acknowledge(self) -> None:
        """Everything up to here is durable, by the word of `commit`."""
        assert not self.ids.intersection(self.unsynced), "an acknowledged id was given again"
        self.ids.update(self.unsynced)
        self.synced += self.unsynced
        self.unsynced = []

    def check(self, lost_power: bool) -> None:
        """Compare what is stored with what was acknowledged."""
        found = support.stored(self.paths)
        expected = self.synced if lost_power else self.synced + self.unsynced
        assert expected == found[: len(expected)], "an acknowledged entry is missing, doubled or out of place"
        assert len(set(found)) == len(found)
        assert found == sorted(found)
        pair = open_pair(self.paths, support.identity_of)
        assert [] == pair.reports
        remove_stale_temps(self.paths)
        assert not [name for name in self.layer.names if ".tmp-" in name]
        durable = len(found) if lost_power else len(self.synced)
        self.synced, self.unsynced = found[:durable], found[durable:]
        self.ids.update(self.synced)


def fuse(operations: int) -> Callable[[str, str], None]:
    """A hook that cuts the power at the n-th operation, and at every one after it."""
    left = iter(range(operations))

    def burn(operation: str, path: str) -> None:
        if next(left, None) is None:
            raise PowerLoss

    return burn


@pytest.mark.parametrize("start", range(0, RUNS, 50))
def test_power_loss(start: int) -> None:
    """A power failure at any operation, several times over, loses nothing that was acknowledged as durable."""
    for seed in range(start, min(start + 50, RUNS)):
        rng = random.Random(seed)
        with simulated(seed) as layer:
            trial = Trial(layer, support.create(f"{DIRECTORY}/m.h5"), rng)
            for _ in range(4):
                lost_power = rng.random() < 0.8
                layer.before = fuse(rng.randrange(1, 120))
                with pytest.raises(PowerLoss):
                    while True:
                        trial.session()
                layer.before = lambda operation, path: None
                if lost_power:
                    layer.lose_power(rng)
                else:
                    layer.kill()
                trial.check(lost_power)


def test_kill_then_power_loss() -> None:
    """A process killed at any operation of a checkpoint, then a power failure at any operation of the next save.

    The first leaves names that the second relies on and that the medium does not have yet.
    """
    checkpointing = _operations(_checkpoint)
    saving = _operations(_save) + 12
    for killed in range(checkpointing):
        for lost in range(0, saving, 1 + killed % 3):
            with simulated(killed) as layer:
                trial = Trial(layer, support.create(f"{DIRECTORY}/m.h5"), random.Random(lost))
                _save(trial)
                layer.before = fuse(killed)
                with pytest.raises(PowerLoss):
                    _checkpoint(trial)
                layer.kill()
                layer.before = fuse(lost)
                with suppress(PowerLoss):
                    _save(trial)
                layer.before = lambda operation, path: None
                layer.lose_power(random.Random(killed * 100 + lost))
                trial.check(lost_power=True)


def _operations(action: Callable[[Trial], None]) -> int:
    """How many operations of the file system this takes on a store with one entry."""
    with simulated() as layer:
        trial = Trial(layer, support.create(f"{DIRECTORY}/m.h5"), random.Random(0))
        _save(trial)
        layer.counts = {}
        action(trial)
        return sum(layer.counts.values())


def _save(trial: Trial) -> None:
    with support.Session(trial.paths) as log:
        number = log.state.next_record_id
        support.stage(log, number)
        log.commit()
        trial.unsynced.append(number)
        trial.acknowledge()


def _checkpoint(trial: Trial) -> None:
    with support.Session(trial.paths) as log:
        support.checkpoint(trial.paths, log)


def test_full_disk() -> None:
    """A disk that fills up at any byte: the error is told, what was acknowledged stays, and writing goes on later."""
    for space in range(0, 4000, 61):
        with simulated() as layer:
            paths = support.create(f"{DIRECTORY}/m.h5")
            layer.space = space
            done = 0
            with pytest.raises(StorageError, match="No space"):
                while True:
                    support.save(paths, done, size=300)
                    done += 1
            layer.space = None
            assert list(range(done)) == support.stored(paths)
            support.save(paths, done)
            assert list(range(done + 1)) == support.stored(paths)
