"""Scope derivation: the table row by row, what denies, and that no spelling of a key widens anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.contract import derive
from clawmem_core.contract.canonical import UNDEFINED
from clawmem_core.contract.fixtures import revive
from clawmem_core.contract.identities import hash_scope
from clawmem_core.contract.scope import assert_memory_scope
from clawmem_core.errors import InvalidInputError

SALT = "test"
VECTORS = [
    revive(vector)
    for line in (Path(__file__).parents[2] / "vectors" / "openclaw.jsonl").read_text("ascii").splitlines()
    if (vector := json.loads(line))["fn"] == "ocScope"
]
DIRECT = {
    "agentId": "main",
    "profileId": "default",
    "sessionKey": "agent:main:direct:alice",
    "chatType": "direct",
    "sandboxed": False,
    "agentContext": "primary",
    "channel": "telegram",
    "accountId": "primary",
    "chatId": "chat-1",
    "senderId": "alice",
}
LOCAL = {
    "agentId": "main",
    "profileId": "default",
    "sessionKey": "s-1",
    "chatType": "local",
    "sandboxed": False,
    "agentContext": "primary",
    "localScopeId": "me",
}
GROUP = {**DIRECT, "chatType": "group", "sessionKey": "agent:main:telegram:group:42"}
SANDBOX = {"sandboxed": True, "policy": {"sandboxAgents": ["main"]}}


def _without(context: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in context.items() if key != name}


# facts, reason, privacyScope, sandboxEligible, visibility, conversationKind
ALLOWED = [
    (DIRECT, "direct", "private", False, "participant", "direct"),
    (_without(DIRECT, "senderId"), "direct", "private", False, "participant", "direct"),
    (LOCAL, "local", "private", False, "participant", "local"),
    (_without(LOCAL, "localScopeId"), "local-session", "private", False, "participant", "local"),
    ({**DIRECT, **SANDBOX}, "sandbox-policy", "private", True, "participant", "direct"),
    ({**LOCAL, **SANDBOX}, "sandbox-policy", "private", True, "participant", "local"),
    ({**GROUP, "policy": {"sharedChats": ["chat-1"]}}, "shared-chat", "shared", False, "shared", "shared"),
    (
        {**GROUP, "chatType": "thread", "policy": {"sharedChats": ["chat-1"]}},
        "shared-chat",
        "shared",
        False,
        "shared",
        "shared",
    ),
    (
        {**DIRECT, "agentContext": "subagent", "policy": {"nonPrimary": "allow"}},
        "non-primary-policy",
        "private",
        False,
        "participant",
        "direct",
    ),
    (
        {**DIRECT, **SANDBOX, "agentContext": "subagent", "policy": {"nonPrimary": "allow", "sandboxAgents": ["main"]}},
        "non-primary-policy",
        "private",
        True,
        "participant",
        "direct",
    ),
    (
        {**DIRECT, "aliasChatTypes": ["direct", "direct"], "incognito": False},
        "direct",
        "private",
        False,
        "participant",
        "direct",
    ),
]


@pytest.mark.parametrize(("context", "reason", "privacy", "eligible", "visibility", "kind"), ALLOWED)
def test_allowed_rows(
    context: dict[str, Any], reason: str, privacy: str, eligible: bool, visibility: str, kind: str
) -> None:
    """Every row that allows gives a usable scope and says why."""
    decision = derive.derive_scope(context, SALT)
    assert decision.scope is not None
    assert_memory_scope(decision.scope)
    assert (True, True, reason, privacy, eligible, visibility, kind) == (
        decision.allowed_read,
        decision.allowed_write,
        decision.reason,
        decision.scope["privacyScope"],
        decision.scope["sandboxEligible"],
        decision.visibility,
        decision.conversation_kind,
    )
    assert context["sessionKey"] == decision.external_session_id
    assert decision.document()["explanation"] == derive.REASONS[reason]


DENIED = [
    ({**DIRECT, "sandboxed": True}, "sandboxed"),
    ({**DIRECT, "sandboxed": True, "policy": {"sandboxAgents": ["other"]}}, "sandboxed"),
    (GROUP, "group"),
    ({**GROUP, "chatType": "channel", "policy": {"sharedChats": ["chat-2"]}}, "group"),
    (_without({**GROUP, "policy": {"sharedChats": ["chat-1"]}}, "chatId"), "group"),
    ({**GROUP, **SANDBOX, "policy": {"sandboxAgents": ["main"], "sharedChats": ["chat-1"]}}, "sandboxed"),
    ({**DIRECT, "agentContext": "subagent"}, "non-primary"),
    ({**DIRECT, "agentContext": "subagent", "policy": {"nonPrimary": "deny"}}, "non-primary"),
    *[
        ({**DIRECT, "agentContext": kind, "policy": {"nonPrimary": "allow"}}, "automation")
        for kind in ("cron", "hook", "heartbeat", "webhook", "automation")
    ],
    ({**DIRECT, "incognito": True}, "incognito"),
    ({**DIRECT, "sessionKey": "x:incognito"}, "incognito"),
    ({**DIRECT, "sessionKey": "global"}, "session-kind"),
    ({**DIRECT, "sessionKey": "unknown"}, "session-kind"),
    ({**DIRECT, "aliasChatTypes": ["direct", "group"]}, "mixed-chat-types"),
    ({**DIRECT, "aliasChatTypes": "direct"}, "malformed"),
    (_without(_without(DIRECT, "senderId"), "chatId"), "no-participant"),
    (_without(DIRECT, "channel"), "no-participant"),
    *[
        (_without(DIRECT, name), "missing")
        for name in ("agentId", "profileId", "sessionKey", "chatType", "sandboxed", "agentContext")
    ],
    *[
        ({**DIRECT, name: value}, "malformed")
        for name in ("agentId", "senderId", "accountId", "sessionKey")
        for value in ("", "  ", "a\u001fb", "a\nb", "a\u200bb", 5, "x" * 1_025)
    ],
    ({**DIRECT, "sandboxed": "false"}, "malformed"),
    ({**DIRECT, "sandboxed": 0}, "malformed"),
    ({**DIRECT, "incognito": "no"}, "malformed"),
    ({**DIRECT, "policy": []}, "malformed"),
    ({**DIRECT, "policy": {"sandboxAgents": "main"}}, "malformed"),
    ({**DIRECT, "policy": {"sharedChats": [""]}}, "malformed"),
    ({**DIRECT, "policy": {"nonPrimary": True}}, "unknown-fact"),
    ({**DIRECT, "policy": {"everybody": True}}, "unknown-fact"),
    ({**DIRECT, "chatType": "Direct"}, "unknown-fact"),
    ({**DIRECT, "agentContext": "other"}, "unknown-fact"),
    ({**DIRECT, "ephemeral": True}, "unknown-fact"),
    ({}, "missing"),
]


@pytest.mark.parametrize(("context", "reason"), DENIED)
def test_denied_rows(context: dict[str, Any], reason: str) -> None:
    """Every row that denies gives no scope and says why."""
    assert derive.Decision(False, False, reason) == derive.derive_scope(context, SALT)
    assert reason in derive.REASONS


def test_every_reason_is_reached() -> None:
    """No reason code without a row that gives it."""
    reached = {row[1] for row in ALLOWED} | {row[1] for row in DENIED} | {"session-key"}
    assert set(derive.REASONS) == reached


def _facts(vector: dict[str, Any]) -> dict[str, Any]:
    context, options = vector["input"]["ctx"], vector["input"]["options"]
    facts = {name: value for name, value in context.items() if value is not UNDEFINED}
    facts |= {"profileId": options["profileId"], "sandboxed": options["sandboxed"], "agentContext": "primary"}
    if "localScopeId" in options:
        facts["localScopeId"] = options["localScopeId"]
    return {**facts, "chatType": "direct" if "channel" in facts else "local"}


# Keys the ancestor lets pass although they belong to a group or an automation, and its blank account.
FIXED = {
    "a:subagents:x",
    "a:supergroup:4",
    "a:thread:9",
    "a:webhook:1",
    "cron:x",
    "group:1",
    "x:incognito",
}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_openclaw_keys(vector: dict[str, Any]) -> None:
    """What the ancestor denies is denied; what it allows has the same hashes, apart from its defects."""
    facts, expected = _facts(vector), vector["expected"]
    salt = vector["input"]["options"]["scopeSalt"]
    decision = derive.derive_scope(facts, "" if salt is UNDEFINED else salt, allow_empty_salt=True)
    if expected is None or facts["sessionKey"] in FIXED or facts.get("accountId") == "":
        assert decision.scope is None
        return
    assert decision.scope is not None
    assert expected["participantScopeHash"] == decision.scope["participantScopeHash"]
    assert expected.get("channelIdHash") == decision.channel_id_hash
    assert (expected["conversationKind"], expected["externalSessionId"]) == (
        decision.conversation_kind,
        decision.external_session_id,
    )


BAD_WORDS = [
    "group",
    "channel",
    "active-memory",
    "cron",
    "heartbeat",
    "hook",
    "node",
    "subagent",
    "supergroup",
    "thread",
    "webhook",
    "subagents",
    "incognito",
    "global",
    "unknown",
]
COLONS = [":", "::", "\uff1a", "\ufe55", "\u2236", "\ua789", "\u02d0"]
INSERTS = ["", "", "", "\u200b", "\u00ad", "\u2060", " ", "\ufeff"]


@given(
    st.sampled_from(BAD_WORDS),
    st.sampled_from(COLONS),
    st.sampled_from(COLONS),
    st.sampled_from(INSERTS),
    st.integers(0, 20),
    st.booleans(),
    st.sampled_from(["", "a", "agent"]),
    st.sampled_from(["", "x", "42"]),
)
def test_no_spelling_widens(
    word: str, before: str, after: str, insert: str, place: int, upper: bool, head: str, tail: str
) -> None:
    """Case, look-alike colons, trailing colons and invisible characters in a bad key never make it a good one."""
    place = min(place, len(word))
    spelled = word[:place] + insert + word[place:]
    key = f"{head}{before}{spelled.upper() if upper else spelled}{after}{tail}"
    for facts in (DIRECT, LOCAL):
        assert not derive.derive_scope({**facts, "sessionKey": key}, SALT).allowed_read


@pytest.mark.parametrize("key", ["a:", ":a", "a::b", "a b", "\u0430gent:main", "a\uff1ab", "a;b", "a\\b"])
def test_keys_that_are_no_identifier(key: str) -> None:
    """Empty segments, spaces and characters beyond the list deny."""
    assert derive.derive_scope({**DIRECT, "sessionKey": key}, SALT).reason == "session-key"


def test_scopes_differ_where_they_should() -> None:
    """Another participant, account, channel, salt or session (without a named user) is another scope."""
    base = derive.derive_scope(DIRECT, SALT).scope
    for name in ("senderId", "accountId", "channel", "agentId", "profileId"):
        assert base != derive.derive_scope({**DIRECT, name: "other"}, SALT).scope
    assert base != derive.derive_scope(DIRECT, "other").scope
    assert base == derive.derive_scope({**DIRECT, "sessionKey": "agent:main:direct:other"}, SALT).scope
    unnamed = _without(LOCAL, "localScopeId")
    assert derive.derive_scope(unnamed, SALT).scope != derive.derive_scope({**unnamed, "sessionKey": "s-2"}, SALT).scope


@pytest.mark.parametrize("salt", ["", "a\u001eb", "a\nb"])
def test_bad_salt(salt: str) -> None:
    """An empty salt, and one with separators in it, are refused."""
    with pytest.raises(InvalidInputError):
        derive.derive_scope(DIRECT, salt)


def test_participant_hash_refuses_what_collides() -> None:
    """The contract's function is not injective; the inputs that collide are refused before it."""
    assert derive.participant_hash(["a", "b"], SALT) == hash_scope(["a", "b"], SALT)
    assert hash_scope(["a", "b"]) == hash_scope(["a\u001fb"])
    for parts in (["a\u001fb"], ["\u001ex"], [], [""], [" ", ""]):
        with pytest.raises(InvalidInputError):
            derive.participant_hash(parts, SALT)
