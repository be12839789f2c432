"""Saving events: order of the checks, what is told apart, what is audited."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import errors
from clawmem_core.contract import audit
from clawmem_core.contract.canonical import canonical_ascii
from clawmem_core.contract.outbox import Outbox, drain
from clawmem_core.contract.saving import save_event
from clawmem_core.contract.scope import scope_key
from clawmem_core.contract.validate import SECRET_MEMBERS
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, episode, fact, make_store, save

KEY = "AKIA" + "ABCDEFGHIJKLMNOP"  # no real one
RANDOM = "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path)


def audited(path: Path) -> list[str]:
    """Operations of the audit lines in the log."""
    with open_view(path) as view:
        return [audit.parse_line(line).op for line in view.overlay.audit]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("make", [fact, episode])
def test_a_second_save_exists_and_other_content_conflicts(path: Path, make: Any, checkpointed: bool) -> None:
    """From the log and from the key table; an event's id does not cover its provenance."""
    first = save(path, make())
    if checkpointed:
        checkpoint(path)
    again = save(path, make())
    assert ("saved", "exists", first.index) == (first.status, again.status, again.index)
    with pytest.raises(errors.ConflictError):
        save(path, make(provenance="elsewhere"))
    assert "refused-conflict" == audited(path)[-1]
    with open_view(path) as view:
        assert 1 == view.state.rows


def test_one_source_event_is_one_episode(path: Path) -> None:
    """Another turn index or text under the same source event is a conflict; without a source event there is none."""
    save(path, episode())
    with pytest.raises(errors.ConflictError, match="sourceEventId"):
        save(path, episode(turnIndex=1))
    save(path, episode(turnIndex=1, externalSessionId="session-2"))
    save(path, episode(turnIndex=2, sourceEventId=""), episode(turnIndex=3, sourceEventId=""))
    with open_view(path) as view:
        assert 4 == view.state.rows


def test_keys_are_seen_within_a_group(path: Path) -> None:
    """Before anything of the group is written."""
    with Writer.open(path, 1.0, "ann") as writer:
        assert ["saved", "exists"] == [save_event(writer, fact()).status for _ in range(2)]
        writer.commit()
        assert 1 == writer.state.rows


def test_a_scope_file_is_the_only_authority(path: Path) -> None:
    """An event that claims another scope is refused, whatever field differs; the refusal is on record."""
    with Writer.open(path, 1.0, "ann") as writer:
        for field, other in OTHER_SCOPES.items():
            with pytest.raises(errors.ScopeMismatchError, match=field):
                save_event(writer, fact(**other), SCOPE)
        assert "saved" == save_event(writer, fact(), SCOPE).status
        writer.commit()
    assert ["refused-scope"] * 5 + ["event"] == audited(path)


def test_a_forged_id_is_refused_by_name(path: Path) -> None:
    """And on record; the event is not stored."""
    with pytest.raises(errors.ForgedIdError, match="factId"):
        save(path, {**fact(), "text": "likes coffee"})
    assert ["refused-forged-id"] == audited(path)
    with open_view(path) as view:
        assert 0 == view.state.rows


def test_a_refusal_leaves_the_group_before_it_stored(path: Path) -> None:
    """Each with an audit line of its own."""
    with Writer.open(path, 1.0, "ann") as writer:
        save_event(writer, fact())
        with pytest.raises(errors.ForgedIdError):
            save_event(writer, {**fact("x"), "text": "y"})
    assert ["event", "refused-forged-id"] == audited(path)


@pytest.mark.parametrize("way", ["save", "drain"])
@pytest.mark.parametrize("name", SECRET_MEMBERS["fact"])
def test_a_fact_with_a_secret_is_refused(path: Path, name: str, way: str) -> None:
    """Whichever way it comes in, as `replace` refuses it: in what it says and in what names things."""
    event = fact(**{name: f"key {KEY}"})
    if way == "save":
        with pytest.raises(errors.InvalidInputError, match=rf"{name}: .*secret \(aws\)") as caught:
            save(path, event)
        assert KEY not in caught.value.message
        assert not any(KEY.encode() in file.read_bytes() for file in path.parent.iterdir())
    else:
        with Writer.open(path, 1.0, "ann") as writer:
            outbox = Outbox(writer.paths)
            with outbox.locked(create=True):
                outbox.put(event)
            assert [name] == [one["message"].partition(":")[0] for one in drain(writer, outbox)["quarantined"]]
    with open_view(path) as view:
        assert 0 == view.state.rows


