"""AgentMemoryEvent v1 events: what is one (docs/schema/agent-memory-event.v1.schema.json), and what may enter a store.

Invariants: `validate_event` gives the verdict of the JSON Schema with `format` asserted, no more and no less;
`check_event` adds what the schema cannot say; `refuse_secrets` is for what is new to a store only, so that what is
stored stays readable when the patterns grow; none changes the event. The first fault is named by its member. HOT.
"""

from __future__ import annotations

from clawmem_core.contract.identities import episode_event_id, fact_event_id
from clawmem_core.contract.scope import assert_memory_scope
from clawmem_core.errors import ForgedIdError, InvalidEventError, InvalidInputError, InvalidTimeError
from clawmem_core.strict_json import MAX_SAFE_INTEGER
from clawmem_core.times import parse_rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Final

    from clawmem_core.contract.redaction import Redactor

    Check = Callable[[Any], str]  # "" or what the value must be

EPISODE: Final = "EPISODE"
MEMORY_FACT: Final = "MEMORY_FACT"
TRUST_CLASSES: Final = ("trusted", "mixed", "untrusted")
MAX_TEXT_CHARS: Final = 1_000_000
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
#: members of a new event that must hold no secret, by eventType: they name things or are said on purpose, so they are
#: not redacted (docs/decisions/034-events-and-plain-saves.md)
SECRET_MEMBERS: Final = {
    "episode": ("externalSessionId", "sourceEventId", "provenance", "originClass"),
    "fact": ("text", "subjectKey", "kind", "sourceEventId", "provenance", "agentId", "profileId"),
}
_RANDOM_IDS: Final = ("externalSessionId", "sourceEventId")  # hosts make them up: they may look random
#: one of these, in lower case, or a long word that is neither of small letters nor hexadecimal stands in every text in
#: which redaction_patterns.py finds something
_SECRET_MARKS: Final = (
    ":", "=", "/", "\\", "~", "`", "$", ">", "@", "_", "--", "...", "\uff1a", "\uff1d", "\ufe55", "pass", "pwd", "pw",
    "secret", "token", "key", "aws", "curl", "wget", "bearer", "basic", "exit", "traceback", "exception", "goroutine",
    "panicked", "line",
)  # fmt: skip
_LONG_WORD: Final = 12


# ---------------------------------------------------------------- checks of one value


