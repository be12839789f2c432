"""Filters one by one; their combination with everything else is in test_engine.py."""

from __future__ import annotations

import pytest

from clawmem_core.search.engine import SearchRequest, search
from clawmem_core.search.filters import Selection, positions, tag_test
from clawmem_core.storage import ops
from tests.core.search.index_stores import reader_of, record
from tests.core.search.search_cases import PlainView

SCOPE = b"\7" * 32


def view() -> PlainView:
    """Four ordinary records and one event; one of each is only in the log."""
    base = [
        record(0, "tea", source_channel="chat", tags="a, b", session="x", timestamp=10.0),
        record(1, "tea", source_channel="Chat", tags="ab", session="y", timestamp=20.0),
        record(2, "tea", source_channel="chat ", scope=SCOPE, session="x", timestamp=30.0),
    ]
    found = PlainView(reader_of(base, 2))
    for entry in (
        record(3, "tea", source_channel="chat", tags="b ,c", session="y", timestamp=40.0),
        record(4, "tea", source_channel="", tags="", session="", timestamp=50.0, scope=SCOPE),
        record(5, "tea", source_channel="", tags="", session="", timestamp=5.0),
    ):
        found.overlay.apply([(ops.RECORD, 0, entry)])
    return found


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {0, 1, 3, 5}),
        ({"sources": ["chat"]}, {0, 3}),
        ({"sources": ["chat", "Chat"]}, {0, 1, 3}),
        ({"sources": [""]}, {5}),
        ({"sources": []}, {0, 1, 3, 5}),
        ({"tags": ["b"]}, {0, 3}),
        ({"tags": [" a "]}, {0}),
        ({"tags": ["ab", "c"]}, {1, 3}),
        ({"sessions": ["y"]}, {1, 3}),
        ({"exclude_sessions": ["y"]}, {0, 5}),
        ({"since": 20.0}, {1, 3}),
        ({"until": 20.0}, {0, 5}),
        ({"since": 10.0, "until": 40.0}, {0, 1}),
        ({"since": 40.0, "until": 10.0}, set()),
        ({"all_scopes": True}, {0, 1, 2, 3, 4, 5}),
        ({"all_scopes": True, "sessions": ["x"]}, {0, 2}),
        ({"scope": SCOPE}, {2, 4}),
        ({"scope": b"\1" * 32}, set()),
        ({"allowed": {2, 3, 99}}, {2, 3}),
        ({"allowed": {2, 3}, "scope": SCOPE}, {2}),
        ({"allowed": set()}, set()),
        ({"sources": ["chat"], "tags": ["c"]}, {3}),
        ({"sources": ["none"]}, set()),
    ],
)
def test_each_filter(filters: dict[str, object], expected: set[int]) -> None:
    """Exactly the records that pass are found."""
    request = SearchRequest(None, "tea", 100)
    for name, value in filters.items():
        setattr(request, name, value)
    assert expected == {hit.index for hit in search(view(), request)}  # type: ignore[arg-type]


def test_tags_are_trimmed_parts() -> None:
    """A tag is a whole comma-separated part, blanks around it aside."""
    passes = tag_test(["x y", " z"])
    assert [True, True, False, False] == [passes(text) for text in ("a, x y ", "z", "x", "")]


def test_positions_of_a_mask() -> None:
    """Where the ones are."""
    assert [1, 3] == positions(b"\0\1\0\1")
    assert [] == positions(b"")


def test_a_selection_loses_rows() -> None:
    """`without` keeps the rest."""
    whole = Selection(None, 4, [])
    assert ([0, 1, 2, 3], 4) == (list(whole.rows), whole.count)
    assert ([0, 3], 2) == (list(whole.without([1, 2]).rows), whole.without([1, 2]).count)
    assert [3] == whole.without([1, 2]).having([1, 3])
