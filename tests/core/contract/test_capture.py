"""Capture: which pair, what is cut, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawmem_core.contract import capture, render
from clawmem_core.contract.redaction import load_rules
from clawmem_core.contract.validate import SECRET_MEMBERS
from clawmem_core.errors import InvalidEventError, InvalidInputError, ScopeError

VECTORS = [
    vector
    for line in (Path(__file__).parents[2] / "vectors" / "openclaw.jsonl").read_text("ascii").splitlines()
    if (vector := json.loads(line))["fn"] == "ocLatestPair"
]
SCOPE = {
    "agentId": "main",
    "profileId": "default",
    "privacyScope": "private",
    "participantScopeHash": "a" * 64,
    "sandboxEligible": False,
}
METADATA = {
    "runtime": "openclaw",
    "externalSessionId": "s-1",
    "sourceEventId": "e-1",
    "turnIndex": 0,
    "conversationKind": "direct",
    "observedAt": "2026-08-18T00:00:00Z",
    "provenance": "test",
}


def _say(*turns: str) -> list[dict[str, Any]]:
    """Messages from "u:text", "a:text", "t:" (tool result) and "c:" (assistant that only calls a tool)."""
    made = {"u": "user", "a": "assistant", "t": "tool", "s": "system"}
    call = {"role": "assistant", "content": [{"type": "toolCall"}]}
    return [call if turn == "c:" else {"role": made[turn[0]], "content": turn[2:]} for turn in turns]


def _capture(messages: list[Any], **options: Any) -> capture.Capture:
    metadata = {**METADATA, **options.pop("metadata", {})}
    return capture.capture_episode(messages, scope=options.pop("scope", SCOPE), metadata=metadata, **options)


# Where we differ from the ancestor on purpose: an unanswered message, and all of the assistant's text.
FIXED: dict[str, Any] = {
    "x-ocLatestPair-005": "unanswered",
    "x-ocLatestPair-006": {"userText": "q", "assistantText": "p1\np2"},
}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_openclaw_transcripts(vector: dict[str, Any]) -> None:
    """The ancestor's transcripts give the ancestor's pairs, apart from its defects."""
    expected = FIXED.get(vector["id"], vector["expected"])
    found = capture.latest_pair(vector["input"])
    if isinstance(expected, dict):
        assert capture.Pair(expected["userText"], expected["assistantText"]) == found
    else:
        assert found in capture.SKIP_REASONS
        assert expected in (None, found)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (["u:q", "a:x"], ("q", "x")),
        (["u:q", "a:x", "s:note"], ("q", "x")),
        (["u:q", "a:x", "c:", "t:", "a:y"], ("q", "x\ny")),
        (["u:q1", "u:q2", "a:x"], ("q2", "x")),
        (["u:q", "a:x", "u:q2"], "unanswered"),
        (["u:q", "a:x", "u:q2", "s:note"], "unanswered"),
        (["u:q", "a:x", "u:q2", "c:"], "no-text"),
        (["u:q", "a:x", "c:"], "incomplete-turn"),
        (["u:q", "a:x", "c:", "t:"], "incomplete-turn"),
        (["u:q", "t:"], "incomplete-turn"),
        (["u: ", "a:x"], "no-text"),
        (["a:x"], "no-user-message"),
        ([], "no-user-message"),
    ],
)
def test_pairs(turns: list[str], expected: Any) -> None:
    """The turn that ends the transcript, complete or not at all; never an earlier one."""
    assert (capture.Pair(*expected) if isinstance(expected, tuple) else expected) == capture.latest_pair(_say(*turns))


@pytest.mark.parametrize("role", ["system", "developer", "User", "ASSISTANT", "", None, 5, ["user"]])
def test_roles_are_an_allow_list(role: Any) -> None:
    """Other roles are not read, however they are spelled."""
    messages = [*_say("u:q", "a:x"), {"role": role, "content": "SECRET-ROLE"}]
    assert capture.latest_pair(messages) == capture.Pair("q", "x")


def test_the_episode() -> None:
    """A valid event with its own id, defaults filled in, both sides in the summary."""
    captured = _capture(_say("u:What is tea?", "a:A drink."))
    assert captured.event is not None
    assert ("", {}) == (captured.skipped, captured.redacted)
    assert captured.event["summary"] == "User: What is tea?\nAssistant: A drink."
    assert ("mixed", "participant", "conversation") == (
        captured.event["trustClass"],
        captured.event["visibility"],
        captured.event["originClass"],
    )
    assert captured.event["eventId"] == _capture(_say("u:What is tea?", "a:A drink.")).event["eventId"]  # type: ignore[index]


def test_skips() -> None:
    """A failed turn and a turn without a pair give the reason and no event."""
    assert _capture(_say("u:q", "a:x"), success=False) == capture.Capture(None, "failed-turn", {})
    assert _capture(_say("u:q")) == capture.Capture(None, "unanswered", {})


def test_redaction_is_before_bounding_and_identity() -> None:
    """A secret across the cut leaves no half behind; the id and the summary are over the redacted text."""
    key = "AKIAIOSFODNN7EXAMPLE"
    text = "x" * 5_986 + " " + key + " tail"
    captured = _capture(_say(f"u:{text}", f"a:it is {key[:4]}\0{key[4:]}"))
    assert captured.event is not None
    assert captured.redacted == {"aws": 2}
    assert "AKIA" not in json.dumps(captured.event)
    assert captured.event["userText"].endswith("[redacted:aws\u2026")
    assert captured.event["assistantText"] == "it is [redacted:aws]"
    again = _capture(_say(f"u:{captured.event['userText']}", f"a:{captured.event['assistantText']}"))
    assert again.event is not None
    assert captured.event["assistantText"] == again.event["assistantText"]


def test_own_rules() -> None:
    """A rules file's patterns apply to the texts and to the names."""
    rules = load_rules("[[pattern]]\nclass='acme'\ndescription=''\nexpression='acme_[0-9]+'")
    captured = _capture(_say("u:use acme_1", "a:ok"), redactor=rules)
    assert captured.event is not None
    assert captured.event["userText"] == "use [redacted:acme]"
    with pytest.raises(InvalidInputError, match=r"provenance: .*\(acme\)"):
        _capture(_say("u:q", "a:x"), redactor=rules, metadata={"provenance": "acme_2"})


