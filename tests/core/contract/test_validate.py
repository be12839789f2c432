"""Events: the hand-written verdict against the JSON Schema, and what the schema cannot say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.contract import identities, validate
from clawmem_core.errors import ClawmemError, ForgedIdError, InvalidEventError, InvalidTimeError, ScopeError
from clawmem_core.times import parse_rfc3339

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "agent-memory-event.v1.schema.json").read_text())
VECTORS = [
    vector
    for line in (ROOT / "tests" / "vectors" / "conformance-extra.jsonl").read_text("ascii").splitlines()
    if (vector := json.loads(line))["fn"] == "schemaValidate"
]
SCOPE = {
    "agentId": "a",
    "profileId": "p",
    "privacyScope": "private",
    "participantScopeHash": "0" * 64,
    "sandboxEligible": False,
}
EPISODE = identities.create_episode_event(
    {
        **SCOPE,
        "runtime": "hermes",
        "externalSessionId": "s",
        "sourceEventId": "e",
        "turnIndex": 1,
        "userText": "u",
        "assistantText": "t",
        "summary": "x",
        "conversationKind": "direct",
        "channelIdHash": "1" * 64,
        "visibility": "participant",
        "trustClass": "mixed",
        "originClass": "",
        "observedAt": "2026-08-18T00:00:00Z",
        "provenance": "",
    }
)
FACT = identities.create_fact_event(
    {
        **SCOPE,
        "runtime": "custom",
        "text": "t",
        "kind": "k",
        "subjectKey": "u",
        "confidence": 0.5,
        "active": True,
        "sourceEventId": "e",
        "supersedesFactId": "2" * 64,
        "validFrom": "2026-08-18T00:00:00Z",
        "validUntil": "2026-08-19T00:00:00Z",
        "visibility": "shared",
        "trustClass": "trusted",
        "provenance": "",
    }
)

formats = jsonschema.FormatChecker(formats=())


@formats.checks("date-time", raises=InvalidTimeError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or math.isfinite(parse_rfc3339(value))


schema = jsonschema.Draft202012Validator(SCHEMA, format_checker=formats)


def _accepted(event: object) -> bool:
    try:
        validate.validate_event(event)
    except InvalidEventError:
        return False
    return True


def test_schema_is_a_schema() -> None:
    """The document is valid draft 2020-12 and names itself."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"].startswith("urn:clawmem:")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_schema_and_code_agree_with_the_vectors(vector: dict[str, Any]) -> None:
    """One verdict, three judges: Ajv with formats, the JSON Schema here, the code here."""
    expected = vector["expected"]["validWithFormats"]
    assert expected == schema.is_valid(vector["input"])
    assert expected == _accepted(vector["input"])


WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(),
    st.text(max_size=3),
    st.just("a" * 64),
    st.just("A" * 64),
    st.just("a" * 64 + "\n"),
    st.just([]),
    st.just({}),
    st.sampled_from(["private", "shared", "episode", "fact"]),
    st.sampled_from(
        ["2026-08-18T00:00:00", "2026-08-18t00:00:00.5z", "2026-02-29T00:00:00Z", "2024-02-29 00:00:00+23:59"]
    ),
)
NAMES = sorted({*EPISODE, *FACT, "other"})


@given(
    st.sampled_from([EPISODE, FACT]),
    st.dictionaries(st.sampled_from(NAMES), WRONG, max_size=2),
    st.sets(st.sampled_from(NAMES), max_size=1),
)
@settings(max_examples=300)
def test_schema_and_code_agree(event: dict[str, Any], changes: dict[str, Any], dropped: set[str]) -> None:
    """Over random damage to valid events, the code's verdict is the schema's."""
    changed = {name: value for name, value in {**event, **changes}.items() if name not in dropped}
    assert schema.is_valid(changed) == _accepted(changed)


@pytest.mark.parametrize("event", [EPISODE, FACT])
def test_each_member_is_named(event: dict[str, Any]) -> None:
    """A missing or wrong member is named in the error; optional ones may be absent, never null."""
    optional = {"sourceEventId", "channelIdHash"} if event is EPISODE else {"supersedesFactId", "validUntil"}
    validate.check_event(event)
    for name in event:
        without = {key: value for key, value in event.items() if key != name}
        if name in optional:
            validate.validate_event(without)
        else:
            with pytest.raises(InvalidEventError, match=f"event refused: {name} "):
                validate.validate_event(without)
        with pytest.raises(InvalidEventError, match=f"event refused: {name} "):
            validate.validate_event({**event, name: None})
    with pytest.raises(InvalidEventError, match="other is no member"):
        validate.validate_event({**event, "other": 1})


@pytest.mark.parametrize("event", [None, [], "x", 5, {}])
def test_what_is_no_event(event: object) -> None:
    """Anything but an object of one of the two types is refused."""
    with pytest.raises(InvalidEventError):
        validate.validate_event(event)


@pytest.mark.parametrize(
    ("event", "changes", "error", "found"),
    [
        (EPISODE, {"agentId": "\ufeff "}, ScopeError, "agentId"),
        (EPISODE, {"profileId": "a\u001fb"}, InvalidEventError, "profileId must not hold control"),
        (EPISODE, {"turnIndex": 2**53}, InvalidEventError, "turnIndex must be at most"),
        (EPISODE, {"turnIndex": 1e21}, InvalidEventError, "turnIndex must be at most"),
        (EPISODE, {"summary": "x" * 1_000_001}, InvalidEventError, "summary must not be longer"),
        (FACT, {"validUntil": "2026-08-18T02:00:00+02:00"}, InvalidEventError, "validUntil must be after"),
        (FACT, {"supersedesFactId": ""}, InvalidEventError, "supersedesFactId must be 64"),
        (EPISODE, {"eventId": "a" * 64}, ForgedIdError, f"eventId is {'a' * 64}, its content gives"),
        (EPISODE, {"userText": "other"}, ForgedIdError, "eventId"),
        (FACT, {"text": "other"}, ForgedIdError, "factId"),
    ],
)
def test_what_the_schema_cannot_say(event: Any, changes: Any, error: type[ClawmemError], found: str) -> None:
    """Blank scopes, unsafe integers, long texts, reversed times and forged ids do not enter a store."""
    changed = {**event, **changes}
    validate.validate_event(changed)
    with pytest.raises(error, match=found):
        validate.check_event(changed)


@pytest.mark.parametrize(
    ("event", "member"), [(EPISODE, "schemaVersion"), (EPISODE, "turnIndex"), (FACT, "confidence")]
)
@pytest.mark.parametrize("value", [True, False])
def test_booleans_are_no_numbers(event: dict[str, Any], member: str, value: bool) -> None:
    """Python's True is 1; JSON's is not."""
    assert not _accepted({**event, member: value})


def test_nul_and_lone_surrogates_are_text() -> None:
    """Any text is allowed in a body, and 100,000 units are no problem."""
    texts = {"userText": "a\0b\ud83d", "assistantText": "x" * 100_000}
    validate.check_event(identities.create_episode_event({**EPISODE, **texts}))


def test_labels() -> None:
    """The label follows from the type."""
    assert ("EPISODE", "MEMORY_FACT") == (validate.event_label(EPISODE), validate.event_label(FACT))
