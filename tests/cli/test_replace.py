"""clawmem replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import fact

__all__ = ["commands"]


def test_replace(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """By text, by --json, on stdin; the answer names what gave way."""
    id = commands("save", stdin=fact("tea")).document["id"]
    for way in (("--text", "coffee"), ("--json", '{"text":"water","confidence":0.1}'), ()):
        answer = commands("replace", "--scope", commands.own, "--fact", id, *way, stdin='{"text":"milk"}')
        conforms("replace", answer.document)
        assert ("replaced", [id], 0) == (answer.document["status"], answer.document["superseded"], answer.code)
        id = answer.document["id"]
    found = commands("search", "--query", "tea coffee water milk", "--scope", commands.own).document
    assert ["milk"] == [hit["chunk"] for hit in found]


def test_a_rejected_value_is_held(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Exit 16 after the answer; with the override it is replaced at once."""
    old = commands("save", stdin=fact("tea")).document["id"]
    new = commands("replace", "--scope", commands.own, "--fact", old, "--text", "coffee").document["id"]
    words = ("replace", "--scope", commands.own, "--fact", new, "--json", '{"text":"tea","sourceEventId":"t2"}')
    held = commands(*words)
    assert (16, "pending", "held") == (held.code, held.document["status"], held.error["code"])
    conforms("replace", held.document)
    words = (*words[:-1], '{"text":"tea","sourceEventId":"t3"}')
    answer = commands(*words, "--override-tombstone", "it was right")
    assert (0, "replaced", [new]) == (answer.code, answer.document["status"], answer.document["superseded"])


def test_errors(commands: Commands) -> None:
    """No scope, no fact, no text, both texts, no such fact, a second replacement."""
    id = commands("save", stdin=fact("tea")).document["id"]
    own = ("--scope", commands.own)
    assert 2 == commands("replace", "--fact", id, "--text", "x").code
    assert 2 == commands("replace", *own, "--text", "x").code
    assert 2 == commands("replace", *own, "--fact", id, stdin="{}").code
    assert 2 == commands("replace", *own, "--fact", id, "--text", "x", "--json", "{}").code
    assert 2 == commands("replace", *own, "--fact", "xyz", "--text", "x").code
    assert 4 == commands("replace", *own, "--fact", "0" * 64, "--text", "x").code
    assert 0 == commands("replace", *own, "--fact", id, "--text", "x").code
    assert 15 == commands("replace", *own, "--fact", id, "--text", "y").code
