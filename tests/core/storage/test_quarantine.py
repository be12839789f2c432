"""Quarantined logs are on the medium, whole, once."""

from __future__ import annotations

import random

from clawmem_core.storage import fs, quarantine
from tests.core.storage import support
from tests.faults.simulated import DIRECTORY, simulated


def test_kept_bytes_survive_a_power_failure() -> None:
    """When `keep` returns, the second name and every byte that was in the log are durable."""
    for seed in range(20):
        with simulated(seed) as layer:
            paths = support.create(f"{DIRECTORY}/m.h5")
            support.save(paths, *range(20), sync=False)
            fd = fs.open_file(paths.log, fs.RDWR)
            whole = bytes(layer.names[paths.log].data)
            name = quarantine.keep(paths, fd)
            layer.lose_power(random.Random(seed))
            assert [name] == paths.quarantined()
            assert whole == bytes(layer.names[name].data)


def test_same_file_is_kept_once() -> None:
    """A second call finds the name of the first; another file gets a name of its own."""
    with simulated():
        paths = support.create(f"{DIRECTORY}/m.h5")
        fd = fs.open_file(paths.log)
        assert quarantine.keep(paths, fd) == quarantine.keep(paths, fd)
        support.create_log(paths, support.current(paths))
        quarantine.keep(paths, fs.open_file(paths.log))
        assert 2 == len(paths.quarantined())
