"""Event rows: what of an event is kept where."""

from __future__ import annotations

from typing import Any

import pytest

from clawmem_core.contract import event_row, identities, lifecycle, render, scope
from clawmem_core.storage import ops, row_ops
from clawmem_core.strict_json import parse_json

SCOPE = {
    "agentId": "a",
    "profileId": "p",
    "privacyScope": "private",
    "participantScopeHash": "0" * 64,
    "sandboxEligible": False,
}
EPISODE: dict[str, Any] = identities.create_episode_event(
    {
        **SCOPE,
        "runtime": "hermes",
        "externalSessionId": "s\ud800",
        "sourceEventId": "e\0",
        "turnIndex": 1,
        "userText": "u",
        "assistantText": "t",
        "summary": "sum\0mary \ud83d",
        "conversationKind": "direct",
        "visibility": "participant",
        "trustClass": "mixed",
        "originClass": "",
        "observedAt": "1970-01-01T00:01:40Z",
        "provenance": "prov",
    }
)
FACT: dict[str, Any] = identities.create_fact_event(
    {
        **SCOPE,
        "runtime": "custom",
        "text": "tea",
        "kind": "drink",
        "subjectKey": "user",
        "confidence": 1,
        "active": True,
        "sourceEventId": "e",
        "supersedesFactId": "2" * 64,
        "validFrom": "1970-01-01T00:00:10Z",
        "validUntil": "1970-01-01T00:00:20Z",
        "visibility": "shared",
        "trustClass": "trusted",
        "provenance": "prov",
    }
)


def _row(event: dict[str, Any], **options: Any) -> row_ops.EventRow:
    return event_row.first_version(event, record_id=7, recorded=50, actor="ann", **options)


def test_episode_row() -> None:
    """Times, ids and classes are the event's; the payload is exact, the copies can be stored."""
    row = _row(EPISODE)
    assert (row.label, row.trust, row.status, row.version) == (1, 2, lifecycle.ACTIVE, 1)
    assert (row.valid_from, row.valid_until, row.confidence) == (100.0, float("inf"), 1.0)
    assert (row.recorded_from, row.recorded_to, row.record_id, row.actor) == (50, 0, 7, "ann")
    assert row.event_id.hex() == EPISODE["eventId"]
    assert row.scope_key.hex() == scope.scope_key(EPISODE)
    assert (row.session, row.source_event) == ("s\ufffd", "e\ufffd")
    assert parse_json(row.payload) == EPISODE
    assert event_row.searchable_text(EPISODE) == "sum\ufffdmary \ufffd"


def test_fact_row() -> None:
    """A fact brings confidence, the end of its validity and what it supersedes."""
    row = _row(FACT, status=lifecycle.PENDING, reason="held")
    assert (row.label, row.trust, row.status, row.reason) == (2, 1, lifecycle.PENDING, "held")
    assert (row.valid_from, row.valid_until, row.confidence) == (10.0, 20.0, 1.0)
    assert row.supersedes == bytes.fromhex("2" * 64)
    assert event_row.searchable_text(FACT) == "tea"


@pytest.mark.parametrize("event", [EPISODE, FACT])
def test_a_row_survives_the_log(event: dict[str, Any]) -> None:
    """What the log decodes is what was encoded, also with NUL and lone surrogates in the event."""
    row = _row(event)
    ((op, _, decoded),) = ops.decode(row_ops.event(row))
    assert op == ops.EVENT
    assert {name: getattr(decoded, name) for name in row.__slots__} == {n: getattr(row, n) for n in row.__slots__}


def test_recalled_memory_prints() -> None:
    """A row prints with its exact text, its time, trust and mark."""
    row = _row(EPISODE).changed(marked=True)
    line = render.format_fenced_memories([event_row.recalled_memory(row, 0.5)], fence="f0").splitlines()[3]
    assert "trust=mixed; time=1970-01-01T00:01:40Z; provenance=prov; id=" in line
    assert line.endswith("marks=superseded]")
    assert event_row.recalled_memory(row, 0.5)["text"] == "sum\0mary \ud83d"
    assert event_row.recalled_memory(_row(FACT), 0.5)["confidence"] == 1.0