def is_hash(value: object) -> bool:
    """True for a str of exactly 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and len(value) == 64 and _HEX_DIGITS.issuperset(value)


def _text(value: object) -> str:
    return "" if isinstance(value, str) else "must be text"


def _filled(value: object) -> str:
    return "" if isinstance(value, str) and value else "must be text, not empty"


def _hash(value: object) -> str:
    return "" if is_hash(value) else "must be 64 lower-case hexadecimal digits"


def _boolean(value: object) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _version(value: object) -> str:
    return "" if _number(value) and value == 1 else "must be 1"


def _index(value: Any) -> str:
    whole = _number(value) and (isinstance(value, int) or value.is_integer())
    return "" if whole and value >= 0 else "must be a whole number, 0 or more"


def _share(value: Any) -> str:
    return "" if _number(value) and 0 <= value <= 1 else "must be a number from 0 to 1"


def _time(value: Any) -> str:
    try:
        parse_rfc3339(value)
    except InvalidTimeError as error:
        return str(error.fields["detail"])
    return ""


def _one_of(*words: str) -> Check:
    def check(value: object) -> str:
        return "" if isinstance(value, str) and value in words else f"must be one of {', '.join(words)}"

    return check


# ---------------------------------------------------------------- the two variants

_COMMON: Final[dict[str, Check]] = {
    "schemaVersion": _version,
    "runtime": _one_of("openclaw", "hermes", "custom"),
    "agentId": _filled,
    "profileId": _filled,
    "privacyScope": _one_of("private", "shared"),
    "participantScopeHash": _hash,
    "sandboxEligible": _boolean,
    "visibility": _one_of("participant", "profile", "shared"),
    "trustClass": _one_of(*TRUST_CLASSES),
    "provenance": _text,
}
_EPISODE_MEMBERS: Final[dict[str, Check]] = {
    **_COMMON,
    "eventType": _one_of("episode"),
    "eventId": _hash,
    "externalSessionId": _filled,
    "sourceEventId": _text,
    "turnIndex": _index,
    "userText": _text,
    "assistantText": _text,
    "summary": _filled,
    "conversationKind": _one_of("direct", "local", "shared"),
    "channelIdHash": _hash,
    "originClass": _text,
    "observedAt": _time,
}
_FACT_MEMBERS: Final[dict[str, Check]] = {
    **_COMMON,
    "eventType": _one_of("fact"),
    "factId": _hash,
    "text": _filled,
    "kind": _filled,
    "subjectKey": _filled,
    "confidence": _share,
    "active": _boolean,
    "sourceEventId": _filled,
    "supersedesFactId": _text,
    "validFrom": _time,
    "validUntil": _time,
}
_EPISODE_OPTIONAL: Final = frozenset(("sourceEventId", "channelIdHash"))
_FACT_OPTIONAL: Final = frozenset(("supersedesFactId", "validUntil"))


def validate_event(event: object) -> None:
    """Raise InvalidEventError, naming the first wrong member, unless `event` is a valid AgentMemoryEvent v1.

    Date-times must be RFC 3339 with a zone. Agrees with the JSON Schema; a forged id is not noticed here.
    """
    if not isinstance(event, dict):
        raise _invalid("", "an event is a JSON object")
    kind = event.get("eventType")
    if kind == "episode":
        members, optional = _EPISODE_MEMBERS, _EPISODE_OPTIONAL
    elif kind == "fact":
        members, optional = _FACT_MEMBERS, _FACT_OPTIONAL
    else:
        raise _invalid("eventType", "must be episode or fact")
    for name in event:
        if name not in members:
            raise _invalid(str(name), f"is no member of {'an episode' if kind == 'episode' else 'a fact'}")
    for name, check in members.items():
        if name not in event:
            if name in optional:
                continue
            raise _invalid(name, "is missing")
        complaint = check(event[name])
        if complaint:
            raise _invalid(name, complaint)


def check_event(event: dict[str, Any]) -> None:
    """Raise unless `event` may enter a store: valid, with a usable scope, sound times, bounded texts and its own id.

    Beyond the schema: scope fields not blank and free of control characters; turnIndex at most 2**53 - 1; validUntil
    after validFrom; supersedesFactId a hash; no text over a million characters; the id equal to the recomputed one.
    Raises InvalidEventError, ScopeError or ForgedIdError.
    """
    validate_event(event)
    assert_memory_scope(event)
    for name in ("agentId", "profileId"):
        if has_control_characters(event[name]):
            raise _invalid(name, "must not hold control characters")
    for name, value in event.items():
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            raise _invalid(name, f"must not be longer than {MAX_TEXT_CHARS} characters")
    if event.get("turnIndex", 0) > MAX_SAFE_INTEGER:
        raise _invalid("turnIndex", f"must be at most {MAX_SAFE_INTEGER}")
    if "validUntil" in event and parse_rfc3339(event["validUntil"]) <= parse_rfc3339(event["validFrom"]):
        raise _invalid("validUntil", "must be after validFrom")
    if "supersedesFactId" in event and not is_hash(event["supersedesFactId"]):
        raise _invalid("supersedesFactId", _hash(event["supersedesFactId"]))
    check_event_id(event)


def refuse_secrets(members: Mapping[str, Any], names: Iterable[str], redactor: Redactor | None = None) -> None:
    """Raise InvalidInputError, naming member and class but not the value, if one of the named texts holds a secret.

    `redactor`: the patterns to look for, those that are built in by default.
    """
    for name in names:
        value = members.get(name)
        if not isinstance(value, str) or (redactor is None and plainly_clean(value)):
            continue
        from clawmem_core.contract.redaction import find_secrets

        found = (redactor.find if redactor else find_secrets)(value)
        for finding in found:
            if finding.redaction_class != "entropy" or name not in _RANDOM_IDS:
                detail = f"holds what looks like a secret ({finding.redaction_class})"
                raise InvalidInputError(field=name, detail=detail)


def plainly_clean(text: str) -> bool:
    """True only if no built-in pattern can find anything: what usual texts are told from without loading `re`."""
    lower = text.lower()
    return not any(mark in lower for mark in _SECRET_MARKS) and all(map(_plain_word, text.split()))


def _plain_word(word: str) -> bool:
    """True for a word that is short, of small letters, or hexadecimal with hyphens."""
    return (
        len(word) < _LONG_WORD
        or (word.isalpha() and word == word.lower())
        or _HEX_DIGITS.issuperset(word.replace("-", ""))
    )


def check_event_id(event: Mapping[str, Any]) -> None:
    """Raise ForgedIdError unless the id of a valid event is the one its content gives."""
    member, computed = event_identity(event)
    if event[member] != computed:
        raise ForgedIdError(member=member, given=event[member], computed=computed)


def event_identity(event: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the id member of an event, and the id its content gives."""
    if event["eventType"] == "episode":
        return "eventId", episode_event_id(event)
    return "factId", fact_event_id(event)


def event_label(event: Mapping[str, Any]) -> str:
    """EPISODE or MEMORY_FACT."""
    return EPISODE if event["eventType"] == "episode" else MEMORY_FACT


def has_control_characters(text: str) -> bool:
    """True if there is a C0 or C1 control character or U+007F in the text."""
    return any(char < " " or "\x7f" <= char <= "\x9f" for char in text)


def _invalid(member: str, complaint: str) -> InvalidEventError:
    return InvalidEventError(detail=f"{member} {complaint}" if member else complaint, member=member)
