"""Purge: exactly the plan that was shown, and no byte of it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawmem_core import errors
from clawmem_core.contract import audit
from clawmem_core.contract.correcting import replace
from clawmem_core.contract.outbox import Outbox
from clawmem_core.contract.purging import Selection, dry_run, execute
from clawmem_core.integrity.keys import keygen
from clawmem_core.integrity.signing import Signing
from clawmem_core.model import MemoryEntry
from clawmem_core.storage.paths import StorePaths
from clawmem_core.store import MemoryStore
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, episode, fact, make_store, save
from tests.core.contract.test_capturing import leaks

TEXT = 'the purple elephant \u00e9 "quoted"'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return make_store(folder)


def purge(path: Path, wanted: Selection, digest: str = "", **options: Any) -> dict[str, Any]:
    digest = digest or dry_run(str(path), wanted)["digest"]
    with Writer.open(path, 1.0, "ann") as writer:
        return execute(writer, wanted, digest, **options)


def fill(path: Path) -> None:
    """The text in file and log, a fact with history, an episode, a record, files in outbox, quarantine and beside."""
    with MemoryStore.open(path) as store:
        store.save(MemoryEntry(f"{TEXT} in a record", [1, 2, 3, 4], session_id="plain", key="k"))
        store.add_session("plain", 0, 0, summary=TEXT)
        store.save(MemoryEntry("stays"))
    save(path, fact(TEXT), fact("stays too", sourceEventId="s"))
    checkpoint(path)
    with Writer.open(path, 1.0, "ann") as writer:
        replace(writer, SCOPE, fact(TEXT)["factId"], {"text": f"{TEXT} no more"})
    save(path, episode(TEXT, sourceEventId="e9"), episode("stays as well", sourceEventId="e10", turnIndex=1))
    outbox = Outbox(StorePaths(path))
    with outbox.locked(create=True):
        outbox.put(episode(TEXT, sourceEventId="e11"))
        outbox.put(episode("stays waiting", sourceEventId="e12"))
    bad = Path(outbox.folder) / f"{1:020d}-{'0' * 16}.json"
    bad.write_text('{"userText": "' + TEXT.replace('"', '\\"'), encoding="utf-8")
    Path(f"{path}.wal.corrupt-1-aa").write_bytes(b"??" + TEXT.encode())
    Path(f"{path}.ann").write_bytes(b"graph")
    Path(f"{path}.tmp-99-abc").write_bytes(TEXT.encode())


def test_nothing_of_it_is_left(path: Path) -> None:
    """In no file, in no form; everything else stays."""
    fill(path)
    assert leaks(path.parent, [TEXT])
    with open_view(path) as view:
        ids = [row.event_id.hex() for row in view.events() if b"purple" in row.payload]
    answer = purge(path, Selection(events=list(dict.fromkeys(ids)), sessions=["plain"]))
    assert ("purged", 3, 4) == (answer["status"], len(answer["events"]), answer["counts"]["records"])
    assert (["plain"], 2, 1) == (answer["sessions"], len(answer["outbox"]), len(answer["quarantine"]))
    assert [] == leaks(path.parent, [TEXT, "purple elephant"])
    assert not any(b"elephant" in file.read_bytes() for file in path.parent.rglob("*") if file.is_file())
    with open_view(path) as view:
        assert ["stays", "stays too", "User: stays as well"] == [record.chunk for record in view.records()]
        assert (3, 3, 2) == (view.state.rows, view.state.active, view.state.event_rows)
        assert ["purge"] == [line.op for line in audit.parse_lines(view.audit_lines())][-1:]
        assert audit.verify_lines(view.audit_lines(), view.state.audit_head) is None
    assert "pending" == save(path, fact(TEXT, sourceEventId="again")).status  # the tombstone stays
    with MemoryStore.open(path) as store:
        assert ("saved", 5) == (lambda found: (found.status, found.count))(store.save_or_update("k", MemoryEntry("x")))


def test_the_plan_shows_ids_and_changes_nothing(path: Path) -> None:
    """The same twice, without a text."""
    fill(path)
    before = {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}
    plan = dry_run(str(path), Selection(records=[0]))
    assert plan == dry_run(str(path), Selection(records=[0]))
    assert before == {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}
    assert [0] == plan["records"]
    assert "elephant" not in str(plan)


def test_a_changed_store_or_plan_is_refused(path: Path) -> None:
    """On record; nothing is gone."""
    fill(path)
    digest = dry_run(str(path), Selection(records=[0]))["digest"]
    for wanted in (Selection(records=[1]), Selection(records=[0, 1])):
        with pytest.raises(errors.ConflictError):
            purge(path, wanted, digest)
    save(path, fact("one more", sourceEventId="m"))
    with pytest.raises(errors.ConflictError):
        purge(path, Selection(records=[0]), digest)
    with open_view(path) as view:
        assert view.find(0) is not None
        assert ["refused-purge"] * 2 == [audit.parse_line(line).op for line in view.overlay.audit][-4:-2]
    checkpoint(path)  # moves what is there, changes nothing of it
    assert "purged" == purge(path, Selection(records=[0]))["status"]


def test_a_refusal_or_a_checkpoint_leaves_the_plan_good(path: Path) -> None:
    """Only what is stored counts."""
    fill(path)
    wanted = Selection(records=[0])
    digest = dry_run(str(path), wanted)["digest"]
    with pytest.raises(errors.ConflictError):
        purge(path, wanted, "0" * 64)
    checkpoint(path)
    assert "purged" == purge(path, wanted, digest)["status"]


def test_a_scope_limits_what_can_go(path: Path) -> None:
    """An event or session of another scope is not found; a scope alone is all of it."""
    save(path, fact("tea"), fact("tea", **OTHER_SCOPES["agentId"]), episode("tea"))
    other = OTHER_SCOPES["profileId"]
    for wanted in (
        Selection(events=[fact("tea")["factId"]], scope=other),
        Selection(records=[0], scope=other),
        Selection(sessions=["session-1"], scope=other),
        Selection(events=["0" * 64]),
        Selection(records=[99]),
    ):
        with pytest.raises(errors.NotFoundError):
            dry_run(str(path), wanted)
    assert [0, 2] == dry_run(str(path), Selection(scope=SCOPE))["records"]
    assert [] == dry_run(str(path), Selection(scope=other))["records"]
    purge(path, Selection(scope=SCOPE))
    with open_view(path) as view:
        assert [1] == [record.id for record in view.records()]


def test_turns_that_wait_go_by_session_id_and_scope(path: Path) -> None:
    """Also those the store never had, and those in quarantine; not another session's, nor another scope's."""
    outbox = Outbox(StorePaths(path))
    other = OTHER_SCOPES["profileId"]
    turns = [
        episode("waits", sourceEventId="w1"),
        episode("waits elsewhere", sourceEventId="w2", **other),
        episode("waits in another session", externalSessionId="session-2"),
        {**episode("forged", sourceEventId="w3"), "userText": "not what was said"},
    ]
    with outbox.locked(create=True):
        names = [outbox.put(turn) for turn in turns]
        outbox.set_aside(names[3], errors.InvalidInputError(field="x", detail="forged"))
    aside = f"quarantine/{names[3]}"

    def planned(**wanted: Any) -> list[str]:
        return list(dry_run(str(path), Selection(**wanted))["outbox"])

    assert [names[0], aside] == planned(sessions=["session-1"], scope=SCOPE)
    assert [*names[:2], aside] == planned(sessions=["session-1"])
    assert [names[2]] == planned(events=[turns[2]["eventId"]])
    assert [names[0], names[2], aside] == planned(scope=SCOPE)
    assert [] == planned()
    with pytest.raises(errors.NotFoundError):
        planned(sessions=["session-2"], scope=other)
    purge(path, Selection(sessions=["session-1"], scope=SCOPE))
    assert (names[1:3], []) == (outbox.names(), outbox.quarantined())


def test_a_scope_does_not_see_what_waits_for_another(path: Path) -> None:
    """The same telling text in two scopes: a purge of one neither names nor removes the other's turn."""
    save(path, episode(TEXT))
    outbox = Outbox(StorePaths(path))
    with outbox.locked(create=True):
        names = [outbox.put(episode(TEXT, sourceEventId="w", **scope)) for scope in ({}, *OTHER_SCOPES.values())]
    wanted = {"events": [episode(TEXT)["eventId"]]}
    assert names[:1] == dry_run(str(path), Selection(**wanted, scope=SCOPE))["outbox"]
    assert names == dry_run(str(path), Selection(**wanted))["outbox"]
    purge(path, Selection(**wanted, scope=SCOPE))
    assert names[1:] == outbox.names()


