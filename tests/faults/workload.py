"""Random work on a store, beside a plain model of it: steps that can be made up ahead, done, and checked.

A step is plain data, so that a process which is killed while it works and one that judges it afterwards agree on it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from clawmem_core import MemoryEntry, MemoryStore, door
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.model import Model, Row, half, single

DIM = 3


class Step(NamedTuple):
    """One operation with everything it needs. `value`: entries, ids, a name, … as the verb asks."""

    verb: str
    value: Any = None


class Plan:
    """A store's model, and the steps that bring it forward. `states[n]` is the model after n steps."""

    def __init__(self, model: Model, rng: random.Random) -> None:
        self.model, self.rng = copy.deepcopy(model), rng
        self.states = [copy.deepcopy(model)]
        self.steps: list[Step] = []
        self.number = rng.randrange(1 << 30)

    def add(self) -> Step:
        """Make up the next step."""
        verb = self.rng.choice(_VERBS)
        step = _MAKERS[verb](self) or Step("flush")
        _MODELS[step.verb](self.model, step.value)
        self.steps.append(step)
        self.states.append(copy.deepcopy(self.model))
        return step

    def entry(self, key: str = "") -> dict[str, Any]:
        """A record nobody else makes."""
        self.number += 1
        rng = self.rng
        vector = None if rng.random() < 0.2 else [float(rng.randrange(1, 9)) for _ in range(DIM)]
        return {
            "chunk": f"entry {self.number} " + "x" * rng.choice((0, 10, 700)),
            "embedding": vector,
            "timestamp": float(self.number),
            "session_id": rng.choice(("", "a", "b")),
            "tags": rng.choice(("", "t")),
            "key": key,
        }

    def some(self, ids: list[int]) -> list[int]:
        """One to three of the ids, none if there are none."""
        return sorted(self.rng.sample(ids, min(len(ids), self.rng.randrange(1, 4)))) if ids else []


def _ids(verb: str, pick: Callable[[Model], list[int]]) -> Callable[[Plan], Step | None]:
    def make(plan: Plan) -> Step | None:
        ids = plan.some(pick(plan.model))
        return Step(verb, ids) if ids else None

    return make


def _undeletable(model: Model) -> list[int]:
    return sorted(id for id, row in model.rows.items() if row.deleted and not row.key)


def _session(plan: Plan) -> Step | None:
    ids = plan.some(sorted(plan.model.rows))
    return Step("session", (plan.rng.choice("ab"), ids[0], ids[-1])) if ids else None


def _relation(plan: Plan) -> Step | None:
    count = len(plan.model.entities)
    if not count:
        return None
    return Step("relation", (plan.rng.randrange(count), plan.rng.randrange(count), plan.rng.randrange(8) / 8))


_MAKERS: dict[str, Callable[[Plan], Step | None]] = {
    "save": lambda plan: Step("save", [plan.entry()]),
    "upsert": lambda plan: Step("save", [plan.entry(plan.rng.choice(("k1", "k2")))]),
    "batch": lambda plan: Step("save", [plan.entry() for _ in range(plan.rng.randrange(2, 6))]),
    "unsynced": lambda plan: Step("unsynced", plan.entry()),
    "delete": _ids("delete", lambda model: sorted(model.live())),
    "undelete": _ids("undelete", _undeletable),
    "compact": lambda plan: Step("compact"),
    "boost": _ids("boost", lambda model: sorted(model.live())),
    "tick": lambda plan: Step("tick"),
    "session": _session,
    "entity": lambda plan: Step("entity", f"entity {plan.rng.randrange(100)}"),
    "relation": _relation,
    "flush": lambda plan: Step("flush"),
    "reopen": lambda plan: Step("reopen"),
}
_VERBS = (*_MAKERS, "save", "save", "batch", "upsert", "unsynced", "delete", "flush")


def _row(entry: dict[str, Any]) -> Row:
    fields = {name: value for name, value in entry.items() if name != "embedding"}
    return Row(**fields, vector=None if entry["embedding"] is None else half(entry["embedding"]))


