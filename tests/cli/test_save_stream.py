"""clawmem save --ndjson."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import START, Answer, environment


def test_every_line_has_an_answer_in_order(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Good lines stay when others fail; exit 3."""
    lines = [
        '{"chunk":"one"}',
        "",
        '{"chunk":"bad","embedding":[1,2]}',
        '{"chunk":"two","key":"k"}',
        '{"chunk":"v2","key":"k"}',
    ]
    answer = store("save", "--ndjson", stdin="\n".join([*lines, '{"chunk":']))
    for line in answer.lines:
        conforms("save.line", line)
    found = [(line["line"], line["status"], line.get("index")) for line in answer.lines]
    expected = [(1, "saved", 0), (3, "refused", None), (4, "saved", 1), (5, "updated", 1), (6, "refused", None)]
    assert expected == found
    assert (3, "partial") == (answer.code, answer.error["code"])
    assert [{"lines": 5, "saved": 2, "updated": 1, "exists": 0, "pending": 0, "refused": 2}] == answer.summaries
    assert ["one", "v2"] == [row["chunk"] for row in store("export").lines]


def test_a_long_stream_is_saved_whole(store: Callable[..., Answer]) -> None:
    """More than one group, and texts that make a group by their bytes."""
    texts = [f"record {number}" + " filler" * (number % 7 == 0) * 3000 for number in range(400)]
    answer = store("save", "--ndjson", stdin="".join(json.dumps({"chunk": text}) + "\n" for text in texts))
    assert 0 == answer.code
    assert list(range(400)) == [line["index"] for line in answer.lines]
    assert texts == [row["chunk"] for row in store("export").lines]


def test_plain_and_other_lines_of_one_block_keep_their_order(store: Callable[..., Answer]) -> None:
    """Blank, refused, keyed, with base64 and without vector: ids and texts follow the lines."""
    half = base64.b64encode(b"\0\x3c" * 4).decode()
    lines = []
    for number in range(700):
        record: dict[str, Any] = {"chunk": f"record {number}", "timestamp": number}
        if number % 3:
            record["embedding_f16"] = half
        if number % 50 == 7:
            record["key"] = f"key {number}"
        if number % 90 == 11:
            record["embedding_f16"] = half[:-2]
        lines.append(json.dumps(record) if number % 40 != 13 else " ")
    answer = store("save", "--ndjson", "--strict-keys", stdin="\n".join(lines))
    assert 3 == answer.code
    good = [number for number in range(700) if number % 40 != 13 and number % 90 != 11]
    found = [(line["line"], line["index"]) for line in answer.lines if line["status"] == "saved"]
    assert [(number + 1, index) for index, number in enumerate(good)] == found
    assert [number + 1 for number in range(700) if number % 40 != 13] == [line["line"] for line in answer.lines]
    assert [f"record {number}" for number in good] == [row["chunk"] for row in store("export").lines]


def test_unknown_keys_are_warned_about_once(store: Callable[..., Answer]) -> None:
    """Not once a line."""
    answer = store("save", "--ndjson", stdin='{"chunk":"x","foo":1}\n' * 5)
    assert ["unknown key 'foo' was not stored"] == [warning["message"] for warning in answer.warnings]


def test_an_idle_stream_answers_and_frees_the_lock(store: Callable[..., Answer], tmp_path: Path) -> None:
    """Another process saves between two lines of one."""
    child = subprocess.Popen(
        [sys.executable, "-c", START, "--path", tmp_path / "m.h5", "save", "--ndjson"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    try:
        assert child.stdin is not None and child.stdout is not None
        for number, other in ((0, 1), (2, 3)):
            child.stdin.write(b'{"chunk":"mine"}\n')
            child.stdin.flush()
            assert number == json.loads(child.stdout.readline())["index"]
            assert other == store("--lock-timeout", "10", "save", stdin='{"chunk":"other"}').document["index"]
        child.stdin.close()
        assert 0 == child.wait(30)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_nothing_on_stdin_is_an_empty_stream(store: Callable[..., Answer]) -> None:
    """Exit 0, no answer."""
    answer = store("save", "--ndjson")
    assert (0, b"") == (answer.code, answer.out)
