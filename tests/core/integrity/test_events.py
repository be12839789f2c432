"""Stored events against what their payloads give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawmem_core.contract.event_row import first_version
from clawmem_core.doctor import examine
from clawmem_core.integrity.content import Findings
from clawmem_core.integrity.events import check_events
from clawmem_core.storage import row_ops
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import EventRow
from clawmem_core.store import MemoryStore
from clawmem_core.writer import Writer
from tests.core.contract.events import fact


def row() -> EventRow:
    """A stored fact."""
    return first_version(fact(), record_id=0, recorded=1, actor="me")


def codes(*rows: EventRow) -> list[str]:
    """Codes of the findings about some rows."""
    found = Findings()
    check_events(rows, found, "m.h5")
    return [finding["code"] for finding in found.items]


def test_sound_events() -> None:
    """A first version and a corrected one."""
    assert [] == codes(row(), row().changed(version=2, status=3, valid_until=5.0, recorded_from=9, marked=True))


@pytest.mark.parametrize(
    "change",
    [
        {"event_id": bytes(32)}, {"scope_key": bytes(32)}, {"label": 1}, {"trust": 3}, {"confidence": 1.0},
        {"valid_from": 0.0}, {"source_event": "t2"}, {"payload": b"{}"}, {"payload": b"no json"},
        {"payload": row().payload.replace(b"likes tea", b"likes gin")},
        {"payload": row().payload.replace(b",", b", ", 1)},
    ],
)  # fmt: skip
def test_forged_events(change: dict[str, Any]) -> None:
    """Every column that copies the payload, an id that is not recomputed, a payload that is none."""
    assert ["event-wrong"] == codes(row().changed(**change))


def test_doctor_names_a_forged_event(tmp_path: Path) -> None:
    """An event that got past every door by way of a log frame of its own."""
    path = tmp_path / "m.h5"
    MemoryStore.create(path, dim=2).close()
    forged = row().changed(event_id=bytes(32))
    with Writer.open(path) as writer:
        writer.stage(row_ops.event(forged), 1, operation="event", event_rows=1)
        writer.commit()
        writer.checkpoint()
    assert ["event-wrong"] == [finding["code"] for finding in examine(StorePaths(path)).findings]
