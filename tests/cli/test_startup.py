"""What a one-shot command may load: counted, not timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawmem_core.writer import Writer
from tests.cli.conftest import ROOT, Answer, environment
from tests.core.contract.events import fact

HEAVY = {"numpy", "h5py", "typer", "rich", "cryptography", "json", "re", "orjson", "dataclasses", "typing", "enum",
         "collections", "pathlib", "hashlib", "functools", "inspect", "contextlib", "logging", "datetime", "argparse",
         "subprocess", "tempfile", "shutil", "array", "base64", "hnswlib"}  # fmt: skip
LIST = f"""
import sys
before = set(sys.modules)
sys.path.insert(0, {str(ROOT)!r})
from clawmem_cli.entry import run
code = run(sys.argv[1:])
print(sorted(name for name in set(sys.modules) - before if "." not in name), file=sys.stderr)
sys.exit(code)
"""


def loaded(path: Path, *words: str, stdin: str = "") -> set[str]:
    """The top-level modules that a command loads beyond the interpreter's own."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LIST, "--path", os.fspath(path), *words],
        input=stdin, capture_output=True, text=True, env=environment(PYTHONPATH=os.pathsep.join(sys.path)), timeout=60,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1].replace("'", '"')))


@pytest.fixture
def checkpointed(store: Callable[..., Answer], tmp_path: Path) -> Path:
    """A store with checkpointed and pending records."""
    store("save", "--ndjson", stdin='{"chunk":"some words here","embedding":[1,2,3,4],"session_id":"s"}\n' * 30)
    store("flush-wal")
    store("save", stdin='{"chunk":"pending words","embedding":[1,2,3,5],"key":"k"}')
    return tmp_path / "m.h5"


def test_save_loads_nothing_heavy(checkpointed: Path) -> None:
    """With a JSON vector; with a key."""
    record = '{"chunk":"x","embedding":[1,2,3,4]}'
    assert set() == HEAVY & loaded(checkpointed, "save", stdin=record)
    assert set() == HEAVY & loaded(checkpointed, "save", "--key", "k", stdin=record)


def test_save_of_an_event_loads_nothing_heavy(checkpointed: Path) -> None:
    """New, and known from the key table."""
    event = json.dumps(fact())
    assert set() == HEAVY & loaded(checkpointed, "save", stdin=event)
    with Writer.open(checkpointed) as writer:
        writer.checkpoint()
    assert set() == HEAVY & loaded(checkpointed, "save", stdin=event)


@pytest.mark.parametrize("words", [["recall", "3"], ["recall", "30"], ["stats"], ["agents-md"]], ids=" ".join)
def test_small_reading_verbs_load_nothing_heavy(checkpointed: Path, words: list[str]) -> None:
    """From the checkpoint and from the log."""
    assert set() == HEAVY & loaded(checkpointed, *words)


@pytest.mark.parametrize("words", [["--query", "words"], ["--embedding", "[1,2,3,4]"]], ids=lambda words: words[0])
def test_search_loads_neither_h5py_nor_typer(checkpointed: Path, words: list[str]) -> None:
    """Nor numpy, where simsimd is there."""
    try:
        import simsimd  # noqa: F401
    except ImportError:
        allowed = HEAVY - {"h5py", "typer", "rich", "cryptography", "hnswlib"}
    else:
        allowed = set()
    assert set() == (HEAVY - allowed) & loaded(checkpointed, "search", *words)


def test_export_loads_no_hdf5(checkpointed: Path) -> None:
    """The index carries what it prints."""
    assert set() == {"h5py", "numpy", "rich", "cryptography"} & loaded(checkpointed, "export")


def test_a_verb_on_typers_path_never_loads_rich(checkpointed: Path) -> None:
    """Nor does help."""
    assert "rich" not in loaded(checkpointed, "tick")
    assert "rich" not in loaded(checkpointed, "--help")


def test_a_checkpoint_and_a_verification_load_no_typer(
    checkpointed: Path, store: Callable[..., Answer], tmp_path: Path
) -> None:
    """HDF5 is all they wait for, and the key where there is one."""
    assert set() == {"typer", "rich", "cryptography"} & loaded(checkpointed, "flush-wal")
    key = tmp_path / "k.pem"
    public = store("keygen", "--out", str(key)).document["public_key"]
    assert set() == {"typer", "rich"} & loaded(checkpointed, "flush-wal", "--signing-key", str(key))
    assert set() == {"typer", "rich"} & loaded(checkpointed, "verify", "--public-key", public)
