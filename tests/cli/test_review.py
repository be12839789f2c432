"""clawmem review."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import fact

__all__ = ["commands"]


def test_review(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Listed, refused to its proposer, approved and rejected by another."""
    own = ("--scope", commands.own)
    id = commands("save", stdin=fact("tea")).document["id"]
    commands("retract", *own, "--fact", id)
    held = [
        commands("save", "--actor", "eve", stdin=fact("tea", sourceEventId=f"t{n}")).document["id"] for n in (2, 3)
    ]  # fmt: skip
    listed = commands("review", "list", *own).document
    conforms("review-list", listed)
    assert held == [item["id"] for item in listed]
    refused = commands("review", "approve", *own, "--fact", held[0], "--actor", "eve")
    assert (16, "self-review") == (refused.code, refused.error["code"])
    approved = commands("review", "approve", *own, "--fact", held[0], "--actor", "bob")
    conforms("review-approve", approved.document)
    rejected = commands("review", "reject", *own, "--fact", held[1], "--actor", "bob", "--reason", "no")
    conforms("review-reject", rejected.document)
    assert [] == commands("review", "list", *own).document
    assert [held[0]] == [hit["id"] for hit in commands("search", "--query", "tea", *own).document]
    assert 15 == commands("review", "reject", *own, "--fact", held[1], "--actor", "bob").code
