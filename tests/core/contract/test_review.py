"""Review is tested with the corrections it decides on (test_correcting.py); here: what a list shows."""

from __future__ import annotations

from pathlib import Path

from clawmem_core.contract.correcting import replace, retract
from clawmem_core.contract.review import approve, pending
from clawmem_core.writer import Writer
from tests.core.contract.events import SCOPE, fact, make_store, save


def test_the_list_is_oldest_first(tmp_path: Path) -> None:
    """With everything a reviewer needs."""
    path = make_store(tmp_path)
    save(path, fact("tea"))
    with Writer.open(path, 1.0, "ann") as writer:
        retract(writer, SCOPE, fact("tea")["factId"])
    save(path, fact("Tea", sourceEventId="t2"), fact("TEA", sourceEventId="t3"))
    items = pending(str(path), SCOPE)
    assert ["Tea", "TEA"] == [item["text"] for item in items]
    named = {"id", "index", "text", "subjectKey", "kind", "supersedes", "proposed_by", "reason", "recorded"}
    assert named == set(items[0])


def test_a_lifted_tombstone_gives_way_to_nobody(tmp_path: Path) -> None:
    """Two held facts of one value: the first approval closes the rival, the second has none."""
    path = make_store(tmp_path)
    save(path, fact("tea"))
    with Writer.open(path, 1.0, "ann") as writer:
        coffee = replace(writer, SCOPE, fact("tea")["factId"], {"text": "coffee", "sourceEventId": "t2"})["id"]
    held = [fact("Tea", sourceEventId="t3"), fact("TEA", sourceEventId="t4")]
    save(path, *held)
    with Writer.open(path, 1.0, "bob") as writer:
        closed = [approve(writer, SCOPE, one["factId"])["superseded"] for one in held]
    assert [[coffee], []] == closed
