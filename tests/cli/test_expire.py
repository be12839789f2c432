"""clawmem expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import fact

__all__ = ["commands"]


def test_expire(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """It held until then, and may be said again."""
    id = commands("save", stdin=fact("tea")).document["id"]
    answer = commands("expire", "--scope", commands.own, "--fact", id, "--at", "2026-02-01T00:00:00Z")
    conforms("expire", answer.document)
    assert "2026-02-01T00:00:00Z" == answer.document["valid_until"]
    search = ("search", "--query", "tea", "--scope", commands.own)
    assert [] == commands(*search).document
    assert [0] == [hit["index"] for hit in commands(*search, "--as-of", "2026-01-15T00:00:00Z").document]
    assert [] == commands(*search, "--as-of", "2026-02-01T00:00:00Z").document
    assert "saved" == commands("save", stdin=fact("tea", sourceEventId="t2")).document["status"]
    assert 2 == commands("expire", "--scope", commands.own, "--fact", id, "--at", "yesterday").code