def _mark(model: Model, ids: list[int], deleted: bool) -> None:
    for id in ids:
        model.rows[id].deleted = deleted


def _relate(model: Model, value: tuple[int, int, float]) -> None:
    source, target, weight = value
    model.relations[source, target, "knows"] = weight


_MODELS: dict[str, Callable[[Model, Any], object]] = {
    "save": lambda model, entries: [model.save(_row(entry)) for entry in entries],
    "unsynced": lambda model, entry: model.save(_row(entry)),
    "delete": lambda model, ids: _mark(model, ids, True),
    "undelete": lambda model, ids: _mark(model, ids, False),
    "compact": lambda model, _: model.compact(),
    "boost": lambda model, ids: model.boost(ids, 0.25),
    "tick": lambda model, _: model.tick(single(0.98)),
    "session": lambda model, value: model.sessions.__setitem__(value[0], value[1:]),
    "entity": lambda model, name: model.entities.append((name, "thing")),
    "relation": _relate,
    "flush": lambda model, _: None,
    "reopen": lambda model, _: None,
}


class Worker:
    """Does steps on a store, through one handle after the other."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.store = MemoryStore.open(path)

    def close(self) -> None:
        """Let the store go."""
        self.store.close()

    def do(self, step: Step) -> None:
        """Do one step; when this returns it is acknowledged."""
        getattr(self, f"_{step.verb}")(step.value)

    def _save(self, entries: list[dict[str, Any]]) -> None:
        self.store.save_batch([MemoryEntry(**entry) for entry in entries])

    def _unsynced(self, entry: dict[str, Any]) -> None:
        """What `save --no-sync` does."""
        self.store.close()
        with Writer.open(self.path) as writer:
            writer.save(door.entry_record(MemoryEntry(**entry), DIM, True))
            writer.commit(sync=False)
        self.store = MemoryStore.open(self.path)

    def _delete(self, ids: list[int]) -> None:
        self.store.delete(ids)

    def _undelete(self, ids: list[int]) -> None:
        self.store.undelete(ids)

    def _compact(self, _: None) -> None:
        self.store.compact()

    def _boost(self, ids: list[int]) -> None:
        self.store.boost(ids, 0.25)

    def _tick(self, _: None) -> None:
        self.store.tick()

    def _session(self, value: tuple[str, int, int]) -> None:
        self.store.add_session(*value)

    def _entity(self, name: str) -> None:
        self.store.add_entity(name, "thing")

    def _relation(self, value: tuple[int, int, float]) -> None:
        source, target, weight = value
        self.store.add_relation(source, target, "knows", weight, 1.0)

    def _flush(self, _: None) -> None:
        self.store.flush_wal()

    def _reopen(self, _: None) -> None:
        self.store.close()
        self.store = MemoryStore.open(self.path)


def model_of(path: str | Path) -> Model:
    """The model of what a fresh reader sees."""
    with open_view(path) as view:
        overlay = view.overlay
        rows = {
            r.id: Row(
                r.chunk, r.timestamp, r.source_channel, r.session_id, r.tags, r.key, r.vector, r.activation, r.deleted
            )
            for r in view.records(include_deleted=True)
        }  # fmt: skip
        return Model(
            rows=rows,
            next_id=view.state.next_record_id,
            sessions={row.id: (row.start, row.end) for row in overlay.all_sessions()},
            entities=[(row.name, row.type) for row in overlay.all_entities()],
            relations={(row.source, row.target, row.type): row.weight for row in overlay.all_relations()},
        )


def settle(found: Model, candidates: list[Model]) -> Model | None:
    """What was found, if it is one of the candidates; ids that were skipped are no difference, ids given twice are."""
    for model in reversed(candidates):
        if found.next_id >= model.next_id and _content(found) == _content(model):
            return found
    return None


def _content(model: Model) -> Model:
    """A model without its next id; sessions reach from the first to the last of their records that are still there."""
    sessions = {}
    for name, (start, end) in model.sessions.items():
        inside = [id for id in model.rows if start <= id <= end]
        sessions[name] = (min(inside), max(inside)) if inside else (-1, -1)
    return replace(model, sessions=sessions, next_id=0)
