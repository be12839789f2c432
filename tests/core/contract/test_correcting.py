"""Corrections: each one frame, one active fact at every step, nothing across scopes, everything on record."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import clock, errors
from clawmem_core.contract import audit
from clawmem_core.contract.correcting import expire, history, replace, retract
from clawmem_core.contract.lifecycle import ACTIVE, PENDING
from clawmem_core.contract.recall import EventFilter, read_scope_rows, search_events
from clawmem_core.contract.review import approve, pending, reject
from clawmem_core.contract.scope import scope_key
from clawmem_core.model import SearchOptions
from clawmem_core.storage.row_ops import STATUSES
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, episode, fact, make_store, save

KEY = bytes.fromhex(scope_key(SCOPE))


@pytest.fixture(params=["log", "file"])
def between(request: pytest.FixtureRequest) -> Any:
    """Called between two steps: does nothing, or moves the log into the file."""
    return checkpoint if request.param == "file" else lambda path: None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path)


def change(path: Path, what: Any, *arguments: Any, actor: str = "ann", scope: Any = SCOPE, **options: Any) -> Any:
    """One correction with a writer of its own."""
    with Writer.open(path, 10.0, actor) as writer:
        return what(writer, scope, *arguments, **options)


def states(path: Path) -> dict[str, str]:
    """Text and state of the current version of every fact."""
    with open_view(path) as view:
        rows = [row for row in view.events_of_scope(KEY) if not row.recorded_to and row.label == 2]
        return {view.record(row.record_id).chunk: STATUSES[row.status] for row in rows}


def seen(path: Path, **wanted: Any) -> set[str]:
    """Texts that a read may see."""
    with open_view(path) as view:
        rows = read_scope_rows(view, KEY, EventFilter(**wanted)).rows
        return {view.record(id).chunk for id in rows}


def audited(path: Path) -> list[str]:
    with open_view(path) as view:
        return [audit.parse_line(line).op for line in view.overlay.audit]


def test_replace_links_both_ways_and_inherits(path: Path, between: Any) -> None:
    """Version 1 stays as it was; validity ends where the new one begins; what is not given comes from the old."""
    old = fact("tea", confidence=0.4, validUntil="2999-01-01T00:00:00Z")
    save(path, old)
    between(path)
    fields = {"text": "coffee", "validFrom": "2026-06-01T00:00:00Z"}
    answer = change(path, replace, old["factId"], fields, reason="said so")
    between(path)
    assert ("replaced", [old["factId"]], []) == (answer["status"], answer["superseded"], answer["siblings"])
    first, second = history(str(path), SCOPE, old["factId"])
    assert (old, "active", True, None) == (first["event"], first["status"], first["active"], first["superseded_by"])
    assert first["recorded_to"] == second["recorded_from"]
    assert (old, "superseded", False, answer["id"]) == (
        second["event"], second["status"], second["active"], second["superseded_by"],
    )  # fmt: skip
    assert ("2026-06-01T00:00:00Z", "said so", "ann") == (second["valid_until"], second["reason"], second["actor"])
    (new,) = history(str(path), SCOPE, answer["id"])
    assert (old["factId"], 0.4) == (new["supersedes"], new["event"]["confidence"])
    assert "validUntil" not in new["event"]
    assert {"coffee"} == seen(path)


def test_back_and_forth_has_one_active_fact_at_each_step(path: Path, between: Any) -> None:
    """A to B to A: the second A waits for review; approved, it closes B."""
    a = fact("tea")
    save(path, a)
    between(path)
    b = change(path, replace, a["factId"], {"text": "coffee"})["id"]
    between(path)
    assert {"tea": "superseded", "coffee": "active"} == states(path)
    again = change(path, replace, b, {"text": " TEA ", "sourceEventId": "turn-9"})
    between(path)
    assert ("pending", []) == (again["status"], again["superseded"])
    assert {"coffee"} == seen(path)
    approved = change(path, approve, again["id"], actor="bob")
    between(path)
    assert [b] == approved["superseded"]
    assert {"tea": "superseded", "coffee": "superseded", " TEA ": "active"} == states(path)
    assert {" TEA "} == seen(path)
    saved = save(path, fact("Coffee", sourceEventId="turn-10"))
    assert "pending" == saved.status
    assert "saved" == save(path, fact("tea", sourceEventId="turn-11")).status  # its tombstone was lifted


@pytest.mark.parametrize(
    "again",
    [
        {"text": "likes tea", "sourceEventId": "later"},
        {"text": "likes tea", "runtime": "hermes"},
        {"text": "  Likes \u00a0 TEA\u200b ", "sourceEventId": "later"},
    ],
    ids=["turn", "runtime", "spelling"],
)
def test_a_rejected_value_is_held(path: Path, between: Any, again: dict[str, Any]) -> None:
    """From a later turn, another runtime, in other spacing or case; another value is not."""
    old = fact()
    save(path, old)
    change(path, replace, old["factId"], {"text": "likes coffee"})
    between(path)
    held = save(path, fact(**again), actor="eve")
    assert "pending" == held.status
    assert "saved" == save(path, fact("likes water", sourceEventId="later")).status
    assert {"likes coffee", "likes water"} == seen(path)
    (item,) = pending(str(path), SCOPE)
    assert (held.id, "eve", again["text"]) == (item["id"], item["proposed_by"], item["text"])
    change(path, approve, held.id, actor="bob")
    assert {again["text"], "likes water"} == seen(path)  # what had replaced it gave way


def test_the_override_replaces_at_once(path: Path) -> None:
    """And lifts the tombstone."""
    a = fact("tea")
    save(path, a)
    b = change(path, replace, a["factId"], {"text": "coffee"})["id"]
    answer = change(path, replace, b, {"text": "tea", "sourceEventId": "t9"}, override="it was right after all")
    assert ("replaced", [b]) == (answer["status"], answer["superseded"])
    assert "saved" == save(path, fact("tea", sourceEventId="t10")).status
    assert "pending" == save(path, fact("coffee", sourceEventId="t11")).status


def test_replaying_the_old_fact_changes_nothing(path: Path, between: Any) -> None:
    """It exists, it is not believed again."""
    old = fact("tea")
    save(path, old)
    change(path, replace, old["factId"], {"text": "coffee"})
    between(path)
    assert "exists" == save(path, old).status
    assert {"tea": "superseded", "coffee": "active"} == states(path)


def _replace_in_process(path: str, old: str, text: str) -> str:
    try:
        return str(change(Path(path), replace, old, {"text": text})["status"])
    except errors.ConflictError:
        return "conflict"


def test_of_concurrent_replaces_one_wins(path: Path) -> None:
    """Never two successors."""
    old = fact("tea")
    save(path, old)
    with get_context("fork").Pool(4) as pool:
        answers = pool.starmap(_replace_in_process, [(str(path), old["factId"], f"drink {n}") for n in range(4)])
    assert ["conflict"] * 3 + ["replaced"] == sorted(answers)
    assert 1 == list(states(path).values()).count("active")
    assert ["event", "replace"] + ["refused-conflict"] * 3 == audited(path)


@pytest.mark.parametrize("field", OTHER_SCOPES)
def test_another_scope_is_not_found_in_the_same_words(path: Path, field: str) -> None:
    """As a random id is not; nothing is written."""
    old = fact("tea")
    save(path, old)
    scope = OTHER_SCOPES[field]
    for what, more in ((replace, ({"text": "x"},)), (retract, ()), (expire, ()), (approve, ()), (reject, ())):
        for id in (old["factId"], "7" * 64):
            with pytest.raises(errors.NotFoundError) as caught:
                change(path, what, id, *more, scope=scope)
            assert f"no fact {id}" == caught.value.message
    with pytest.raises(errors.NotFoundError):
        history(str(path), scope, old["factId"])
    assert [] == pending(str(path), scope)
    assert ["event"] == audited(path)
    assert 1 == len(history(str(path), SCOPE, old["factId"]))


def test_siblings_are_listed_and_taken_along(path: Path) -> None:
    """Differently worded copies on one subject and kind; another kind is none."""
    one, two, three = (fact(text, sourceEventId=text) for text in ("tea", "drinks tea", "tea drinker"))
    save(path, one, two, three, fact("blue", kind="colour"))
    answer = change(path, replace, one["factId"], {"text": "coffee"}, also=[two["factId"]])
    assert [three["factId"]] == answer["siblings"]
    assert [one["factId"], two["factId"]] == answer["superseded"]
    assert {"coffee", "tea drinker", "blue"} == seen(path)
    assert ["event", "replace"] == audited(path)
    assert "pending" == save(path, fact("Drinks tea", sourceEventId="z")).status


def test_a_marked_episode_ranks_below_the_new_fact(path: Path, between: Any) -> None:
    """Whether it was there when its fact was replaced or came later; without a replacement it is not marked."""
    fact_, early = fact("green tea", sourceEventId="t1"), episode("green tea, always green tea", sourceEventId="t1")
    save(path, fact_, early)
    between(path)
    with open_view(path) as view:
        readable = read_scope_rows(view, KEY, EventFilter())
        assert not any(row.marked for row in readable.rows.values())
    change(path, replace, fact_["factId"], {"text": "green coffee"})
    save(path, episode("green tea green", sourceEventId="t1", externalSessionId="s2"))
    between(path)
    with open_view(path) as view:
        readable = read_scope_rows(view, KEY, EventFilter())
        for k in (1, 2, 3):
            hits = search_events(view, readable, KEY, None, "green tea", SearchOptions(k=k))
            assert 2 == hits[0].index and k == len(hits)
        assert [False, True, True] == [readable.rows[id].marked for id in (2, 1, 3)]


@pytest.mark.parametrize("member", ["text", "subjectKey", "kind", "sourceEventId", "provenance"])
def test_secrets_are_refused(path: Path, member: str) -> None:
    """In the text and in what names things; no byte of it gets to the disk."""
    save(path, fact("tea"))
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    with pytest.raises(errors.InvalidInputError, match=member) as caught:
        change(path, replace, fact("tea")["factId"], {"text": "new", member: f"key {secret}"})
    assert secret not in caught.value.message
    assert not any(secret.encode() in file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, errors.InvalidEventError),
        ({"text": "tea"}, errors.ConflictError),
        ({"text": "x", "active": False}, errors.InvalidEventError),
        ({"text": "x", "supersedesFactId": "1" * 64}, errors.InvalidEventError),
        ({"text": "x", "factId": "1" * 64}, errors.ForgedIdError),
        ({"text": "x", "agentId": "other"}, errors.ScopeMismatchError),
        ({"text": "x", "colour": "red"}, errors.InvalidEventError),
    ],
    ids=["no text", "same value", "inactive", "other link", "forged", "scope", "unknown"],
)
def test_bad_replacements(path: Path, fields: dict[str, Any], error: type[Exception]) -> None:
    """Refused by name; the old fact stays."""
    save(path, fact("tea"))
    with pytest.raises(error):
        change(path, replace, fact("tea")["factId"], fields)
    assert {"tea": "active"} == states(path)


def test_retract_and_expire(path: Path, between: Any) -> None:
    """A retracted value is held when it comes again, an expired one is not; both are out of reads."""
    save(path, fact("tea"), fact("coffee"))
    change(path, retract, fact("tea")["factId"], reason="wrong")
    between(path)
    change(path, expire, fact("coffee")["factId"], at=1767225601.0)
    between(path)
    assert set() == seen(path)
    assert {"coffee"} == seen(path, as_of=1767225600.0)
    assert "pending" == save(path, fact("tea", sourceEventId="t2")).status
    assert "saved" == save(path, fact("coffee", sourceEventId="t2")).status
    for what in (retract, expire):
        with pytest.raises(errors.ConflictError):
            change(path, what, fact("tea")["factId"])


def test_a_tombstone_can_end(path: Path) -> None:
    """After its time the value is as good as any; also from the key table."""
    save(path, fact("tea"), fact("coffee"))
    change(path, retract, fact("tea")["factId"], expires=clock.now() - 2)
    change(path, retract, fact("coffee")["factId"], expires=clock.now() + 1000)
    for turn in ("t2", "t3"):
        assert "saved" == save(path, fact("tea", sourceEventId=turn)).status
        assert "pending" == save(path, fact("coffee", sourceEventId=turn)).status
        checkpoint(path)


def test_review(path: Path) -> None:
    """Its proposer cannot decide, on record; a rejected fact stays out, and is decided on once."""
    save(path, fact("tea"))
    change(path, retract, fact("tea")["factId"])
    held = save(path, fact("tea", sourceEventId="t2"), actor="eve")
    for what in (approve, reject):
        with pytest.raises(errors.SelfReviewError):
            change(path, what, held.id, actor="eve")
    assert ["refused-review"] * 2 == audited(path)[-2:]
    assert "rejected" == change(path, reject, held.id, actor="bob")["status"]
    assert [] == pending(str(path), SCOPE)
    with pytest.raises(errors.ConflictError):
        change(path, approve, held.id, actor="bob")
    assert "pending" == save(path, fact("tea", sourceEventId="t3")).status


def test_a_rejected_value_outlives_the_tombstone_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reviewer rejected stays rejected when an earlier rejection ends."""
    save(path, fact("tea"))
    now = clock.now()
    change(path, retract, fact("tea")["factId"], expires=now + 1000)
    held = save(path, fact("tea", sourceEventId="t2"), actor="eve").id
    change(path, reject, held, actor="bob")
    monkeypatch.setattr(clock, "now", lambda: now + 2000)
    assert "pending" == save(path, fact("tea", sourceEventId="t3")).status


