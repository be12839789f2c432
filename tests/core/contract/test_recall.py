"""What a read of events may see, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawmem_core import clock
from clawmem_core.contract.event_keys import EPISODE, FACT
from clawmem_core.contract.lifecycle import MIXED, TRUSTED, UNTRUSTED
from clawmem_core.contract.recall import EventFilter, plain_ids, read_scope_rows, recall_event, search_events
from clawmem_core.contract.scope import scope_key
from clawmem_core.errors import NotFoundError
from clawmem_core.model import MemoryEntry, SearchOptions
from clawmem_core.store import MemoryStore
from clawmem_core.view import open_view
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, episode, fact, make_store, save

KEY = bytes.fromhex(scope_key(SCOPE))
STATES = ("log", "file", "both")


@pytest.fixture(params=STATES)
def filled(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A store whose events lie in the log, in the file, or in both."""
    path = make_store(tmp_path)
    save(path, fact("tea alpha", sourceEventId="t1"), episode("tea beta", sourceEventId="t1"))
    if request.param == "both":
        checkpoint(path)
    save(path, fact("tea gamma", sourceEventId="t2", trustClass="untrusted", confidence=0.3))
    later = {"externalSessionId": "session-2", "sourceEventId": "t2", "observedAt": "2999-01-01T00:00:00Z"}
    save(path, episode("tea delta", **later))
    if request.param == "file":
        checkpoint(path)
    return path


def seen(path: Path, **wanted: Any) -> set[int]:
    with open_view(path) as view:
        return set(read_scope_rows(view, KEY, EventFilter(**wanted)).rows)


def test_filters(filled: Path) -> None:
    """Trust, confidence, label, session with the facts that came from it, validity of episodes."""
    assert {0, 1, 3} == seen(filled)
    assert {0, 1, 2, 3} == seen(filled, min_trust=UNTRUSTED)
    assert {0} == seen(filled, min_trust=TRUSTED)
    assert {0, 1, 3} == seen(filled, min_trust=UNTRUSTED, min_confidence=0.5)
    assert {1, 3} == seen(filled, labels=[EPISODE])
    assert {0} == seen(filled, labels=[FACT])
    assert {3} == seen(filled, exclude_session="session-1")
    assert {0, 1} == seen(filled, min_trust=UNTRUSTED, exclude_session="session-2")
    assert {0, 1} == seen(filled, as_of=clock.now())
    assert set() == seen(filled, known_at=0.0)


@pytest.mark.parametrize("field", OTHER_SCOPES)
def test_another_scope_sees_nothing(filled: Path, field: str) -> None:
    """Whichever of the five fields differs; the own scope does see."""
    with open_view(filled) as view:
        key = bytes.fromhex(scope_key(OTHER_SCOPES[field]))
        assert {} == read_scope_rows(view, key, EventFilter(min_trust=UNTRUSTED)).rows
        with pytest.raises(NotFoundError, match="no record 0"):
            recall_event(view, 0, key, EventFilter())
        assert "tea alpha" == recall_event(view, 0, KEY, EventFilter())[0].chunk


def test_search_ranks_by_trust_and_confidence(tmp_path: Path) -> None:
    """Identical texts: the more trusted and the surer one first."""
    path = make_store(tmp_path)
    saved = [("untrusted", 1.0), ("mixed", 1.0), ("trusted", 0.2), ("trusted", 1.0)]
    for number, (trust, confidence) in enumerate(saved):
        save(path, fact("same words", sourceEventId=f"t{number}", trustClass=trust, confidence=confidence))
    with open_view(path) as view:
        readable = read_scope_rows(view, KEY, EventFilter(min_trust=UNTRUSTED))
        assert [3, 1, 0, 2] == [hit.index for hit in search_events(view, readable, KEY, None, "words", SearchOptions())]
        readable = read_scope_rows(view, KEY, EventFilter(min_trust=MIXED))
        assert [3, 1, 2] == [hit.index for hit in search_events(view, readable, KEY, None, "words", SearchOptions())]


def test_raising_only_confidence_never_lowers_a_rank(tmp_path: Path) -> None:
    """Monotone."""
    places = []
    for step in range(5):
        path = make_store(tmp_path, f"{step}.h5")
        save(path, *[fact("same words", sourceEventId=f"t{n}", confidence=n / 4) for n in range(5)])
        save(path, fact("same words", sourceEventId="x", confidence=step / 4))
        with open_view(path) as view:
            readable = read_scope_rows(view, KEY, EventFilter())
            hits = search_events(view, readable, KEY, None, "words", SearchOptions(k=6))
            places.append([hit.index for hit in hits].index(5))
    assert sorted(places, reverse=True) == places and places[0] > places[-1]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_plain_searches_never_show_events(tmp_path: Path, checkpointed: bool) -> None:
    """Nor get, records, delete or boost; over all scopes both are there."""
    path = make_store(tmp_path)
    save(path, fact("shared words"), episode("shared words"))
    with MemoryStore.open(path) as store:
        store.save(MemoryEntry("shared words, plain"))
        if checkpointed:
            store.flush_wal()
        assert [2] == [hit.index for hit in store.search(None, "shared words")]
        assert [2] == [record.id for record in store.records()]
        for refused in (store.get, store.delete, store.boost):
            with pytest.raises(NotFoundError):
                refused([0] if refused == store.boost else 0)  # type: ignore[arg-type]
    with open_view(path) as view:
        assert {2} == plain_ids(view)
        readable = read_scope_rows(view, None, EventFilter())
        assert {0, 1, 2} == {hit.index for hit in search_events(view, readable, None, None, "words", SearchOptions())}


def test_neighbour_context_never_crosses_scopes(tmp_path: Path) -> None:
    """A neighbour of the same session id in another scope lends no words; in the own scope it does."""
    path = make_store(tmp_path)
    other = OTHER_SCOPES["agentId"]
    scores = {}
    for name, scope in (("own", SCOPE), ("foreign", other)):
        path = make_store(tmp_path, f"{name}.h5")
        save(path, episode("alpha words", sourceEventId="a", turnIndex=0))
        save(path, episode("secretneighbour", sourceEventId="b", turnIndex=1, **scope))
        with open_view(path) as view:
            hits = search_events(
                view, read_scope_rows(view, KEY, EventFilter()), KEY, None, "secretneighbour", SearchOptions()
            )
            scores[name] = {hit.index for hit in hits}
    assert {0, 1} == scores["own"]
    assert set() == scores["foreign"]
