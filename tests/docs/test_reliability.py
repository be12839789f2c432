"""docs/reliability.md names tests that exist, and every serious defect of the ancestor that concerns what is built."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = json.loads((ROOT / "docs/reliability.json").read_text(encoding="utf-8"))

#: defects of severity H or M
_SERIOUS = (
    "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A14 B1 B2 B3 B4 B5 B6 B7 B8 B10 B11 B14 "
    "C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11 C12 C13 C14 C15 C19 C21 D1 D2 D3 D4 D5 E1 E2 E3 E4 E6 "
    "F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 F11 F12 F14 F15 F16 F19 F21 F22 F23 F27 F28 "
    "G1 G2 G3 G4 G5 G7 G8 G9 G10 G12 G13 G15 G16 G17 G18 G19 G20 H1 H2 H3 H4 H5 H11 "
    "M1 M2 M3 M4 M5 M6 M7 M8 M11"
)


@cache
def names_in(file: str) -> set[str]:
    """Names of the tests of a file: functions, and names given to test cases."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def test_every_named_test_exists() -> None:
    """None was renamed or removed."""
    named = [test for promise in DATA["promises"] for test in promise["tests"]]
    named += [row["test"] for row in DATA["defects"].values()]
    missing = []
    for test in named:
        file, _, name = test.partition("::")
        if not (ROOT / file).exists() or name not in names_in(file):
            missing.append(test)
    assert [] == missing


def test_every_serious_defect_has_a_test() -> None:
    """Or concerns something that is not built."""
    assert set(_SERIOUS.split()) == DATA["defects"].keys() | DATA["not_built"].keys()
    assert not DATA["defects"].keys() & DATA["not_built"].keys()


def test_the_page_is_current() -> None:
    """It was generated from the data."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/generate_reliability.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (0, "") == (done.returncode, done.stderr)
