"""Review is tested with the corrections it decides on (test_correcting.py); here: what a list shows."""

from __future__ import annotations

from pathlib import Path

from clawmem_core.contract.correcting import retract
from clawmem_core.contract.review import pending
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
