"""The modules a one-shot save loads do not bring slow ones with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOT = ("audit", "canonical", "digest", "event_row", "identities", "lifecycle", "scope", "validate")
SLOW = (
    "argparse", "array", "base64", "collections", "contextlib", "cryptography", "dataclasses", "datetime", "enum",
    "functools", "h5py", "hashlib", "inspect", "json", "logging", "numpy", "pathlib", "re", "shutil", "subprocess",
    "tempfile", "typer", "typing",
)  # fmt: skip


def test_hot_modules_stay_light() -> None:
    """Importing and using them on an event loads none of the modules that cost start-up time."""
    imports = "\n".join(f"import clawmem_core.contract.{name}" for name in HOT)
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
{imports}
from clawmem_core.contract import canonical, identities, validate
from clawmem_core.strict_json import parse_json
event = parse_json('{{"turnIndex": 1, "userText": "\\\\u00e9"}}', refuse_duplicates=True)
identities.create_episode_event(event)
canonical.canonical_ascii(event)
print(sorted(set({SLOW!r}) & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("[]\n", "")