@pytest.mark.parametrize("name", SECRET_MEMBERS["episode"])
def test_an_episode_with_a_secret_name_is_refused(path: Path, name: str) -> None:
    """What was said stays as it is: only `capture` can take secrets out of it."""
    with pytest.raises(errors.InvalidInputError, match=rf"{name}: .*secret"):
        save(path, episode(**{name: f"key {KEY}"}))
    assert "saved" == save(path, episode(f"key {KEY}")).status


@pytest.mark.parametrize("event", [fact(sourceEventId=RANDOM), episode(externalSessionId=RANDOM, sourceEventId=RANDOM)])
def test_ids_may_look_random(path: Path, event: dict[str, Any]) -> None:
    """Those of a source or a session, as hosts make them; elsewhere such a run counts as a secret."""
    assert "saved" == save(path, event).status
    with pytest.raises(errors.InvalidInputError, match=r"provenance: .*entropy"):
        save(path, fact(provenance=RANDOM))


def test_an_event_with_a_secret_that_is_stored_exists(path: Path) -> None:
    """So that a store from before the refusal takes its own export."""
    with Writer.open(path, 1.0, "ann") as writer:
        assert "saved" == save_event(writer, fact(f"key {KEY}"), judged=True).status
        writer.commit()
    assert "exists" == save(path, fact(f"key {KEY}")).status


def test_superseding_is_no_plain_save(path: Path) -> None:
    """It takes replace."""
    with pytest.raises(errors.UsageError, match="supersedes"):
        save(path, fact(supersedesFactId="2" * 64))
    assert [] == audited(path)


@pytest.mark.parametrize(
    "event",
    [
        episode(turnIndex=2**53),
        episode(summary="x" * 1_000_001),
        episode(externalSessionId="é" * 40_000),
        fact(sourceEventId="x" * 70_000),
        fact(confidence=2),
        {**fact(), "validFrom": "2026-01-01"},
    ],
    ids=["turnIndex", "summary", "session", "source", "confidence", "time"],
)
def test_bounds(path: Path, event: dict[str, Any]) -> None:
    """Refused by name, nothing stored."""
    with pytest.raises(errors.InvalidEventError):
        save(path, event)
    with open_view(path) as view:
        assert 0 == view.state.rows


def test_long_texts_nul_and_lone_surrogates_are_kept_exactly(path: Path) -> None:
    """In the payload, from log and file; the searchable copy reads U+FFFD."""
    event = episode("\ud800a\0" + "x" * 100_000, externalSessionId="s\udc00", sourceEventId="e\0")
    save(path, event)
    for _ in range(2):
        with open_view(path) as view:
            (row,) = view.events_of_scope(bytes.fromhex(scope_key(SCOPE)))
            assert canonical_ascii(event) == row.payload
            assert "User: \ufffda\ufffd" == view.record(0).chunk[:9]
        checkpoint(path)
    assert "exists" == save(path, event).status
    with pytest.raises(errors.ConflictError):
        save(path, {**episode("b", externalSessionId="s\udc00", sourceEventId="e\0")})
    assert "saved" == save(path, episode("b", externalSessionId="s\ud801", sourceEventId="e\0")).status


def test_the_vector_stands_beside_the_event(path: Path) -> None:
    """It is no part of the payload and does not tell events apart."""
    save(path, {**fact(), "embedding": [1, 2, 3, 4]})
    assert "exists" == save(path, fact()).status
    with open_view(path) as view:
        assert 8 == len(view.record(0).vector or b"")
        (row,) = view.events_of_scope(bytes.fromhex(scope_key(SCOPE)))
        assert canonical_ascii(fact()) == row.payload
    with pytest.raises(errors.DimensionError):
        save(path, {**fact("x"), "embedding": [1]})


def _save_in_process(path: str, text: str) -> str:
    try:
        with Writer.open(path, 30.0, "ann") as writer:
            status = save_event(writer, episode(text)).status
            writer.commit()
    except errors.ConflictError:
        return "conflict"
    return status


@pytest.mark.parametrize(("texts", "loser"), [(["same"] * 16, "exists"), ([str(n) for n in range(16)], "conflict")])
def test_sixteen_processes_save_one_event(path: Path, texts: list[str], loser: str) -> None:
    """One row and fifteen `exists`; with different texts of one source event one winner and fifteen conflicts."""
    with get_context("fork").Pool(16) as pool:
        answers = pool.starmap(_save_in_process, [(str(path), text) for text in texts])
    assert sorted(["saved", *[loser] * 15]) == sorted(answers)
    with open_view(path) as view:
        assert 1 == view.state.rows