def test_a_signed_store_needs_its_key_first(path: Path, tmp_path: Path) -> None:
    """Refused before anything is removed."""
    fill(path)
    key = str(tmp_path / "key")
    keygen(key)
    signing = Signing.from_file(key)
    with Writer.open(path, 1.0, "ann") as writer:
        writer.checkpoint(signing)
    before = sorted(file.name for file in path.parent.rglob("*"))
    with pytest.raises(errors.SigningKeyRequiredError):
        purge(path, Selection(records=[0]))
    assert before == sorted(file.name for file in path.parent.rglob("*"))
    assert "purged" == purge(path, Selection(records=[0]), signing=signing)["status"]


def test_a_failed_checkpoint_is_finished_by_the_next_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame says so: the next save checkpoints at once, and the texts are gone."""
    fill(path)
    gone = episode("soon gone", sourceEventId="gone", turnIndex=9)
    save(path, gone)
    monkeypatch.setattr("clawmem_core.contract.purging._FRAME_KEYS", 1)

    def broken(*_: Any, **__: Any) -> None:
        raise errors.StorageError(path="x", detail="no space", errno=28)

    with monkeypatch.context() as patch:
        patch.setattr("clawmem_core.storage.checkpoint.checkpoint", broken)
        with pytest.raises(errors.UnfinishedError) as raised:
            purge(path, Selection(events=[gone["eventId"]], records=[0], sessions=["plain"]))
    assert "x: no space; the purge is in the log" in raised.value.message
    with open_view(path) as view:
        assert view.find(0) is None
    assert "saved" == save(path, gone).status  # not `exists`
    with MemoryStore.open(path) as store:
        assert store.save(MemoryEntry("next")).status == "saved"
    assert not any(b"in a record" in file.read_bytes() for file in path.parent.glob("m.h5*") if file.is_file())
