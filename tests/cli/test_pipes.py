"""Room in pipes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from clawmem_cli import pipes


def test_a_pipe_holds_more_and_other_files_are_left_alone(tmp_path: Path) -> None:
    """Also a closed descriptor."""
    reader, writer = os.pipe()
    pipes.widen(writer)
    assert pipes.ROOM == fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
    os.close(reader)
    os.close(writer)
    pipes.widen(writer)
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    pipes.widen(file)
    os.close(file)
