"""Activations: raised on purpose only, within bounds, durable at once; what fails says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawmem_core import MemoryEntry, MemoryStore
from clawmem_core.errors import StorageError
from clawmem_core.storage import fs


def activations(path: Path) -> list[float]:
    """What a fresh reader sees."""
    with MemoryStore.open_read_only(path) as reader:
        return [record.activation for record in reader.records()]


def test_a_boost_is_durable_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see it before the handle is closed; one that cannot be written is no boost, for nobody (defect A12)."""
    path = tmp_path / "m.h5"
    store = MemoryStore.create(path, dim=2)
    store.save(MemoryEntry("text", [1, 2]))
    store.boost([0], 0.5)
    assert [1.5] == activations(path)

    def full(*_: object) -> None:
        raise StorageError(path=str(path), detail="No space left on device", errno=28)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "pwrite", full)
        with pytest.raises(StorageError):
            store.boost([0], 0.5)
    assert 1.5 == store.get(0).activation
    assert [1.5] == activations(path)
    store.close()
    with MemoryStore.open(path) as store:
        store.boost([0], 0.25)
    assert [1.75] == activations(path)


def test_the_same_search_again_and_again_boosts_nothing(tmp_path: Path) -> None:
    """A page is the same after many, and the best match is never buried; what is boosted ends at 4 (defect F8)."""
    path = tmp_path / "m.h5"
    with MemoryStore.create(path, dim=2) as store:
        store.save_batch([MemoryEntry("tea in the morning", [1, 0]), MemoryEntry("tea", [0.9, 0.1])])
        store.save(MemoryEntry("the other way", [0.1, 0.9]))
        first = store.search([1.0, 0.0], "tea")
        for _ in range(100):
            page = store.search([1.0, 0.0], "tea")
        assert [(hit.index, hit.score) for hit in first] == [(hit.index, hit.score) for hit in page]
        assert {1.0} == {record.activation for record in store.records()}
        for _ in range(20):
            store.boost([2], 3.0)
    assert [1.0, 1.0, 4.0] == activations(path)
