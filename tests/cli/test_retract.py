"""clawmem retract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import fact

__all__ = ["commands"]


def test_retract(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Out of every read, held when it comes again; with an end to it, not any more then."""
    id = commands("save", stdin=fact("tea")).document["id"]
    words = ("retract", "--scope", commands.own, "--fact", id, "--reason", "never said")
    answer = commands(*words, "--rejected-until", "2020-01-01T00:00:00Z")
    conforms("retract", answer.document)
    assert [] == commands("search", "--query", "tea", "--scope", commands.own).document
    assert 15 == commands(*words).code
    again = commands("save", stdin=fact("tea", sourceEventId="t2"))
    assert (0, "saved") == (again.code, again.document["status"])
    assert 0 == commands("retract", "--scope", commands.own, "--fact", again.document["id"]).code
    held = commands("save", stdin=fact("tea", sourceEventId="t3"))
    assert (16, "pending") == (held.code, held.document["status"])
    stream = commands("save", "--ndjson", stdin=[fact("tea", sourceEventId="t4"), fact("milk")])
    assert (16, ["pending", "saved"]) == (stream.code, [line["status"] for line in stream.lines])
