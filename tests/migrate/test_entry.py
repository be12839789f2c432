"""The command line: usage errors, help, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawmem_core.errors import UsageError
from clawmem_migrate import options

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--sqlite a.db",
        "--hdf5 m.h5",
        "--sqlite a.db --clawhdf5 b.h5 --hdf5 m.h5",
        "--sqlite a.db --hdf5 m.h5 --f32 --float16",
        "--sqlite a.db --hdf5 m.h5 --mapping nope",
        "--sqlite a.db --hdf5 m.h5 --mapping llm --map f",
        "--sqlite a.db --hdf5 m.h5 --embedding-dim 0",
        "--sqlite a.db --hdf5 m.h5 --embedding-dim x",
        "--sqlite a.db --hdf5 m.h5 --lock-timeout nan",
        "--sqlite a.db --hdf5 m.h5 --check --incremental",
        "--sqlite a.db --hdf5 m.h5 --valid",
        "--sqlite a.db --hdf5 m.h5 extra",
        "--clawhdf5 a.h5 --hdf5 m.h5 --check",
    ],
)
def test_usage_errors(words):
    """What makes no sense is refused before anything is opened; options are never guessed from their beginning."""
    with pytest.raises(UsageError):
        options.parse(words.split())


def test_a_usage_error_is_one_json_line(migrate):
    """Exit 2, code and hint on stderr, nothing on stdout."""
    answer = migrate("--sqlite", "a.db")
    assert (2, "", "usage", 2) == (answer.code, answer.out, answer.error["code"], answer.error["exit"])


def test_every_option_of_the_ancestor_is_there():
    """Old command lines parse unchanged."""
    words = (
        "--sqlite a --hdf5 b --agent-id c --embedder d --embedding-dim 3 --skip-deleted --compression"
        " --compression-level 9 --float16 --validate-full --incremental --chunks-table e --sessions-table f"
        " --entities-table g --relations-table h --verbose"
    )
    found = options.parse(words.split())
    assert ("a", "b", 3, "e", "h") == (
        found.sqlite, found.hdf5, found.embedding_dim, found.chunks_table, found.relations_table
    )  # fmt: skip


def test_source_and_destination_are_one_file(tmp_path, make, migrate, files_of):
    """Refused, whatever the names; the source is kept."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    os.link(source, tmp_path / "b.db")
    before = files_of(tmp_path)
    for words in (("--incremental",), ()):
        assert migrate("--sqlite", source, "--hdf5", tmp_path / "b.db", *words).code in (2, 15)
    assert before == files_of(tmp_path)


def test_a_missing_folder_is_named(tmp_path, make, migrate):
    """The destination's folder must exist."""
    source = make.rows(tmp_path / "a.db", [make.row(1)])
    answer = migrate("--sqlite", source, "--hdf5", tmp_path / "no/m.h5")
    assert 74 == answer.code and "no" in answer.error["message"]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(tmp_path, make, kind):
    """Stopped in the middle of writing: exit 130, one error line, no file of the destination."""
    source = make.rows(tmp_path / "a.db", [make.row(id, chunk=f"text {id} " * 50) for id in range(3000)])
    out = tmp_path / "out"
    out.mkdir()
    start = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r}); from clawmem_migrate import entry, proof\n"
        "add = proof.Side.add\n"
        "def slow(self, hashes):\n"
        "    add(self, hashes); print('writing', flush=True); time.sleep(60)\n"
        "proof.Side.add = slow\n"
        "sys.exit(entry.main())"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", start, "--sqlite", source, "--hdf5", out / "m.h5"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout.readline() == b"writing\n"
    time.sleep(0.05)
    child.send_signal(kind)
    _, err = child.communicate(timeout=30)
    assert 130 == child.returncode and b'"interrupted"' in err
    assert [] == list(out.iterdir())
