"""Lifecycle rules: value keys, states, the grid of two times, replacing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.contract import lifecycle
from clawmem_core.errors import ConflictError, NotFoundError
from clawmem_core.storage.row_ops import EventRow

SCOPE = b"s" * 32
INFINITY = float("inf")


def _row(**changes: Any) -> EventRow:
    values = {
        "label": 2,
        "status": lifecycle.ACTIVE,
        "trust": 1,
        "record_id": 1,
        "valid_from": 100.0,
        "recorded_from": 10,
        "event_id": b"a" * 32,
        "scope_key": SCOPE,
        "payload": b"{}",
    }
    return EventRow(**{**values, **changes})


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    "text",
    [
        "Prefers Tea",
        " prefers  TEA ",
        "prefers\u00a0\ttea",
        "\ufeffＰrefers tea",
        "pre\u200bfers te\u00ada",
        "prefers\u3000tea",
    ],
)
def test_same_value(text: str) -> None:
    """Case, width, spacing and invisible characters do not make another value."""
    assert lifecycle.value_key(SCOPE, "user", "drink", "prefers tea") == lifecycle.value_key(
        SCOPE, "user", "drink", text
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (b"t" * 32, "user", "drink", "tea"),
        (SCOPE, "User", "drink", "tea"),
        (SCOPE, "user", "food", "tea"),
        (SCOPE, "user", "drink", "te a"),
        (SCOPE, "user", "drink", "teä"),
    ],
)
def test_other_value(arguments: tuple[bytes, str, str, str]) -> None:
    """Scope, subject, kind and words do."""
    assert lifecycle.value_key(SCOPE, "user", "drink", "tea") != lifecycle.value_key(*arguments)


@given(st.text(st.characters(codec=None), max_size=30))
def test_normal_form_is_stable(text: str) -> None:
    """Normalising twice changes nothing; lone surrogates do no harm."""
    once = lifecycle.normalized_value(text)
    assert once == lifecycle.normalized_value(once)
    assert len(lifecycle.value_key(SCOPE, text, text, text)) == 32


# ---------------------------------------------------------------- states

ALLOWED = {
    ("pending", "active"),
    ("pending", "rejected"),
    ("active", "superseded"),
    ("active", "retracted"),
    ("active", "expired"),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(lifecycle.STATUSES[1:], 2)))
def test_state_steps(old: str, new: str) -> None:
    """Only the steps of the state table are allowed."""
    row, status = _row(status=lifecycle.STATUSES.index(old)), lifecycle.STATUSES.index(new)
    if (old, new) in ALLOWED:
        lifecycle.check_transition(row, status)
    else:
        with pytest.raises(ConflictError, match=f"is {old}, so it cannot become {new}"):
            lifecycle.check_transition(row, status)


def test_record_time_never_goes_back() -> None:
    """The clock is used unless it is behind the last version."""
    assert lifecycle.next_record_time(10, 50) == 50
    assert lifecycle.next_record_time(50, 10) == 51
    with pytest.raises(ConflictError):
        lifecycle.next_version(_row(), lifecycle.EXPIRED, recorded=10, reason="", actor="ann")


def test_end_of_validity() -> None:
    """A new version ends the fact; an earlier end stays; everything else is kept."""
    old = _row(valid_until=150.0)
    new = lifecycle.end_validity(
        old, lifecycle.SUPERSEDED, at=200.0, recorded=20, reason="r", actor="ann", superseded_by=b"b" * 32
    )
    assert (2, lifecycle.SUPERSEDED, 150.0, 20, 0, b"b" * 32, "r", "ann", b"{}") == (
        new.version,
        new.status,
        new.valid_until,
        new.recorded_from,
        new.recorded_to,
        new.superseded_by,
        new.reason,
        new.actor,
        new.payload,
    )
    assert (
        lifecycle.end_validity(old, lifecycle.EXPIRED, at=120.0, recorded=20, reason="", actor="a").valid_until == 120.0
    )
    assert (150.0, 1) == (old.valid_until, old.version)


def test_initial_status() -> None:
    """Episodes and active facts are believed; a fact that says it is inactive is not."""
    assert lifecycle.initial_status({}) == lifecycle.initial_status({"active": True}) == lifecycle.ACTIVE
    assert lifecycle.initial_status({"active": False}) == lifecycle.RETRACTED


# ---------------------------------------------------------------- the grid of two times


def _history() -> list[tuple[str, EventRow]]:
    """A inserted at 10 (valid from 100); B back-dated at 20 (valid from 50); A replaced by C at 30 (from 200);
    C expired retroactively at 40 (until 150, so it never held); B retracted at 50."""
    a = _row(recorded_from=10_000_000)
    b = _row(event_id=b"b" * 32, valid_from=50.0, recorded_from=20_000_000)
    c = _row(event_id=b"c" * 32, valid_from=200.0, recorded_from=30_000_000)
    a2 = lifecycle.end_validity(a, lifecycle.SUPERSEDED, at=200.0, recorded=30_000_000, reason="", actor="x")
    c2 = lifecycle.end_validity(c, lifecycle.EXPIRED, at=150.0, recorded=40_000_000, reason="", actor="x")
    b2 = lifecycle.end_validity(b, lifecycle.RETRACTED, at=300.0, recorded=50_000_000, reason="", actor="x")
    closed = [
        a.changed(recorded_to=30_000_000),
        b.changed(recorded_to=50_000_000),
        c.changed(recorded_to=40_000_000),
        a2,
        b2,
        c2,
    ]
    return list(zip("ABCABC", closed, strict=True))


GRID = {
    # known at:  5     10    20     30      40     50    now
    49.0: ("", "", "", "", "", "", ""),
    50.0: ("", "", "B", "B", "B", "", ""),
    100.0: ("", "A", "AB", "AB", "AB", "A", "A"),
    199.0: ("", "A", "AB", "AB", "AB", "A", "A"),
    200.0: ("", "A", "AB", "BC", "B", "", ""),
    999.0: ("", "A", "AB", "BC", "B", "", ""),
}


@pytest.mark.parametrize("as_of", GRID)
@pytest.mark.parametrize(("column", "known_at"), list(enumerate([5.0, 10.0, 20.0, 30.0, 40.0, 50.0, None])))
def test_grid(as_of: float, column: int, known_at: float | None) -> None:
    """What a read sees for every pair of validity time and record time."""
    seen = sorted(name for name, row in _history() if lifecycle.visible(row, as_of=as_of, known_at=known_at))
    assert list(GRID[as_of][column]) == seen


@pytest.mark.parametrize("status", [lifecycle.PENDING, lifecycle.REJECTED, lifecycle.RETRACTED])
def test_unbelieved_states_are_never_seen(status: int) -> None:
    """Held, rejected and retracted rows are invisible at any time; the active control is not."""
    assert lifecycle.visible(_row(), as_of=100.0)
    assert not lifecycle.visible(_row(status=status), as_of=100.0)
    assert not lifecycle.visible(_row(status=status), as_of=100.0, known_at=1e9)


# ---------------------------------------------------------------- trust, confidence, marks


def test_trust_gate_and_factor() -> None:
    """Trust gates by class; factors fall with trust and rise with confidence, never the other way."""
    passes = [[lifecycle.trust_passes(_row(trust=trust), minimum) for trust in (1, 2, 3)] for minimum in (1, 2, 3)]
    assert passes == [[True, False, False], [True, True, False], [True, True, True]]
    assert [lifecycle.rank_factor(trust, 1.0) for trust in (1, 2, 3)] == [1.0, 0.9, 0.7]
    steps = [lifecycle.rank_factor(1, step / 10) for step in range(11)]
    assert steps == sorted(steps)
    assert (0.5, 1.0) == (steps[0], steps[-1])


@given(st.permutations(range(8)), st.dictionaries(st.integers(0, 7), st.integers(0, 9), max_size=4))
def test_marked_rows_stand_below_their_successor(order: list[int], successors: dict[int, int]) -> None:
    """No row is lost or doubled; each marked row follows its (unmarked) successor; others keep their order."""
    page = lifecycle.below_successors(order, successors)
    assert sorted(order) == sorted(page)
    for marked, successor in successors.items():
        if successor in page and successor not in successors:
            assert page.index(successor) < page.index(marked)
    kept = [record_id for record_id in order if record_id not in successors]
    assert kept == [record_id for record_id in page if record_id not in successors]


# ---------------------------------------------------------------- replacing


def _replace(old: EventRow | None, rows: dict[bytes, EventRow] | None = None, **changes: Any) -> EventRow:
    arguments = {
        "fact_id": "f" * 64,
        "scope_key": SCOPE,
        "old_value": b"1",
        "new_value": b"2",
        "new_id": b"n" * 32,
        "find": (rows or {}).get,
    }
    return lifecycle.check_replaceable(old, **{**arguments, **changes})


def test_replaceable() -> None:
    """An active fact of the scope, with another value, may be replaced."""
    old = _row(supersedes=b"z" * 32)
    assert _replace(old, {b"z" * 32: _row(event_id=b"z" * 32)}) is old


def test_other_scope_reads_like_no_such_fact() -> None:
    """A fact of another scope and a random id give the same words."""
    messages = []
    for old in (None, _row(scope_key=b"t" * 32)):
        with pytest.raises(NotFoundError) as caught:
            _replace(old)
        messages.append(caught.value.message)
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("old", "changes", "found"),
    [
        (_row(status=lifecycle.SUPERSEDED), {}, "is superseded"),
        (_row(status=lifecycle.PENDING), {}, "is pending"),
        (_row(), {"new_value": b"1"}, "already says this"),
        (_row(), {"new_id": b"a" * 32}, "came from"),
        (_row(supersedes=b"n" * 32), {}, "came from"),
        (_row(supersedes=b"a" * 32), {}, "runs in a circle"),
    ],
)
def test_not_replaceable(old: EventRow, changes: dict[str, Any], found: str) -> None:
    """Not active, the same value, its own ancestor, or a history without end: refused by name."""
    rows = {b"a" * 32: _row(supersedes=b"a" * 32), b"n" * 32: _row(event_id=b"n" * 32)}
    with pytest.raises(ConflictError, match=found):
        _replace(old, rows, **changes)
