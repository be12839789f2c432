"""Random corrections against a plain model: what is active, pending and rejected after every step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from clawmem_core.contract.correcting import expire, history, replace, retract
from clawmem_core.contract.recall import EventFilter, read_scope_rows
from clawmem_core.contract.review import approve, pending, reject
from clawmem_core.contract.saving import save_event
from clawmem_core.contract.scope import scope_key
from clawmem_core.storage.row_ops import STATUSES
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import SCOPE, checkpoint, fact, make_store

KEY = bytes.fromhex(scope_key(SCOPE))
VALUES = st.sampled_from(["tea", "coffee", " TEA"])


def norm(text: str) -> str:
    return text.strip().lower()


class Corrections(RuleBasedStateMachine):
    """`state`: status by fact id; `text`, `link`: of each; `rejected`: value to the fact that took its place, or ""."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = make_store(Path(self.folder.name))
        self.state: dict[str, str] = {}
        self.text: dict[str, str] = {}
        self.link: dict[str, str] = {}  # held replacement → what it supersedes
        self.successor: dict[str, str] = {}
        self.rejected: dict[str, str] = {}
        self.turn = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    def of(self, *states: str) -> list[str]:
        return sorted(id for id, state in self.state.items() if state in states)

    def change(self, what: Any, *arguments: Any, actor: str = "ann", **how: Any) -> Any:
        with Writer.open(self.path, 5.0, actor) as writer:
            return what(writer, SCOPE, *arguments, **how)

    def source(self) -> str:
        self.turn += 1
        return f"t{self.turn}"

    @rule(text=VALUES)
    def save(self, text: str) -> None:
        event = fact(text, sourceEventId=self.source())
        with Writer.open(self.path, 5.0, "ann") as writer:
            saved = save_event(writer, event, SCOPE)
            writer.commit()
        expected = "pending" if norm(text) in self.rejected else "saved"
        assert expected == saved.status
        self.state[saved.id], self.text[saved.id] = ("active" if expected == "saved" else "pending"), text

    def superseded(self, old: str, new: str) -> None:
        self.state[old], self.successor[old] = "superseded", new
        if norm(self.text[old]) != norm(self.text[new]):
            self.rejected[norm(self.text[old])] = new

    @precondition(lambda self: self.of("active"))
    @rule(data=st.data(), text=VALUES, override=st.booleans())
    def replace(self, data: st.DataObject, text: str, override: bool) -> None:
        old = data.draw(st.sampled_from(self.of("active")))
        if norm(self.text[old]) == norm(text):
            return
        answer = self.change(
            replace, old, {"text": text, "sourceEventId": self.source()}, override="because" if override else ""
        )
        new = answer["id"]
        self.text[new] = text
        if norm(text) in self.rejected and not override:
            assert "pending" == answer["status"]
            self.state[new], self.link[new] = "pending", old
            return
        assert "replaced" == answer["status"]
        self.rejected.pop(norm(text), None)
        self.state[new] = "active"
        self.superseded(old, new)

    @precondition(lambda self: self.of("active"))
    @rule(data=st.data(), reject_value=st.booleans())
    def end(self, data: st.DataObject, reject_value: bool) -> None:
        id = data.draw(st.sampled_from(self.of("active")))
        self.change(retract if reject_value else expire, id)
        self.state[id] = "retracted" if reject_value else "expired"
        if reject_value:
            self.rejected.setdefault(norm(self.text[id]), "")

    def rival(self, id: str) -> str:
        """What an approval closes: the held link, or where the value's successors lead."""
        found = self.link.get(id) or self.rejected.get(norm(self.text[id]), "")
        while id not in self.link and found and self.state[found] != "active":
            found = self.successor.get(found, "")
        return found

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data())
    def approve(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.of("pending")))
        rival = self.rival(id)
        if rival and self.state[rival] != "active":
            return  # a conflict, tested elsewhere
        answer = self.change(approve, id, actor="bob")
        assert ([rival] if rival else []) == answer["superseded"]
        self.state[id] = "active"
        if rival:
            self.superseded(rival, id)
        self.rejected.pop(norm(self.text[id]), None)

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.of("pending")))
        self.change(reject, id, actor="bob")
        self.state[id] = "rejected"
        self.rejected.setdefault(norm(self.text[id]), "")

    @rule()
    def checkpoint(self) -> None:
        checkpoint(self.path)

    @invariant()
    def agrees(self) -> None:
        with open_view(self.path) as view:
            rows = [row for row in view.events_of_scope(KEY) if not row.recorded_to]
            assert self.state == {row.event_id.hex(): STATUSES[row.status] for row in rows}
            shown = read_scope_rows(view, KEY, EventFilter()).rows.values()
            assert set(self.of("active")) == {row.event_id.hex() for row in shown}
        assert set(self.of("pending")) == {item["id"] for item in pending(str(self.path), SCOPE)}
        for id in self.of("superseded")[:1]:
            assert self.successor[id] == history(str(self.path), SCOPE, id)[-1]["superseded_by"]


TestCorrections = Corrections.TestCase
TestCorrections.settings = settings(
    max_examples=8, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
