"""What is printed, and what happens when nobody reads it."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_cli import output
from clawmem_core.errors import AnswerLostError, NoStoreError

VALUES: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_json_reads_back_on_one_line_and_indented(value: Any) -> None:
    """Both forms are the value; the short one is one line."""
    assert value == json.loads(output.json_bytes(value))
    assert value == json.loads(output._indented(value))
    assert b"\n" not in output.json_bytes(value)


def test_text_is_utf8_and_lone_surrogates_are_escaped() -> None:
    """UTF-8 as it stands, ASCII escapes where it cannot."""
    assert '{"a":"naïve 🙂"}'.encode() == output.json_bytes({"a": "naïve 🙂"})
    assert rb'["\ud800"]' == output.json_bytes(["\ud800"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), [float("nan")]])
def test_nan_and_infinity_are_never_printed(value: Any) -> None:
    """They are a fault of the program, not a document."""
    with pytest.raises(ValueError):
        output.json_bytes(value)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """stdout and stderr as files of their own; returns a function that reads one."""
    paths = {"_STDOUT": tmp_path / "out", "_STDERR": tmp_path / "err"}
    for name, path in paths.items():
        monkeypatch.setattr(output, name, os.open(path, os.O_CREAT | os.O_RDWR))
    monkeypatch.setattr(output, "quiet", False)
    yield lambda name: paths[name].read_bytes()
    for name in paths:
        os.close(getattr(output, name))


def test_documents_lines_errors_and_summaries(descriptors: Any) -> None:
    """One line each, JSON where no terminal is."""
    output.document({"a": 1})
    output.line({"b": "ü"})
    output.error(NoStoreError(path="x\ny"))
    output.warning("odd", "something")
    output.summary({"saved": 2})
    assert '{"a":1}\n{"b":"ü"}\n'.encode() == descriptors("_STDOUT")
    error, warning, summary = map(json.loads, descriptors("_STDERR").splitlines())
    assert {"code", "exit", "message", "hint"} == set(error["error"])
    assert {"warning": {"code": "odd", "message": "something"}} == warning
    assert {"summary": {"saved": 2}} == summary


def test_quiet_silences_warnings_and_summaries_only(descriptors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is always said."""
    monkeypatch.setattr(output, "quiet", True)
    output.warning("odd", "something")
    output.summary({"saved": 2})
    assert b"" == descriptors("_STDERR")
    output.error(NoStoreError(path="x"))
    assert b"no-store" in descriptors("_STDERR")


def test_a_terminal_gets_indented_json_and_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members on lines of their own; `error: …` with the hint."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(output, "_STDOUT", theirs)
    monkeypatch.setattr(output, "_STDERR", theirs)
    output.document({"a": [1, {}]})
    said = os.read(ours, 4096)
    output.error(NoStoreError(path="x"))
    said += os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert (
        '{\n  "a": [\n    1,\n    {}\n  ]\n}\nerror: no store at x (make one with `clawmem --path FILE create`)\n'
        == said.decode().replace("\r\n", "\n")
    )


def test_a_reader_that_went_away_is_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not at exit."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(output, "_STDOUT", writer)
    with pytest.raises(BrokenPipeError):
        output.line({})
    os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_loses_the_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 74 names the standard output and does not say that nothing happened."""
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(output, "_STDOUT", full)
    with pytest.raises(AnswerLostError, match=r"standard output: .*; the answer is lost, but what .* stands") as caught:
        output.line({})
    assert caught.value.exit == 74
    os.close(full)


def test_a_non_blocking_stdout_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds, read slowly by another process."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", "import sys,time; time.sleep(.2); sys.exit(len(sys.stdin.buffer.read()) != 1000000)"],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), (os.POSIX_SPAWN_CLOSE, writer)],
    )
    os.close(reader)
    monkeypatch.setattr(output, "_STDOUT", writer)
    output.write(b"x" * 1_000_000)
    os.close(writer)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
