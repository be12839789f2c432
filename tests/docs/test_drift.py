"""Generated pages are what the tables say, and every verb is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clawmem_cli import options
from clawmem_core import errors

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_current() -> None:
    """docs/cli.md and docs/errors.md."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/generate_docs.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("words", list(options.VERBS))
def test_every_verb_has_its_module_tests_and_schema(words: str) -> None:
    """One module, one test file, one document schema."""
    module = words.split(" ")[0].replace("-", "_")
    assert (ROOT / f"clawmem_cli/{module}.py").exists()
    assert (ROOT / f"tests/cli/test_{module}.py").exists()
    assert list((ROOT / "docs/schema").glob(f"{words.replace(' ', '-')}.*schema.json"))


def test_every_exit_code_of_an_error_is_documented() -> None:
    """In the table of docs/cli.md."""
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    for kind in errors.table():
        assert f"\n| {kind.exit} | " in page, kind.code
