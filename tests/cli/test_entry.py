"""Ways out of the command: exit codes, one line on stderr, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawmem_cli import entry, output
from clawmem_core.errors import InternalError
from tests.cli.conftest import START, Answer, environment


def test_version_and_help_and_completion(clawmem: Callable[..., Answer]) -> None:
    """Text on stdout, exit 0."""
    assert b"clawmem 0.1.0\n" == clawmem("--version").out
    assert b"Usage: clawmem" in clawmem("--help").out
    assert b"--dim" in clawmem("create", "--help").out
    assert b"_CLAWMEM_COMPLETE" in clawmem("--show-completion", env={"SHELL": "/bin/bash"}).out


@pytest.mark.parametrize(
    "words", [[], ["remember"], ["stats", "--bad"], ["recall"], ["stats"], ["create", "--dim"], ["--bad"]]
)
def test_usage_errors_are_one_json_line(clawmem: Callable[..., Answer], words: list[str]) -> None:
    """Exit 2, nothing on stdout."""
    answer = clawmem(*words)
    assert (2, b"", 2, "usage") == (answer.code, answer.out, answer.error["exit"], answer.error["code"])


def test_a_fault_of_the_program_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with type and place, no traceback."""
    said: list[InternalError] = []
    monkeypatch.setattr(output, "error", said.append)
    monkeypatch.setattr(entry, "execute", lambda *_: 1 // 0)
    assert 1 == entry.run(["stats", "-p", "x"])
    assert "internal" == said[0].code
    assert "ZeroDivisionError" in said[0].message and "\n" not in said[0].message


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "error", lambda problem: None)
    monkeypatch.setattr(entry, "execute", interrupted)
    assert 130 == entry.run(["stats", "-p", "x"])


def test_help_into_a_closed_pipe_ends_quietly_with_141() -> None:
    """No traceback, nothing on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", START, "--help"], stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=60
    )
    os.close(writer)
    assert (141, b"") == (done.returncode, done.stderr)


def test_a_closed_stdout_is_reported_and_never_takes_a_file_of_the_store(tmp_path: Path) -> None:
    """Descriptor 1 is occupied before anything is opened."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-c", START, "--version"],
        stderr=subprocess.PIPE, env=environment(), timeout=60,
    )  # fmt: skip
    assert 74 == done.returncode
    assert b"standard output" in done.stderr


def test_an_interrupt_while_input_arrives_says_so() -> None:
    """save is reading stdin, as a write of more than the pipe holds proves; then control-C."""
    child = subprocess.Popen(
        [sys.executable, "-c", START, "-p", "x", "save"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert child.stdin is not None
        child.stdin.write(b" " * 1_000_000)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    finally:
        child.kill()
    assert 130 == child.returncode
    assert b'"interrupted"' in said
