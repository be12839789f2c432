"""clawmem outbox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.cli.test_capture import capture

__all__ = ["commands"]


def test_outbox(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Listed, drained, poison set aside with exit 3, retried."""
    listed = commands("outbox", "list").document
    assert {"waiting": [], "quarantined": []} == listed
    for number in range(3):
        capture(commands, "--async", source=f"t{number}")
    poison = Path(f"{commands.path}.outbox/note.json")
    poison.write_text("{", encoding="utf-8")
    listed = commands("outbox", "list").document
    conforms("outbox-list", listed)
    assert 4 == len(listed["waiting"])
    answer = commands("outbox", "drain", "--scope", commands.own)
    assert (3, 3, 0) == (answer.code, answer.document["saved"], answer.document["left"])
    conforms("outbox-drain", answer.document)
    conforms("outbox-list", commands("outbox", "list").document)
    again = commands("outbox", "retry")
    assert (3, ["note.json"]) == (again.code, again.document["released"])
    conforms("outbox-retry", again.document)
    assert 4 == commands("outbox", "retry", "--file", "other").code
    assert 0 == commands("outbox", "drain").code
    assert 3 == commands("stats").document["count"]
