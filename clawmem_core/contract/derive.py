"""From what a host knows about a session to the scope its memories get: an allow-list, unknown means deny.

Invariants: only host facts count, never content; each decision has a reason code of REASONS; a fact that is missing, of
another type, unknown by name or value, or ambiguous denies. Whoever passes gets exactly one scope, hashed with the
deployment's salt. The table is that of docs/decisions/032-scope-derivation.md.

Facts (all text unless said otherwise; only those that apply need be there):

    agentId, profileId, sessionKey            required
    chatType       direct, local, group, channel or thread
    sandboxed      true or false
    agentContext   primary, subagent, cron, hook, heartbeat, webhook or automation
    channel, accountId, chatId, senderId      where a direct, group, channel or thread chat takes place
    localScopeId                              names the local user across sessions
    aliasChatTypes list of the chat types the host has on record for this session under any of its names
    incognito      true or false
    policy         {"sandboxAgents": [agent ids], "sharedChats": [chat ids], "nonPrimary": "deny" or "allow"}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clawmem_core.contract.identities import hash_scope
from clawmem_core.contract.scope import SCOPE_FIELDS
from clawmem_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REASONS: Final = {
    "direct": "a direct chat with a known participant",
    "local": "a local session of a named user",
    "local-session": "a local session without a named user: a scope of its own",
    "sandbox-policy": "sandboxed, and the host's policy lists this agent: sandbox-eligible memories only",
    "shared-chat": "the host's policy shares this chat: its shared memories only",
    "non-primary-policy": "not the primary agent context, and the host's policy allows it",
    "missing": "a required host fact is missing",
    "malformed": "a host fact is of another type, blank, or holds control or invisible characters",
    "unknown-fact": "a host fact or value nobody here knows",
    "session-key": "the session key is no plain identifier",
    "session-kind": "the session key belongs to a group, an automation or another agent",
    "incognito": "an incognito session",
    "mixed-chat-types": "the session's names have different chat types",
    "sandboxed": "sandboxed, and no policy for this agent",
    "group": "a group, channel or thread, and no policy for it",
    "non-primary": "not the primary agent context",
    "automation": "started by no person: cron, hook, heartbeat, webhook or automation",
    "no-participant": "a direct chat without a participant",
}
CHAT_TYPES: Final = ("direct", "local", "group", "channel", "thread")
_SHARED_CHAT_TYPES: Final = ("group", "channel", "thread")
_AUTOMATIONS: Final = ("cron", "hook", "heartbeat", "webhook", "automation")
_AGENT_CONTEXTS: Final = ("primary", "subagent", *_AUTOMATIONS)
_REQUIRED: Final = ("agentId", "profileId", "sessionKey", "chatType", "sandboxed", "agentContext")
_TEXTS: Final = (
    "agentId", "profileId", "sessionKey", "chatType", "agentContext", "channel", "accountId", "chatId", "senderId",
    "localScopeId",
)  # fmt: skip
_FACTS: Final = frozenset((*_TEXTS, "sandboxed", "incognito", "aliasChatTypes", "policy"))
_POLICY: Final = frozenset(("sandboxAgents", "sharedChats", "nonPrimary"))
_MAX_TEXT: Final = 1_024

# A session key, lower-cased, may only hold these, so that no look-alike of a colon or letter can hide a word.
_KEY_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.:@+=/#")
# Words that deny wherever they stand in a key, unless the facts say the same, and words that always deny as a whole.
_CHAT_STEMS: Final = ("group", "channel", "thread")
_AGENT_STEMS: Final = ("subagent",)
_STEMS: Final = ("heartbeat", "webhook", "automation", "active-memory")
_KEY_WORDS: Final = frozenset(("global", "unknown", "cron", "hook", "node", "room", "job", "scheduled", "broadcast"))


class Decision(NamedTuple):
    """What a session may do. `reason`: a key of REASONS. The rest is None where nothing is allowed.

    `scope`: the five fields; `external_session_id`, `conversation_kind`, `visibility`, `channel_id_hash`: members for
    the episodes of this session.
    """

    allowed_read: bool
    allowed_write: bool
    reason: str
    scope: dict[str, Any] | None = None
    external_session_id: str | None = None
    conversation_kind: str | None = None
    visibility: str | None = None
    channel_id_hash: str | None = None

    def document(self) -> dict[str, Any]:
        """The decision as one JSON object."""
        return {
            "read": self.allowed_read,
            "write": self.allowed_write,
            "reason": self.reason,
            "explanation": REASONS[self.reason],
            "scope": self.scope,
            "externalSessionId": self.external_session_id,
            "conversationKind": self.conversation_kind,
            "visibility": self.visibility,
            "channelIdHash": self.channel_id_hash,
        }


def derive_scope(context: Mapping[str, Any], salt: str, *, allow_empty_salt: bool = False) -> Decision:
    """The decision for one session. Raises InvalidInputError for a salt that is empty or holds control characters.

    An empty salt makes participant hashes reversible by dictionary, so it takes `allow_empty_salt`.
    """
    if not salt and not allow_empty_salt:
        raise InvalidInputError(field="salt", detail="is empty; make one with `clawmem scope init`")
    _check_printable("salt", salt)
    refusal = _refusal(context)
    return _deny(refusal) if refusal else _decide(context, salt)


def participant_hash(parts: Iterable[str], salt: str) -> str:
    """`hash_scope`, but refusing what collides there: control characters, and parts that are all blank.

    Raises InvalidInputError.
    """
    parts = list(parts)
    for part in (*parts, salt):
        _check_printable("scope part", part)
    if not any(part.strip() for part in parts):
        raise InvalidInputError(field="scope part", detail="at least one part must not be blank")
    return hash_scope(parts, salt)


# ---------------------------------------------------------------- refusals that come before the table


def _refusal(context: Mapping[str, Any]) -> str:
    """Why these facts cannot be judged at all, or ""."""
    if set(context) - _FACTS:
        return "unknown-fact"
    if any(context.get(name) is None for name in _REQUIRED):
        return "missing"
    if any(name in context and not _is_plain(context[name]) for name in _TEXTS):
        return "malformed"
    if not isinstance(context["sandboxed"], bool) or not isinstance(context.get("incognito", False), bool):
        return "malformed"
    if context["chatType"] not in CHAT_TYPES or context["agentContext"] not in _AGENT_CONTEXTS:
        return "unknown-fact"
    if context.get("incognito"):
        return "incognito"
    return _policy_refusal(context.get("policy", {})) or _key_refusal(context) or _alias_refusal(context)


def _is_plain(value: object) -> bool:
    """Text that is not blank and has no control, invisible or line-breaking character."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT and value.isprintable() and bool(value.strip())


