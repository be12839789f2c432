"""The outbox: durable names, three ids that must agree, poison set aside, draining twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import errors
from clawmem_core.contract.canonical import canonical_ascii
from clawmem_core.contract.correcting import replace
from clawmem_core.contract.outbox import MAX_FILES, Outbox, drain
from clawmem_core.storage import fs
from clawmem_core.storage.paths import StorePaths
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, episode, fact, make_store, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path)


def put(path: Path, *events: dict[str, Any]) -> list[str]:
    outbox = Outbox(StorePaths(path))
    with outbox.locked(create=True):
        return [outbox.put(event) for event in events]


def drained(path: Path, **options: Any) -> dict[str, Any]:
    with Writer.open(path, 10.0, "ann") as writer:
        return drain(writer, Outbox(writer.paths), **options)


def rows(path: Path) -> int:
    with open_view(path) as view:
        return view.state.rows


def turn(number: int) -> dict[str, Any]:
    return episode(f"turn {number}", sourceEventId=f"t{number}", turnIndex=number)


def test_files_are_private_ordered_and_complete(path: Path) -> None:
    """Name, mode, content; the order of names is that of arrival."""
    names = put(path, *[turn(number) for number in range(3)])
    folder = Path(f"{path}.outbox")
    assert sorted(names) == names == sorted(os.listdir(folder))
    assert 0o700 == folder.stat().st_mode & 0o777
    for number, name in enumerate(names):
        assert (20, turn(number)["eventId"][:16]) == (len(name.split("-")[0]), name[21:37])
        assert canonical_ascii(turn(number)) + b"\n" == (folder / name).read_bytes()
        assert 0o600 == (folder / name).stat().st_mode & 0o777


def test_draining_twice_changes_nothing(path: Path) -> None:
    """The files are gone, the rows are there once; a file that is put back is known."""
    names = put(path, *[turn(number) for number in range(70)])
    first = (Path(f"{path}.outbox") / names[0]).read_bytes()
    assert (70, 0, 0) == tuple(drained(path)[name] for name in ("saved", "exists", "left"))
    assert (0, 0, 0) == tuple(drained(path)[name] for name in ("saved", "exists", "left"))
    (Path(f"{path}.outbox") / names[0]).write_bytes(first)
    checkpoint(path)
    assert 1 == drained(path)["exists"]
    assert 70 == rows(path)


def test_a_file_is_removed_only_after_the_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the commit keeps it; the next drain takes it in once."""
    (name,) = put(path, turn(0))

    def full(*_: Any) -> None:
        raise errors.StorageError(path="x", detail="no space", errno=28)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "fdatasync", full)
        with pytest.raises(errors.UncertainWriteError):
            drained(path)
    assert [name] == os.listdir(f"{path}.outbox")
    drained(path)
    assert ([], 1) == (os.listdir(f"{path}.outbox"), rows(path))


