"""README and guides: every example runs as it stands, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STEERING = ("CLAWMEM", "CLAWHDF5", "PYTHON")


def blocks(page: Path, kind: str) -> list[str]:
    """Fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, str]:
    """An environment in which the commands of the tree under test are on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, package in (("clawmem", "clawmem_cli"), ("clawmem-migrate", "clawmem_migrate")):
        start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {package}.entry import main; sys.exit(main())"
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    return {**kept, "PATH": f"{folder}{os.pathsep}{kept.get('PATH', os.defpath)}", "LANG": "C.UTF-8"}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=lambda page: page.name)
def test_console_examples(page: Path, commands: dict[str, str], tmp_path: Path) -> None:
    """The `$` lines of a page's console blocks, run one after the other in an empty folder, all succeed."""
    lines = [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    folder = tmp_path / "work"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder, env=commands, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout[-600:] + done.stderr[-600:]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.stem != "verify-by-hand"],
    ids=lambda page: page.name,
)
def test_python_examples(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run in an empty folder (verify-by-hand has a test of its own)."""
    for block in blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr[-600:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    """Relative links lead to files of the repository."""
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert [] == missing