def _policy_refusal(policy: object) -> str:
    if not isinstance(policy, dict):
        return "malformed"
    if policy.keys() - _POLICY or policy.get("nonPrimary", "deny") not in ("deny", "allow"):
        return "unknown-fact"
    for name in ("sandboxAgents", "sharedChats"):
        listed = policy.get(name, [])
        if not isinstance(listed, list) or not all(_is_plain(item) for item in listed):
            return "malformed"
    return ""


def _key_refusal(context: Mapping[str, Any]) -> str:
    """Why the session key contradicts the other facts, or hides something, or ""."""
    key = context["sessionKey"].lower()
    if not _KEY_CHARACTERS.issuperset(key) or not all(key.split(":")):
        return "session-key"
    if "incognito" in key:
        return "incognito"
    chat_stems = () if context["chatType"] in _SHARED_CHAT_TYPES else _CHAT_STEMS
    agent_stems = () if context["agentContext"] == "subagent" else _AGENT_STEMS
    if any(stem in key for stem in (*_STEMS, *chat_stems, *agent_stems)):
        return "session-kind"
    words = "".join(char if char.isalnum() else " " for char in key).split()
    return "session-kind" if any(word.removesuffix("s") in _KEY_WORDS for word in words) else ""


def _alias_refusal(context: Mapping[str, Any]) -> str:
    aliases = context.get("aliasChatTypes", [])
    if not isinstance(aliases, list):
        return "malformed"
    return "mixed-chat-types" if any(alias != context["chatType"] for alias in aliases) else ""


# ---------------------------------------------------------------- the table


def _decide(context: Mapping[str, Any], salt: str) -> Decision:
    policy = context.get("policy", {})
    if context["agentContext"] in _AUTOMATIONS:
        return _deny("automation")
    if context["agentContext"] != "primary" and policy.get("nonPrimary") != "allow":
        return _deny("non-primary")
    if context["sandboxed"] and context["agentId"] not in policy.get("sandboxAgents", []):
        return _deny("sandboxed")
    if context["chatType"] in _SHARED_CHAT_TYPES:
        decision = _shared_chat(context, policy, salt)
    elif context["chatType"] == "direct":
        decision = _direct(context, salt)
    else:
        decision = _local(context, salt)
    if decision.scope is None or context["agentContext"] == "primary":
        return decision
    return decision._replace(reason="non-primary-policy")


def _direct(context: Mapping[str, Any], salt: str) -> Decision:
    participant = context.get("senderId", context.get("chatId"))
    if participant is None or "channel" not in context:
        return _deny("no-participant")
    hashed = participant_hash([context["channel"], context.get("accountId", "default"), participant], salt)
    reason = "sandbox-policy" if context["sandboxed"] else "direct"
    return _allow(context, reason, hashed, "direct", "participant", _channel_hash(context, salt))


def _local(context: Mapping[str, Any], salt: str) -> Decision:
    named = context.get("localScopeId")
    hashed = participant_hash(["local", named or context["sessionKey"]], salt)
    reason = "sandbox-policy" if context["sandboxed"] else "local" if named else "local-session"
    return _allow(context, reason, hashed, "local", "participant", None)


def _shared_chat(context: Mapping[str, Any], policy: Mapping[str, Any], salt: str) -> Decision:
    """Never for a sandboxed caller: no row of the table grants both."""
    if "channel" not in context or context.get("chatId") not in policy.get("sharedChats", []):
        return _deny("group")
    if context["sandboxed"]:
        return _deny("sandboxed")
    hashed = _channel_hash(context, salt)
    return _allow(context, "shared-chat", hashed, "shared", "shared", hashed)


def _channel_hash(context: Mapping[str, Any], salt: str) -> str:
    """The contract's channelIdHash. Unlike in the participant's hash, a missing account counts as "" here."""
    return participant_hash([context["channel"], context.get("accountId", ""), context.get("chatId", "")], salt)


def _allow(
    context: Mapping[str, Any], reason: str, hashed: str, kind: str, visibility: str, channel_hash: str | None
) -> Decision:
    privacy = "shared" if visibility == "shared" else "private"
    values = (context["agentId"], context["profileId"], privacy, hashed, context["sandboxed"])
    scope = dict(zip(SCOPE_FIELDS, values, strict=True))
    return Decision(True, True, reason, scope, context["sessionKey"], kind, visibility, channel_hash)


def _deny(reason: str) -> Decision:
    return Decision(False, False, reason)


def _check_printable(field: str, text: str) -> None:
    if not isinstance(text, str) or (text and not text.isprintable()):
        raise InvalidInputError(field=field, detail="must be text without control characters")
