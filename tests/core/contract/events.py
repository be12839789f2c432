"""Events, scopes and stores for the tests of the lifecycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawmem_core.contract.identities import create_episode_event, create_fact_event
from clawmem_core.contract.saving import SavedEvent, save_event
from clawmem_core.store import MemoryStore
from clawmem_core.writer import Writer

SCOPE: dict[str, Any] = {
    "agentId": "agent",
    "profileId": "profile",
    "privacyScope": "private",
    "participantScopeHash": "0" * 64,
    "sandboxEligible": False,
}
#: the scope with one field changed, by that field
OTHER_SCOPES: dict[str, dict[str, Any]] = {
    "agentId": {**SCOPE, "agentId": "other"},
    "profileId": {**SCOPE, "profileId": "other"},
    "privacyScope": {**SCOPE, "privacyScope": "shared"},
    "participantScopeHash": {**SCOPE, "participantScopeHash": "1" * 64},
    "sandboxEligible": {**SCOPE, "sandboxEligible": True},
}


def fact(text: str = "likes tea", **members: Any) -> dict[str, Any]:
    """A valid fact with its id."""
    usual = {
        **SCOPE, "runtime": "custom", "text": text, "kind": "drink", "subjectKey": "user", "confidence": 0.9,
        "active": True, "sourceEventId": "turn-1", "validFrom": "2026-01-01T00:00:00Z", "visibility": "participant",
        "trustClass": "trusted", "provenance": "test",
    }  # fmt: skip
    return create_fact_event({**usual, **members})


def episode(text: str = "I like tea", **members: Any) -> dict[str, Any]:
    """A valid episode with its id."""
    usual = {
        **SCOPE, "runtime": "custom", "externalSessionId": "session-1", "sourceEventId": "turn-1", "turnIndex": 0,
        "userText": text, "assistantText": "noted", "summary": f"User: {text}", "conversationKind": "local",
        "visibility": "participant", "trustClass": "mixed", "originClass": "conversation",
        "observedAt": "2026-01-01T00:00:00Z", "provenance": "test",
    }  # fmt: skip
    return create_episode_event({**usual, **members})


def make_store(folder: Path, name: str = "m.h5") -> Path:
    """A new store of dimension 4."""
    path = folder / name
    MemoryStore.create(path, dim=4).close()
    return path


def save(path: Path, *events: dict[str, Any], actor: str = "ann") -> SavedEvent:
    """Save events in one group; the answer to the last."""
    with Writer.open(path, 1.0, actor) as writer:
        for event in events:
            saved = save_event(writer, event)
        writer.commit()
    return saved


def checkpoint(path: Path) -> None:
    """Move the log into the file."""
    with Writer.open(path, 1.0, "ann") as writer:
        writer.checkpoint()
