"""clawmem scope: the salt, and decisions that are scope files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lifecycle import Commands, commands, in_process
from tests.core.contract.events import fact

__all__ = ["commands"]
FACTS = {"agentId": "a", "profileId": "p", "sessionKey": "s", "chatType": "local", "sandboxed": False,
         "agentContext": "primary", "localScopeId": "ann"}  # fmt: skip


def salt(folder: Path) -> str:
    answer = in_process("scope", "init", "--out", folder / "salt")
    assert 0 == answer.code, answer
    return str(folder / "salt")


def test_init_makes_a_private_file_once(tmp_path: Path, conforms: Callable[[str, Any], None]) -> None:
    """64 hexadecimal digits, mode 0600, never replaced."""
    answer = in_process("scope", "init", "--out", tmp_path / "salt")
    conforms("scope-init", answer.document)
    file = tmp_path / "salt"
    assert (65, 0o600) == (len(file.read_bytes()), file.stat().st_mode & 0o777)
    before = file.read_bytes()
    assert 15 == in_process("scope", "init", "--out", file).code
    assert before == file.read_bytes()


def test_a_decision_is_a_scope_file(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """What derive prints is taken by --scope; a denial is not, though it is an answer."""
    file = salt(commands.folder.parent)
    answer = in_process("scope", "derive", "--salt", file, stdin=json.dumps(FACTS).encode())
    conforms("scope-derive", answer.document)
    derived = commands.folder.parent / "derived.json"
    derived.write_bytes(answer.out)
    event = fact("zebra", **answer.document["scope"])
    assert 0 == commands("save", "--scope", derived, stdin=event).code
    assert [0] == [hit["index"] for hit in commands("search", "--query", "zebra", "--scope", derived).document]
    denied = in_process("scope", "derive", "--salt", file, stdin=json.dumps({**FACTS, "sandboxed": True}).encode())
    assert (0, False, "sandboxed", None) == (
        denied.code, denied.document["read"], denied.document["reason"], denied.document["scope"],
    )  # fmt: skip
    conforms("scope-derive", denied.document)
    derived.write_bytes(denied.out)
    assert 2 == commands("search", "--query", "zebra", "--scope", derived).code
    digits = (commands.folder.parent / "salt").read_bytes()[:64]
    assert not any(digits in file.read_bytes() for file in commands.folder.iterdir())


def test_other_salt_other_scope(tmp_path: Path) -> None:
    """Hashes of two deployments tell nothing about each other."""
    hashes = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        context = folder / "context.json"
        context.write_text(json.dumps(FACTS), encoding="utf-8")
        answer = in_process("scope", "derive", "--salt", salt(folder), "--context", context)
        hashes.append(answer.document["scope"]["participantScopeHash"])
    unsalted = in_process("scope", "derive", "--no-salt", "--context", context)
    assert 3 == len({*hashes, unsalted.document["scope"]["participantScopeHash"]})


@pytest.mark.parametrize(
    "words",
    [
        ("init",), ("derive",), ("derive", "--salt", "missing"), ("derive", "--no-salt", "--salt", "x"),
        ("derive", "--no-salt", "--context", "missing"),
    ],
)  # fmt: skip
def test_bad_command_lines(words: tuple[str, ...]) -> None:
    """Nothing is guessed."""
    assert in_process("scope", *words, stdin=json.dumps(FACTS).encode()).code in (2, 4)


def test_a_salt_others_can_read_is_refused(tmp_path: Path) -> None:
    """With the way to mend it."""
    file = salt(tmp_path)
    Path(file).chmod(0o644)
    assert 2 == in_process("scope", "derive", "--salt", file, stdin=json.dumps(FACTS).encode()).code
