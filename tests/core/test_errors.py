"""The table of errors."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import clawmem_core
from clawmem_core import errors

ROOT = Path(clawmem_core.__file__).parent.parent


def test_every_error_is_raised_with_what_its_message_names() -> None:
    """A field of the template that a raise forgets would be a fault of the program where an error was meant."""
    seen, forgotten = 0, []
    for file in sorted(
        path for name in ("clawmem_core", "clawmem_cli", "clawmem_migrate") for path in (ROOT / name).rglob("*.py")
    ):
        for call in ast.walk(ast.parse(file.read_bytes())):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            kind = getattr(errors, name, None)
            if not (isinstance(kind, type) and issubclass(kind, errors.ClawmemError)):
                continue
            given = {keyword.arg for keyword in call.keywords}
            wanted = {field for _, field, _, _ in string.Formatter().parse(kind.template) if field}
            seen += 1
            if None not in given and not wanted <= given:  # None: **fields
                forgotten.append(f"{file.relative_to(ROOT)}:{call.lineno} {name} without {sorted(wanted - given)}")
    assert seen > 100
    assert [] == forgotten
