"""clawmem purge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import fact

__all__ = ["commands"]


def test_purge(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """A plan, refused once the store has changed, then executed."""
    id = commands("save", stdin=fact("purple elephant")).document["id"]
    commands("save", stdin={"chunk": "purple elephant too", "session_id": "s"})
    words = ("purge", "--event", id, "--session", "s")
    plan = commands(*words)
    conforms("purge", plan.document)
    assert ([id], [0, 1]) == (plan.document["events"], plan.document["records"])
    commands("save", stdin={"chunk": "stays"})
    refused = commands(*words, "--confirm", plan.document["digest"])
    assert (15, "conflict") == (refused.code, refused.error["code"])
    done = commands(*words, "--confirm", commands(*words).document["digest"])
    assert (0, "purged") == (done.code, done.document["status"])
    conforms("purge", done.document)
    assert not any(b"elephant" in file.read_bytes() for file in commands.folder.iterdir())
    assert [2] == [record["index"] for record in commands("export").lines]


def test_bad_command_lines(commands: Commands) -> None:
    """Nothing named, nothing there."""
    assert 2 == commands("purge").code
    assert 4 == commands("purge", "--record", "9").code
    assert 4 == commands("purge", "--event", "0" * 64).code
