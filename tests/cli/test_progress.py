"""Progress is for people at a terminal only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from clawmem_cli.progress import tracked
from tests.cli.conftest import START, Answer, environment


def test_without_a_terminal_the_items_come_as_they_are() -> None:
    """Not even wrapped."""
    blocks = [[1, 2], [3]]
    assert tracked(blocks, "x") is blocks


def test_a_terminal_on_stderr_sees_it_and_stdout_does_not(store: Callable[..., Answer], tmp_path: Path) -> None:
    """export into a file."""
    store("save", "--ndjson", stdin='{"chunk":"x"}\n' * 50)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", START, "-p", tmp_path / "m.h5", "export"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(TERM="xterm"),
        timeout=60,
    )
    os.close(theirs)
    said = os.read(ours, 1 << 16)
    os.close(ours)
    assert store("export").out == done.stdout
    assert b"50/50" in said
