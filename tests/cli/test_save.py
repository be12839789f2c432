"""clawmem save, one record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import MemoryStore
from tests.cli.conftest import Answer

DARK = {"chunk": "User prefers dark mode", "embedding": [0.1, 0.2, 0.3, 0.4], "tags": "pref"}


def test_a_record_from_stdin_or_option(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Counted, numbered from 0."""
    first = store("save", stdin=json.dumps(DARK))
    conforms("save", first.document)
    assert {"status": "saved", "index": 0, "count": 1} == first.document
    assert 1 == store("save", "--json", '{"chunk":"x"}').document["index"]
    assert 2 == store("save", "--json", "-", stdin='{"chunk":"y"}').document["index"]
    assert 3 == store("save", "--no-sync", stdin='{"chunk":"z"}').document["index"]


def test_saves_of_many_processes_are_counted_and_checkpointed(clawmem: Callable[..., Answer], tmp_path: Path) -> None:
    """What is pending is exact after each, and the limit is reached although each process saves one (defect B2)."""
    path = tmp_path / "m.h5"
    MemoryStore.create(path, dim=4, wal_max_entries=5).close()
    pending = []
    for number in range(8):
        assert {"status": "saved", "index": number, "count": number + 1} == clawmem(
            "--path", path, "save", stdin='{"chunk":"x"}'
        ).document
        pending.append(clawmem("--path", path, "stats").document["wal_pending"])
    assert [1, 2, 3, 4, 5, 0, 1, 2] == pending


def test_a_key_updates_in_place(store: Callable[..., Answer]) -> None:
    """Given in the object or as an option, which must agree."""
    store("save", stdin='{"chunk":"v1","key":"k"}')
    answer = store("save", "--key", "k", stdin='{"chunk":"v2"}')
    assert {"status": "updated", "index": 0, "count": 1} == answer.document
    assert 2 == store("save", "--key", "k", stdin='{"chunk":"v3","key":"other"}').code
    assert 2 == store("save", "--key", "", stdin='{"chunk":"v3"}').code


def test_unknown_keys_warn_or_are_refused(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Named in both cases."""
    answer = store("save", stdin='{"chunk":"x","chunky":1}')
    assert 0 == answer.code
    (warning,) = answer.warnings
    assert "chunky" in warning["message"]
    conforms("stderr", {"warning": warning})
    assert [] == store("--quiet", "save", stdin='{"chunk":"x","chunky":1}').warnings
    refused = store("save", "--strict-keys", stdin='{"chunk":"x","chunky":1}')
    assert (2, "unknown-key") == (refused.code, refused.error["code"])
    conforms("stderr", {"error": refused.error})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (2, ""), (2, "7"), (2, "[]"), (2, '{"chunk":""}'), (2, '{"tags":"x"}'), (2, '{"chunk":"x","chunk":"y"}'),
        (2, b'{"chunk":"\xff"}'), (2, '{"chunk":"a\\u0000b"}'), (2, '{"chunk":"\\ud800"}'), (2, '{"chunk":"x"} y'),
        (14, '{"chunk":"x","embedding":[1,2]}'), (2, '{"chunk":"x","embedding":[NaN,1,1,1]}'),
        (2, '{"chunk":"x","timestamp":1700000000000}'), (2, '{"chunk":"x","timestamp":"2026-01-01T00:00:00"}'),
    ],
)  # fmt: skip
def test_bad_input_stores_nothing(store: Callable[..., Answer], code: int, text: str | bytes) -> None:
    """One JSON error line, nothing on stdout, nothing in the store."""
    answer = store("save", stdin=text)
    assert (code, code, b"") == (answer.code, answer.error["exit"], answer.out)
    assert 0 == store("stats").document["count"]


def test_text_survives_an_ascii_locale(store: Callable[..., Answer]) -> None:
    """By argument and by stdin, under LC_ALL=C without UTF-8 mode."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = "naïve 日本語 🙂"
    store("save", "--json", json.dumps({"chunk": text}, ensure_ascii=False), env=plain)
    store("save", stdin=json.dumps({"chunk": text}, ensure_ascii=False), env=plain)
    for env in (plain, {}):
        assert [text, text] == [row["chunk"] for row in store("export", env=env).lines]
        assert 2 == len(store("search", "--query", "naïve", env=env).document)


def test_a_stream_takes_neither_json_nor_key(store: Callable[..., Answer]) -> None:
    """They are for one record."""
    assert 2 == store("save", "--ndjson", "--key", "k").code
    assert 2 == store("save", "--ndjson", "--json", "{}").code


@pytest.mark.parametrize("words", [[], ["--json", "-"]], ids=str)
def test_several_lines_are_told_of_ndjson(store: Callable[..., Answer], words: list[str]) -> None:
    """Nothing of them is stored; what is no second value, or no stdin, gets no such hint."""
    answer = store("save", *words, stdin='{"chunk":"a"}\n{"chunk":"b"}\n')
    assert (2, b"") == (answer.code, answer.out)
    assert "--ndjson" in answer.error["hint"]
    assert "--ndjson" not in store("save", *words, stdin='{"chunk":').error["hint"]
    assert "--ndjson" not in store("save", "--json", '{"chunk":"a"} x').error["hint"]
    assert 0 == store("stats").document["count"]