def test_a_rejection_does_not_forget_what_took_the_place(path: Path) -> None:
    """A value that was replaced, proposed again and rejected still closes its rival when it is approved at last."""
    save(path, fact("tea"))
    new = change(path, replace, fact("tea")["factId"], {"text": "coffee"})["id"]
    first, second = (save(path, fact("tea", sourceEventId=turn), actor="eve").id for turn in ("t2", "t3"))
    change(path, reject, first, actor="bob")
    assert [new] == change(path, approve, second, actor="bob")["superseded"]
    assert {"tea"} == seen(path)


def test_approving_is_a_conflict_when_the_old_fact_is_gone(path: Path) -> None:
    """Somebody replaced it meanwhile; nothing changes."""
    a = fact("tea")
    save(path, a)
    b = change(path, replace, a["factId"], {"text": "coffee"})["id"]
    held = change(path, replace, b, {"text": "tea", "sourceEventId": "t2"})["id"]
    change(path, replace, b, {"text": "water"})
    before = states(path)
    with pytest.raises(errors.ConflictError):
        change(path, approve, held, actor="bob")
    assert before == states(path)
    assert (ACTIVE, PENDING) == (STATUSES.index(before["water"]), STATUSES.index("pending"))


def test_as_of_grid(path: Path, between: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid time by record time over insert, back-dated insert, replace, retroactive expiry and retraction."""
    start = 1_800_000_000
    now = [start]
    monkeypatch.setattr(clock, "now_us", lambda: now[0] * 1_000_000)
    monkeypatch.setattr(clock, "now", lambda: float(now[0]))

    def day(number: int) -> int:
        return start + number * 86_400

    def time(number: int) -> str:
        from clawmem_core.times import format_rfc3339

        return format_rfc3339(float(day(number)))

    steps: list[Any] = [
        lambda: save(path, fact("A", validFrom=time(10))),
        lambda: save(path, fact("old", validFrom=time(5), kind="other")),  # back-dated
        lambda: change(path, replace, fact("A", validFrom=time(10))["factId"], {"text": "B", "validFrom": time(20)}),
        lambda: change(path, expire, fact("old", validFrom=time(5), kind="other")["factId"], at=float(day(8))),
        lambda: change(path, retract, b_id()),
    ]

    def b_id() -> str:
        with open_view(path) as view:
            (row,) = [r for r in view.events_of_scope(KEY) if not r.recorded_to and r.payload.find(b'"text":"B"') > 0]
            return row.event_id.hex()

    for number, step in enumerate(steps):
        now[0] = day(100 + number)
        step()
        between(path)
    valid = (4, 6, 9, 12, 25)
    expected = {  # on record from this day on: what held on days 4, 6, 9, 12 and 25
        99: ("", "", "", "", ""),
        100: ("", "", "", "A", "A"),
        101: ("", "old", "old", "A old", "A old"),
        102: ("", "old", "old", "A old", "B old"),
        103: ("", "old", "", "A", "B"),
        104: ("", "old", "", "A", ""),
    }
    for known, row in expected.items():
        found = tuple(
            " ".join(sorted(seen(path, as_of=float(day(at)), known_at=float(day(known))))) for at in valid
        )  # fmt: skip
        assert row == found, known
    assert row == tuple(" ".join(sorted(seen(path, as_of=float(day(at))))) for at in valid)


def test_record_time_never_goes_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the clock set back the order of versions stays."""
    save(path, fact("tea"))
    monkeypatch.setattr(clock, "now_us", lambda: 5)
    change(path, retract, fact("tea")["factId"])
    first, second = history(str(path), SCOPE, fact("tea")["factId"])
    assert first["recorded_from"] < second["recorded_from"] == first["recorded_to"]
