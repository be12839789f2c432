"""clawmem capture."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from clawmem_core.writer import Writer
from tests.cli.lifecycle import Commands, commands

__all__ = ["commands"]
PAIR = [{"role": "user", "content": "green tea, password: hunter2hunter2"}, {"role": "assistant", "content": "noted"}]


def capture(commands: Commands, *words: str, source: str = "t1", transcript: Any = PAIR) -> Any:
    return commands(
        "capture", "--scope", commands.own, "--session", "s", "--source-event", source, *words,
        stdin=json.dumps(transcript),
    )  # fmt: skip


def test_capture(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """A turn from an array or an object; told again it exists; what is redacted is counted."""
    for transcript, status in ((PAIR, "saved"), ({"messages": PAIR}, "exists")):
        answer = capture(commands, transcript=transcript)
        assert (0, status, {"assign": 1}) == (answer.code, answer.document["status"], answer.document["redacted"])
        conforms("capture", answer.document)
    (hit,) = commands("search", "--query", "green tea", "--scope", commands.own).document
    assert "hunter2" not in hit["chunk"]
    assert 15 == capture(commands, transcript=[PAIR[0], {"role": "assistant", "content": "other"}]).code


def test_skipped_and_failed_turns(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Exit 0 with a reason."""
    for words, transcript, reason in ((("--failed",), PAIR, "failed-turn"), ((), PAIR[:1], "unanswered")):
        answer = capture(commands, *words, transcript=transcript)
        assert (0, "skipped", reason) == (answer.code, answer.document["status"], answer.document["reason"])
        conforms("capture", answer.document)


def test_a_locked_store_queues(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Exit 0; so does --async without waiting."""
    with Writer.open(commands.path, 0.0, "other"):
        answer = capture(commands, "--lock-timeout", "0")
    assert (0, "queued") == (answer.code, answer.document["status"])
    conforms("capture", answer.document)
    later = capture(commands, "--async", source="t2").document
    assert ("queued", 1) == (later["status"], later["turnIndex"])
    assert 2 == commands("outbox", "drain").document["saved"]


def test_options_become_members(commands: Commands) -> None:
    """Each where it belongs."""
    capture(
        commands, "--runtime", "hermes", "--kind", "direct", "--visibility", "profile", "--trust", "trusted",
        "--origin", "o", "--provenance", "p", "--observed-at", "1970-01-01T00:01:00Z", "--channel-id-hash", "1" * 64,
    )  # fmt: skip
    event = commands("recall", "0", "--scope", commands.own).document["event"]
    expected = {
        "runtime": "hermes", "conversationKind": "direct", "visibility": "profile", "trustClass": "trusted",
        "originClass": "o", "provenance": "p", "observedAt": "1970-01-01T00:01:00Z", "channelIdHash": "1" * 64,
        "externalSessionId": "s", "sourceEventId": "t1", "turnIndex": 0,
    }  # fmt: skip
    assert expected == {name: event[name] for name in expected}


def test_more_rules(commands: Commands) -> None:
    """From a file; a bad one is refused."""
    rules = commands.folder.parent / "rules.toml"
    rules.write_text('[[pattern]]\nclass = "acme"\ndescription = "d"\nexpression = "acme_[0-9]{8}"\n', encoding="utf-8")
    turn = [{"role": "user", "content": "ticket acme_12345678"}, {"role": "assistant", "content": "ok"}]
    assert {"acme": 1} == capture(commands, "--redaction-rules", str(rules), transcript=turn).document["redacted"]
    rules.write_bytes(b"\xff")
    assert 2 == capture(commands, "--redaction-rules", str(rules)).code


@pytest.mark.parametrize("stdin", ["", "{}", '"text"', '{"messages":1}', "[1"])
def test_bad_transcripts(commands: Commands, stdin: str) -> None:
    """Exit 2, nothing stored."""
    assert 2 == commands("capture", "--scope", commands.own, "--session", "s", stdin=stdin).code
    assert 0 == commands("stats").document["count"]


def test_secrets_in_names_are_refused(commands: Commands) -> None:
    """By class, without the value."""
    secret = "ghp_" + "a1B2" * 10
    answer = capture(commands, source=secret)
    assert 2 == answer.code and secret not in answer.error["message"], answer
