"""The events of a scope through an open store."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawmem_core import errors
from clawmem_core.contract.recall import EventFilter
from clawmem_core.contract.render import format_recalled_memories
from clawmem_core.model import MemoryEntry
from clawmem_core.store import MemoryStore
from tests.core.contract.events import OTHER_SCOPES, SCOPE, episode, fact


def test_a_life(tmp_path: Path) -> None:
    """Saved, found, replaced, held, approved, retracted; each step is seen by the next one."""
    with MemoryStore.create(tmp_path / "m.h5", dim=4) as store:
        store.save(MemoryEntry("tea, a plain record"))
        memories = store.scoped(SCOPE)
        events = (fact("tea"), episode(), fact("tea"))
        assert ["saved", "saved", "exists"] == [memories.save(event).status for event in events]
        found = memories.search(None, "tea")
        assert [1, 2] == sorted(one.hit.index for one in found)
        assert "[Memory 2;" in format_recalled_memories(one.memory() for one in found)
        new = memories.replace(fact("tea")["factId"], {"text": "coffee"})["id"]
        assert ["active", "superseded"] == [one["status"] for one in memories.history(fact("tea")["factId"])]
        assert "pending" == memories.save(fact("tea", sourceEventId="t2")).status
        (held,) = memories.pending()
        with pytest.raises(errors.SelfReviewError):
            memories.approve(held["id"])
        assert "coffee" in {one.hit.chunk for one in memories.search(None, "coffee")}
    with MemoryStore.open(tmp_path / "m.h5", actor="bob") as store:
        memories = store.scoped(SCOPE)
        assert [new] == memories.approve(held["id"])["superseded"]
        memories.retract(held["id"])
        assert [] == memories.search(None, "tea coffee", wanted=EventFilter(labels=[2]))
        third = memories.save(fact("water")).id
        assert "expired" == memories.expire(third)["status"]
        held_again = memories.save(fact("tea", sourceEventId="t3")).id
        with pytest.raises(errors.SelfReviewError):
            memories.reject(held_again)
    with MemoryStore.open(tmp_path / "m.h5", actor="eve") as store:
        assert "rejected" == store.scoped(SCOPE).reject(held_again)["status"]


def test_a_handle_stays_in_its_scope(tmp_path: Path) -> None:
    """Whatever is handed in; a scope that is not whole is none."""
    with MemoryStore.create(tmp_path / "m.h5", dim=4) as store:
        store.scoped(SCOPE).save(fact("tea"))
        for other in OTHER_SCOPES.values():
            memories = store.scoped(other)
            assert [] == memories.search(None, "tea")
            with pytest.raises(errors.NotFoundError):
                memories.replace(fact("tea")["factId"], {"text": "x"})
            with pytest.raises(errors.ScopeMismatchError):
                memories.save(fact("coffee"))
        with pytest.raises(errors.ScopeError):
            store.scoped({"agentId": "agent"})


def test_events_are_checkpointed_as_records_are(tmp_path: Path) -> None:
    """When the log has grown far enough."""
    with MemoryStore.create(tmp_path / "m.h5", dim=4, wal_max_entries=10) as store:
        memories = store.scoped(SCOPE)
        for number in range(8):
            memories.save(fact(f"tea {number}", sourceEventId=str(number)))
        assert store.stats()["generation"] > 1
        assert 8 == store.stats()["count"]
    with MemoryStore.open_read_only(tmp_path / "m.h5") as store:
        with pytest.raises(errors.ReadOnlyError):
            store.scoped(SCOPE).save(fact("x"))
        assert store.scoped(SCOPE).search(None, "tea")
