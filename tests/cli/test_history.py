"""clawmem history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import OTHER_SCOPES, checkpoint, fact

__all__ = ["commands"]


def test_history(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Both versions and both links, from log and file; no other scope's, no unknown one."""
    old = commands("save", stdin=fact("tea")).document["id"]
    new = commands("replace", "--scope", commands.own, "--fact", old, "--text", "coffee").document["id"]
    for _ in range(2):
        answer = commands("history", "--scope", commands.own, "--fact", old)
        assert (old, ["active", "superseded"]) == (
            answer.document["fact"], [one["status"] for one in answer.document["versions"]],
        )  # fmt: skip
        assert new == answer.document["versions"][1]["superseded_by"]
        (first,) = commands("history", "--scope", commands.own, "--fact", new).document["versions"]
        assert old == first["supersedes"]
        for version in answer.document["versions"]:
            version["event"] = {}
        conforms("history", answer.document)
        checkpoint(commands.path)
    other = commands.scope("other", OTHER_SCOPES["agentId"])
    refused = commands("history", "--scope", other, "--fact", old)
    assert (4, f"no fact {old}") == (refused.code, refused.error["message"])
    assert 2 == commands("history", "--scope", commands.own).code
    assert 2 == commands("history", "--fact", old).code
