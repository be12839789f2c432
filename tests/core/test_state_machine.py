"""The store and a plain dict, driven side by side across reopening, crashes, checkpoints and one-shot processes."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clawmem_core import MemoryEntry, MemoryStore, StoreConfig, door
from clawmem_core.errors import DeletedError, NotFoundError
from clawmem_core.model import Record
from clawmem_core.writer import Writer
from tests.model import Model, Row, half

DIM = 3
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
short = st.sampled_from(["", "a", "b", "chat", "näh, x"])
keys = st.sampled_from(["", "", "k1", "k2"])
vectors = st.none() | st.lists(st.floats(-50, 50).filter(lambda x: abs(x) > 1e-3), min_size=DIM, max_size=DIM)
entries = st.fixed_dictionaries(
    {
        "chunk": texts,
        "embedding": vectors,
        "source_channel": short,
        "timestamp": st.floats(0, 1e10),
        "session_id": short,
        "tags": short,
        "key": keys,
    }
)


def row_of(entry: dict[str, Any]) -> Row:
    """The model's row for an entry."""
    fields = {name: value for name, value in entry.items() if name != "embedding"}
    return Row(**fields, vector=None if entry["embedding"] is None else half(entry["embedding"]))


def as_row(record: Record) -> Row:
    """The model's row for what the store gives back."""
    return Row(
        record.chunk, record.timestamp, record.source_channel, record.session_id, record.tags, record.key,
        record.vector, record.activation, record.deleted,
    )  # fmt: skip


class StoreMachine(RuleBasedStateMachine):
    """Rules are operations; after each, the open handle and a fresh reader both equal the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "m.h5"
        self.model = Model()

    @initialize(limit=st.sampled_from([1, 3, 500]), wal=st.booleans())
    def create(self, limit: int, wal: bool) -> None:
        """A new store with a small or a usual checkpoint threshold."""
        self.store = MemoryStore.create(self.path, StoreConfig(dim=DIM, wal_max_entries=limit, wal_enabled=wal))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder)

    @rule(entry=entries)
    def save(self, entry: dict[str, Any]) -> None:
        """One record."""
        answer = self.store.save(MemoryEntry(**entry))
        assert self.model.save(row_of(entry)) == (answer.status, answer.index)
        assert len(self.model.rows) == answer.count

    @rule(batch=st.lists(entries, min_size=1, max_size=4, unique_by=lambda entry: entry["key"] or object()))
    def save_batch(self, batch: list[dict[str, Any]]) -> None:
        """Several at once."""
        answers = self.store.save_batch([MemoryEntry(**entry) for entry in batch])
        assert [self.model.save(row_of(entry)) for entry in batch] == [(a.status, a.index) for a in answers]

    @rule(entry=entries)
    def save_in_another_process(self, entry: dict[str, Any]) -> None:
        """What a one-shot save does: writer only, no view."""
        self.store.close()
        with Writer.open(self.path) as writer:
            record = door.object_record(json.loads(json.dumps(entry)), DIM, True)
            answer = writer.save(record)
            writer.commit()
        assert self.model.save(row_of(entry)) == answer
        self.store = MemoryStore.open(self.path)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Some live records, or an id that is none."""
        live = sorted(self.model.live())
        if not live:
            return
        ids = data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=3, unique=True))
        assert len(ids) == self.store.delete(ids)
        for id in ids:
            self.model.rows[id].deleted = True

    @rule()
    def delete_what_is_not_there(self) -> None:
        """Deleting nothing that is live changes nothing."""
        for id in [self.model.next_id, *[id for id, row in self.model.rows.items() if row.deleted][:1]]:
            try:
                self.store.delete([id])
            except (NotFoundError, DeletedError):
                continue
            raise AssertionError(f"deleted {id}")

    @rule(data=st.data())
    def undelete(self, data: st.DataObject) -> None:
        """A deleted record whose key nobody took."""
        taken = {row.key for row in self.model.live().values()} - {""}
        dead = sorted(id for id, row in self.model.rows.items() if row.deleted and row.key not in taken)
        if dead:
            id = data.draw(st.sampled_from(dead))
            self.store.undelete([id])
            self.model.rows[id].deleted = False

    @rule()
    def compact(self) -> None:
        """Drop deleted rows."""
        moved = self.store.compact()
        assert self.model.compact() == moved

    @rule(data=st.data(), amount=st.sampled_from([0.15, 3.0, -2.0]))
    def boost(self, data: st.DataObject, amount: float) -> None:
        """Raise or lower activations."""
        live = sorted(self.model.live())
        if live:
            ids = data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=2, unique=True))
            self.store.boost(ids, amount)
            self.model.boost(ids, amount)

    @rule()
    def tick(self) -> None:
        """Decay."""
        self.store.tick()
        self.model.tick(0.98)

    @rule(id=st.sampled_from(["s1", "s2"]), data=st.data())
    def session(self, id: str, data: st.DataObject) -> None:
        """A session over some records."""
        if self.model.rows:
            ends = sorted(data.draw(st.lists(st.sampled_from(sorted(self.model.rows)), min_size=2, max_size=2)))
            self.store.add_session(id, *ends)
            self.model.sessions[id] = (ends[0], ends[1])

    @rule(name=texts)
    def entity(self, name: str) -> None:
        """A graph node, its id counting up."""
        assert len(self.model.entities) == self.store.add_entity(name, "thing")
        self.model.entities.append((name, "thing"))

    @precondition(lambda self: self.model.entities)
    @rule(data=st.data(), weight=st.floats(0, 1, width=32))
    def relation(self, data: st.DataObject, weight: float) -> None:
        """A graph edge and an alias."""
        nodes = st.integers(0, len(self.model.entities) - 1)
        source, target = data.draw(nodes), data.draw(nodes)
        self.store.add_relation(source, target, "knows", weight)
        self.model.relations[source, target, "knows"] = weight
        self.store.add_alias(f"Alias {source}", target)
        self.model.aliases[f"alias {source}"] = target

    @rule()
    def flush(self) -> None:
        """A checkpoint."""
        self.store.flush_wal()
        assert self.store.stats()["wal_pending"] == 0

    @rule()
    def reopen(self) -> None:
        """Close and open."""
        self.store.close()
        self.store = MemoryStore.open(self.path)

    @rule(suffix=st.sampled_from([".idx", ".keys"]))
    def lose_derived_file(self, suffix: str) -> None:
        """A derived file is gone."""
        self.store.close()
        Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.store = MemoryStore.open(self.path)

    @invariant()
    def equal(self) -> None:
        """The handle and a reader of its own give what the model holds."""
        if not hasattr(self, "store"):
            return
        with MemoryStore.open_read_only(self.path) as reader:
            for store in (self.store, reader):
                assert self.model.rows == {r.id: as_row(r) for r in store.records(include_deleted=True)}
                stats = store.stats()
                assert (len(self.model.rows), len(self.model.live())) == (stats["count"], stats["active"])
                assert self.model.next_id == stats["next_index"]
                assert self.model.entities == [(row.name, row.type) for row in store.entities()]
                assert self.model.relations == {
                    (row.source, row.target, row.type): row.weight for row in store.relations()
                }
                assert self.model.aliases == {row.name: row.entity_id for row in store.aliases()}
                assert set(self.model.sessions) == {row.id for row in store.sessions()}


StoreMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStore = StoreMachine.TestCase
