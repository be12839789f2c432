"""Identities: what an id depends on, and what it does not."""

from __future__ import annotations

import pytest

from clawmem_core.contract import identities
from clawmem_core.contract.canonical import UNDEFINED

EPISODE = {
    "runtime": "hermes",
    "agentId": "a",
    "profileId": "p",
    "externalSessionId": "s",
    "sourceEventId": "e",
    "turnIndex": 1,
    "userText": "u",
    "assistantText": "t",
    "summary": "x",
    "participantScopeHash": "0" * 64,
    "privacyScope": "private",
    "sandboxEligible": False,
}
FACT = {
    "runtime": "hermes",
    "agentId": "a",
    "profileId": "p",
    "participantScopeHash": "0" * 64,
    "subjectKey": "k",
    "kind": "n",
    "sourceEventId": "e",
    "text": "t",
    "confidence": 1,
    "active": True,
    "privacyScope": "private",
}


EPISODE_MEMBERS = set(EPISODE) - {"summary", "participantScopeHash", "privacyScope", "sandboxEligible"}
FACT_MEMBERS = set(FACT) - {"confidence", "active", "privacyScope"}


@pytest.mark.parametrize("name", EPISODE)
def test_episode_id_depends_on_its_members_only(name: str) -> None:
    """Changing a member changes the id exactly when the contract lists it."""
    changed = identities.episode_event_id({**EPISODE, name: "other"})
    assert (name in EPISODE_MEMBERS) == (changed != identities.episode_event_id(EPISODE))


@pytest.mark.parametrize("name", FACT)
def test_fact_id_depends_on_its_members_only(name: str) -> None:
    """Changing a member changes the id exactly when the contract lists it."""
    changed = identities.fact_event_id({**FACT, name: "other"})
    assert (name in FACT_MEMBERS) == (changed != identities.fact_event_id(FACT))


def test_created_events_override_what_was_claimed() -> None:
    """Id, type and version are computed, whatever the input said; the input is not changed."""
    claimed = {**EPISODE, "eventId": "f" * 64, "eventType": "fact", "schemaVersion": 9}
    event = identities.create_episode_event(claimed)
    assert (identities.episode_event_id(EPISODE), "episode", 1) == (
        event["eventId"],
        event["eventType"],
        event["schemaVersion"],
    )
    assert claimed["eventId"] == "f" * 64
    assert identities.create_fact_event({**FACT, "factId": "x"})["factId"] == identities.fact_event_id(FACT)


def test_canonical_form_is_what_is_hashed() -> None:
    """`hash` prints the text an id is the digest of."""
    assert identities.fact_canonical(FACT).startswith('{"agentId":"a","eventType":"fact","kind":"n"')
    assert '"sourceEventId":""' in identities.episode_canonical({**EPISODE, "sourceEventId": UNDEFINED})


@pytest.mark.parametrize("arguments", [(["a"], 5), (["a"], None)])
def test_salt_must_be_text(arguments: tuple[list[str], object]) -> None:
    """A salt of another type is not turned into text behind the caller's back."""
    with pytest.raises(TypeError):
        identities.hash_scope(*arguments)  # type: ignore[arg-type]
