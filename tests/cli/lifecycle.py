"""Running the command inside the test's own process, for tables of many commands over events."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from clawmem_cli.entry import run
from tests.cli.conftest import STEERING, Answer
from tests.core.contract.events import SCOPE, make_store


class Commands:
    """`commands(*words, stdin=...)` runs one over the store `path`; `scope(name, fields)` makes a scope file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = make_store(folder)
        self.own = self.scope("own", SCOPE)

    def scope(self, name: str, fields: dict[str, Any]) -> str:
        file = self.folder.parent / f"{self.folder.name}-{name}.json"
        file.write_text(json.dumps(fields), encoding="utf-8")
        return str(file)

    def __call__(self, *words: str | Path, stdin: Any = b"") -> Answer:
        data = stdin if isinstance(stdin, bytes) else stdin.encode() if isinstance(stdin, str) else _lines(stdin)
        return in_process("--path", self.path, *words, stdin=data)


def _lines(objects: Any) -> bytes:
    """One object, or several one a line, as JSON."""
    return b"\n".join(json.dumps(one).encode() for one in (objects if isinstance(objects, list) else [objects]))


def in_process(*words: str | Path, stdin: bytes = b"") -> Answer:
    """One command line with files as its standard streams."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        saved = [os.dup(number) for number in range(3)]
        try:
            for number, file in enumerate((given, out, err)):
                os.dup2(file.fileno(), number)
            code = run([str(word) for word in words])
        finally:
            for number, fd in enumerate(saved):
                os.dup2(fd, number)
                os.close(fd)
        for file in (out, err):
            file.seek(0)
        return Answer(subprocess.CompletedProcess(words, code, out.read(), err.read()))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands over a new store in an empty folder."""
    for name in list(os.environ):
        if name.startswith(STEERING):
            monkeypatch.delenv(name)
    folder = tmp_path / "store"
    folder.mkdir()
    return Commands(folder)
