"""The format page lists every finding code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_code_is_documented_and_exists() -> None:
    """Codes in the source and on the page are the same."""
    source = "".join(path.read_text() for path in (ROOT / "clawmem_core" / "integrity").glob("*.py"))
    found = set(re.findall(r'findings\.add\(\s*"([a-z-]+)"', source))
    found |= {f"note-{word}" for word in ("rewritten", "rolled-back", "other-store")}
    found |= set(re.findall(r'"((?:record|log|sessions|graph|events|audit|data|settings|index)-[a-z-]+)"', source))
    page = (ROOT / "docs" / "format.md").read_text().partition("**Findings** of `verify`.")[2].partition("\n\n")[0]
    listed = set(re.findall(r"\b(?:[a-z]+-[a-z-]+|unsigned|link)\b", page.partition("(of another")[0]))
    assert listed == found
