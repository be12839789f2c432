"""clawmem search, one query and many."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Answer

RECORDS = [
    {"chunk": "User prefers dark mode", "embedding": [1, 0, 0, 0], "source_channel": "chat", "tags": "pref, ui"},
    {"chunk": "The meeting is on Tuesday", "embedding": [0, 1, 0, 0], "source_channel": "mail", "session_id": "s1"},
    {"chunk": "Dark chocolate without milk", "embedding": [0, 0, 1, 0], "timestamp": 1700000000},
]


@pytest.fixture
def filled(store: Callable[..., Answer]) -> Callable[..., Answer]:
    """A store with three records."""
    assert 0 == store("save", "--ndjson", stdin="\n".join(map(json.dumps, RECORDS))).code
    return store


def found(answer: Answer) -> list[int]:
    """The ids of a page."""
    assert 0 == answer.code, answer
    return [hit["index"] for hit in answer.document]


def test_by_text_by_vector_and_by_both(filled: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """An array, best first; no hit is []."""
    page = filled("search", "--query", "dark mode")
    conforms("search", page.document)
    assert [0, 2] == found(page)
    assert [1, 0] == found(filled("search", "--embedding", "[0.1,0.9,0,0]", "-k", "2"))
    assert 0 == found(filled("search", "--embedding", "[1,0,0,0]", "--query", "dark"))[0]
    assert [1] == found(filled("search", "--embedding", "-", "-k", "1", stdin="[0,1,0,0]"))
    assert [] == found(filled("search", "--query", "zebra"))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([0], ["--source", "chat"]), ([0, 1], ["--source", "chat", "--source", "mail"]), ([0], ["--tag", "ui"]),
        ([1], ["--session", "s1"]), ([2], ["--until", "2023-11-14T22:13:21Z"]), ([0, 1], ["--since", "1700000001"]),
        ([], ["--source", "chat", "--session", "s1"]),
    ],
)  # fmt: skip
def test_filters(filled: Callable[..., Answer], ids: list[int], words: list[str]) -> None:
    """Repeats are an or, options an and, since inclusive, until exclusive."""
    assert ids == sorted(found(filled("search", "--embedding", "[1,1,1,1]", *words)))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, []), (2, ["--query", "x", "-k", "0"]), (14, ["--embedding", "[1,2]"]), (2, ["--embedding", "[NaN,1,1,1]"]),
        (2, ["--embedding", "1,2,3,4"]), (2, ["--query", "x", "--since", "2026-01-01T00:00:00"]),
        (2, ["--query", "x", "--vector-weight", "-1"]), (2, ["--query", "x", "--until", "1_0"]),
        (2, ["--query", "x", "--batch"]), (2, ["--query", b"\xff"]), (2, ["--embedding", "[0,0,0,0]"]),
        (2, ["--query", "x", "--vector-weight", "0", "--keyword-weight", "0"]),
    ],
)  # fmt: skip
def test_bad_queries(filled: Callable[..., Answer], code: int, words: list[str]) -> None:
    """One error line, nothing on stdout."""
    answer = filled("search", *words)
    assert (code, code, b"") == (answer.code, answer.error["exit"], answer.out)


def test_explain_says_how(filled: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """A member of each hit, only when asked for."""
    page = filled("search", "--query", "dark", "--explain").document
    conforms("search", page)
    assert all("explain" in hit for hit in page)


def test_weak_matches_can_be_left_out(filled: Callable[..., Answer]) -> None:
    """--min-score and --reject-weak on raw similarity; --rerank keeps the rows."""
    assert [0] == found(filled("search", "--embedding", "[1,0.1,0,0]", "--min-score", "0.9"))
    assert [] == found(filled("search", "--embedding", "[-1,-1,-1,-1]", "--reject-weak"))
    assert [0, 2] == sorted(found(filled("search", "--query", "dark", "--rerank")))


def test_many_queries_from_stdin(filled: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """One answer a line, options as defaults, bad lines refused."""
    lines = [
        '{"query":"dark"}', '{"embedding":[0,1,0,0],"k":2}', '{"embedding_f32":"AACAPwAAAAAAAAAAAAAAAA=="}',
        '{"nonsense":1}',
        '{"query":"dark","source":["chat"]}', '{"embedding":[1,2]}',
    ]  # fmt: skip
    answer = filled("search", "--batch", "--top-k", "1", stdin="\n".join(lines))
    for line in answer.lines:
        conforms("search.line", line)
    pages = [
        [hit["index"] for hit in line["hits"]] if "hits" in line else line["error"]["code"] for line in answer.lines
    ]
    assert [[0], [1, 0], [0], "invalid-input", [0], "dimension"] == pages
    assert (3, [{"lines": 6, "answered": 4, "refused": 2}]) == (answer.code, answer.summaries)
    assert "2 of 6 lines refused; the others are answered" == answer.error["message"]


def test_batch_and_single_queries_agree(filled: Callable[..., Answer]) -> None:
    """The same page to the last digit."""
    single = filled("search", "--query", "dark mode", "--embedding", "[0.3,0.2,0.1,0]").document
    batch = filled("search", "--batch", stdin='{"query":"dark mode","embedding":[0.3,0.2,0.1,0]}').lines
    assert single == batch[0]["hits"]


def test_too_few_hits_are_refused_in_one_wording(filled: Callable[..., Answer]) -> None:
    """As an option and in a query of a batch."""
    option = filled("search", "--query", "x", "-k", "0").error["message"]
    line = json.loads(filled("search", "--batch", stdin='{"query":"x","k":0}').out)["error"]["message"]
    assert ("--top-k must be at least 1", "k: must be at least 1") == (option, line)
