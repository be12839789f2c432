"""Identities of the contract: participant hashes, event ids and the events that carry them.

Invariants: an id is a function of the members its contract lists and of nothing else; it is always computed, never
taken from the input; nothing is bounded, cleaned or defaulted here beyond what the contract says (an absent
`sourceEventId` of an episode counts as ""). HOT.
"""

from __future__ import annotations

from clawmem_core.contract.canonical import UNDEFINED, Undefined, canonical_text, js_trim, sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Final

EPISODE_ID_MEMBERS: Final = (
    "runtime",
    "agentId",
    "profileId",
    "externalSessionId",
    "sourceEventId",
    "turnIndex",
    "userText",
    "assistantText",
)
FACT_ID_MEMBERS: Final = (
    "runtime",
    "agentId",
    "profileId",
    "participantScopeHash",
    "subjectKey",
    "kind",
    "sourceEventId",
    "text",
)
_RECORD_SEPARATOR: Final = "\u001e"
_UNIT_SEPARATOR: Final = "\u001f"


def hash_scope(parts: Iterable[str | Undefined | None], salt: str | Undefined = "") -> str:
    """Hex SHA-256 of salt, U+001E and the trimmed parts joined by U+001F; a missing part counts as "".

    This is the contract's function, which is not injective: `derive.participant_hash` refuses the inputs that collide.
    Raises TypeError if a part or the salt is no text.
    """
    return sha256_hex(scope_canonical(parts, salt))


def scope_canonical(parts: Iterable[str | Undefined | None], salt: str | Undefined = "") -> str:
    """The text a scope's hash is the hash of. Raises TypeError as `hash_scope`."""
    prefix = "" if salt is UNDEFINED else salt
    cleaned = ["" if part is None or isinstance(part, Undefined) else js_trim(part) for part in parts]
    if not isinstance(prefix, str):
        raise TypeError(f"a salt must be text, not {type(prefix).__name__}")
    return prefix + _RECORD_SEPARATOR + _UNIT_SEPARATOR.join(cleaned)


def episode_canonical(episode: Mapping[str, Any]) -> str:
    """The canonical JSON an episode's id is the hash of."""
    identity = {"schemaVersion": 1, "eventType": "episode"}
    identity.update((name, episode.get(name, UNDEFINED)) for name in EPISODE_ID_MEMBERS)
    if identity["sourceEventId"] is None or identity["sourceEventId"] is UNDEFINED:
        identity["sourceEventId"] = ""
    return canonical_text(identity)


def fact_canonical(fact: Mapping[str, Any]) -> str:
    """The canonical JSON a fact's id is the hash of. Unlike in an episode, an absent source event stays absent."""
    identity = {"schemaVersion": 1, "eventType": "fact"}
    identity.update((name, fact.get(name, UNDEFINED)) for name in FACT_ID_MEMBERS)
    return canonical_text(identity)


def episode_event_id(episode: Mapping[str, Any]) -> str:
    """The id of an episode, 64 hex digits. Absent members are left out of what is hashed, not refused."""
    return sha256_hex(episode_canonical(episode))


def fact_event_id(fact: Mapping[str, Any]) -> str:
    """The id of a fact, 64 hex digits. Absent members are left out of what is hashed, not refused."""
    return sha256_hex(fact_canonical(fact))


def create_episode_event(episode: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the input with schemaVersion, eventType and the computed eventId put over whatever stood there."""
    return {**episode, "schemaVersion": 1, "eventType": "episode", "eventId": episode_event_id(episode)}


def create_fact_event(fact: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the input with schemaVersion, eventType and the computed factId put over whatever stood there."""
    return {**fact, "schemaVersion": 1, "eventType": "fact", "factId": fact_event_id(fact)}