@pytest.mark.parametrize("name", SECRET_MEMBERS["episode"])
def test_secrets_in_names_are_refused(name: str) -> None:
    """A member that names things cannot be redacted, so a secret in it is refused, without repeating it."""
    with pytest.raises(InvalidInputError) as caught:
        _capture(_say("u:q", "a:x"), metadata={name: "AKIAIOSFODNN7EXAMPLE"})
    assert name in caught.value.message
    assert "AKIA" not in caught.value.message


def test_bad_metadata_and_scope() -> None:
    """Unknown or wrong members and an incomplete scope are refused by name."""
    with pytest.raises(InvalidInputError, match="agentId"):
        _capture(_say("u:q", "a:x"), metadata={"agentId": "other"})
    with pytest.raises(InvalidEventError, match="turnIndex"):
        _capture(_say("u:q", "a:x"), metadata={"turnIndex": -1})
    with pytest.raises(ScopeError):
        _capture(_say("u:q", "a:x"), scope={**SCOPE, "privacyScope": None})


# ---------------------------------------------------------------- echo

MEMORIES = [
    {
        "label": "EPISODE",
        "text": "first\nmemory",
        "score": 0.9,
        "id": "a" * 64,
        "trustClass": "mixed",
        "provenance": "x;]",
    },
    {"label": "MEMORY_FACT", "text": "second", "score": 0.8},
]
BLOCKS = [render.format_recalled_memories(MEMORIES), render.format_fenced_memories(MEMORIES, fence="f00d")]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    "change",
    [
        lambda block: block,
        lambda block: "> " + block.replace("\n", "\n> "),
        lambda block: block.replace("\n", "\r\n"),
        lambda block: block[: block.index("second")],
        lambda block: block.partition("\n\n")[2],
        lambda block: block + "\n\n" + block,
    ],
)
def test_own_blocks_are_cut(block: str, change: Any) -> None:
    """Our block is cut, whole, quoted, shortened, without its heading or twice; the words around stay."""
    assert capture.cut_echo(f"before\n\n{change(block)}\n\nafter").split() == ["before", "after"]


def test_other_text_is_not_cut() -> None:
    """Brackets, quotes and blank lines of ordinary text stay."""
    text = '[Memory lane]\n"quoted"\n\n[1] a note; source=book\n"x"'
    assert text == capture.cut_echo(text)


def test_memory_does_not_feed_itself() -> None:
    """Recall, paste, capture, five times: the text neither grows nor nests."""
    text, seen = "What is tea?", []
    for _ in range(5):
        captured = _capture(_say(f"u:{text}", "a:A drink."))
        assert captured.event is not None
        seen.append(captured.event["eventId"])
        memory = {"label": "EPISODE", "text": captured.event["summary"], "score": 0.9}
        text = f"{render.format_recalled_memories([memory])}\n\nWhat is tea?"
    assert len(set(seen)) == 1


def test_only_an_echo_is_no_pair() -> None:
    """A message that was nothing but our block is not stored."""
    assert _capture(_say(f"u:{BLOCKS[0]}", "a:ok")).skipped == "nothing-left"
