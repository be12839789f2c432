"""Running the command as a process, from the tree under test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from clawmem_cli.entry import main; sys.exit(main())"
STEERING = ("CLAWMEM", "CLAWHDF5", "PYTHON", "LC_", "LANG")


class Answer:
    """What one run gave back."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON documents on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def _notes(self, kind: str) -> list[Any]:
        found = [json.loads(line) for line in self.err.splitlines()]
        return [note[kind] for note in found if kind in note]

    @property
    def error(self) -> dict[str, Any]:
        """The one error line on stderr."""
        (found,) = self._notes("error")
        return dict(found)

    @property
    def warnings(self) -> list[Any]:
        return self._notes("warning")

    @property
    def summaries(self) -> list[Any]:
        return self._notes("summary")

    def __repr__(self) -> str:
        return f"exit {self.code}, stdout {self.out[:300]!r}, stderr {self.err[:300]!r}"


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without what steers the command or Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    return {**kept, "LANG": "C.UTF-8", **extra}


@pytest.fixture
def clawmem(tmp_path: Path) -> Callable[..., Answer]:
    """`clawmem(*words, stdin=None, env=None)` runs the command in an empty folder; stdin is empty unless given."""

    def run(*words: str | bytes | Path, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Answer:
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        return Answer(
            subprocess.run(
                [sys.executable, "-c", START, *map(os.fsencode, words)],
                input=data,
                capture_output=True,
                env=environment(**(env or {})),
                cwd=tmp_path,
                timeout=60,
            )
        )

    return run


@pytest.fixture
def store(clawmem: Callable[..., Answer], tmp_path: Path) -> Callable[..., Answer]:
    """`clawmem` with the path of a new store of dimension 4 before the words."""
    path = tmp_path / "m.h5"
    made = clawmem("--path", path, "create", "--dim", "4")
    assert made.code == 0, made
    return lambda *words, **how: clawmem("--path", path, *words, **how)


SCHEMAS = ROOT / "docs/schema"


@pytest.fixture
def conforms() -> Callable[[str, Any], None]:
    """`conforms(name, document)`: the document obeys docs/schema/<name>.schema.json and has no key it does not list."""

    def check(name: str, document: Any) -> None:
        schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(closed(schema)).validate(document)

    return check


def closed(schema: Any) -> Any:
    """The schema with every object that lists its properties closed to others: users may meet new keys, tests not."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: closed(part) for name, part in schema.items()}
    return (
        {"additionalProperties": False, **parts} if schema.get("type") == "object" and "properties" in schema else parts
    )