def test_a_crash_after_the_commit_leaves_one_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is found again and known."""
    put(path, turn(0), turn(1))
    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "remove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            drained(path)
    assert (2, 2) == (len(os.listdir(f"{path}.outbox")), rows(path))
    assert 2 == drained(path)["exists"]
    assert 2 == rows(path)


def _poison() -> dict[str, bytes]:
    """Bad files by name."""
    good, id = canonical_ascii(turn(500)), turn(500)["eventId"]
    contents = [
        b"{",
        good[:-1] + b',"eventType":"episode"}',
        b"[]",
        canonical_ascii({**turn(500), "userText": "tampered"}),
        canonical_ascii({**turn(500), "eventId": turn(501)["eventId"]}),
        canonical_ascii({**turn(500), "turnIndex": -1}),
        b'{"a":"\xff"}',
    ]
    files = {f"{number:020d}-{id[:16]}.json": content for number, content in enumerate(contents)}
    return {**files, f"{99:020d}-{'0' * 16}.json": good, "note.txt": good}


def test_poison_is_set_aside_and_the_rest_goes_on(path: Path) -> None:
    """Bad JSON, tampered texts and ids, renamed files, among a hundred good ones."""
    put(path, *[turn(number) for number in range(100)])
    for name, content in _poison().items():
        (Path(f"{path}.outbox") / name).write_bytes(content)
    answer = drained(path)
    assert (100, 0) == (answer["saved"], answer["left"])
    assert sorted(_poison()) == sorted(one["file"] for one in answer["quarantined"])
    assert 100 == rows(path)
    listing = Outbox(StorePaths(path)).listing()
    assert ([], sorted(_poison())) == (listing["waiting"], [one["file"] for one in listing["quarantined"]])
    for one in listing["quarantined"]:
        assert one["message"]
        assert _poison()[one["file"]] == (Path(f"{path}.outbox/quarantine") / one["file"]).read_bytes()


def test_a_folder_or_pipe_is_poison(path: Path) -> None:
    """Nothing is opened that could hang."""
    put(path, turn(0))
    os.mkfifo(f"{path}.outbox/{1:020d}-{'0' * 16}.json")
    os.symlink("/dev/zero", f"{path}.outbox/{2:020d}-{'0' * 16}.json")
    answer = drained(path)
    assert (1, 2) == (answer["saved"], len(answer["quarantined"]))


def test_retry_brings_files_back(path: Path) -> None:
    """All or those named; one that is good by now is taken in."""
    put(path)
    os.makedirs(f"{path}.outbox", exist_ok=True)
    name = f"{1:020d}-{turn(0)['eventId'][:16]}.json"
    bad = Path(f"{path}.outbox") / name
    for _ in range(2):
        bad.write_bytes(b"{")
        drained(path)
    outbox = Outbox(StorePaths(path))
    assert [name, f"{name}.1"] == outbox.quarantined()
    with pytest.raises(errors.NotFoundError):
        outbox.release(["other"])
    (Path(outbox.quarantine) / name).write_bytes(canonical_ascii(turn(0)))
    assert [name] == outbox.release([name])
    assert 1 == drained(path)["saved"]
    assert [f"{name}.1"] == outbox.quarantined()


def test_the_outbox_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused loudly, nothing lost."""
    monkeypatch.setattr("clawmem_core.contract.outbox.MAX_FILES", 3)
    put(path, *[turn(number) for number in range(3)])
    with pytest.raises(errors.OutboxFullError):
        put(path, turn(3))
    assert (10_000, 3) == (MAX_FILES, len(os.listdir(f"{path}.outbox")))


def test_only_one_scope_if_asked(path: Path) -> None:
    """Others wait."""
    put(path, turn(0), episode("x", **OTHER_SCOPES["agentId"]))
    answer = drained(path, scope=SCOPE)
    assert (1, 1) == (answer["saved"], answer["left"])


def test_the_original_file_of_a_replaced_fact_changes_nothing(path: Path) -> None:
    """Nor does it once the log is in the file."""
    original = fact("tea")
    put(path, original)
    name = os.listdir(f"{path}.outbox")[0]
    content = Path(f"{path}.outbox/{name}").read_bytes()
    drained(path)
    with Writer.open(path, 1.0, "ann") as writer:
        replace(writer, SCOPE, original["factId"], {"text": "coffee"})
    for _ in range(2):
        Path(f"{path}.outbox/{name}").write_bytes(content)
        assert 1 == drained(path)["exists"]
        with open_view(path) as view:
            assert 2 == view.state.rows
            assert 3 == sum(1 for _ in view.events())
        checkpoint(path)


def test_a_rejected_value_is_taken_in_as_pending(path: Path) -> None:
    """And its file is gone."""
    save(path, fact("tea"))
    with Writer.open(path, 1.0, "ann") as writer:
        replace(writer, SCOPE, fact("tea")["factId"], {"text": "coffee"})
    put(path, fact("tea", sourceEventId="t2"))
    assert (1, 0) == (drained(path)["pending"], drained(path)["left"])


def test_stale_temporary_files_go(path: Path) -> None:
    """Whatever a killed capture left."""
    put(path, turn(0))
    stale = Path(f"{path}.outbox/x.json.tmp-1-2")
    stale.write_text(json.dumps(turn(1)))
    assert 1 == drained(path)["saved"]
    assert not stale.exists()
