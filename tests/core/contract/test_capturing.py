"""Capture into store and outbox: one turn once, its index kept, no secret on the disk."""

from __future__ import annotations

import base64
import json
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from clawmem_core import errors
from clawmem_core.contract import audit
from clawmem_core.contract.capturing import capture
from clawmem_core.contract.identities import create_episode_event
from clawmem_core.contract.outbox import Outbox, drain
from clawmem_core.contract.render import format_recalled_memories
from clawmem_core.contract.scope import scope_key
from clawmem_core.storage.paths import StorePaths
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, make_store
from tests.core.contract.test_redaction import CASES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path)


def pair(user: str = "I like tea", assistant: str = "noted") -> list[dict[str, str]]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def taken(path: Path, source: str = "t1", messages: Any = None, scope: Any = SCOPE, **options: Any) -> dict[str, Any]:
    metadata = {
        "runtime": "custom", "externalSessionId": options.pop("session", "s1"), "conversationKind": "local",
        "observedAt": options.pop("observed", "2026-01-01T00:00:00Z"), "provenance": "test",
    }  # fmt: skip
    if source:
        metadata["sourceEventId"] = source
    return capture(
        str(path), messages or pair(), scope=scope, metadata=metadata, actor="ann", **options
    )  # fmt: skip


def drained(path: Path) -> dict[str, Any]:
    with Writer.open(path, 10.0, "ann") as writer:
        return drain(writer, Outbox(writer.paths))


def test_the_same_turn_is_kept_once(path: Path) -> None:
    """A hook that fires twice, later, from the store or the outbox, before or after a checkpoint."""
    first = taken(path)
    assert ("saved", 0) == (first["status"], first["turnIndex"])
    for queue in (False, True):
        again = taken(path, observed="2026-02-02T00:00:00Z", queue=queue)
        assert ("exists", first["id"], 0) == (again["status"], again["id"], again["turnIndex"])
    checkpoint(path)
    assert "exists" == taken(path)["status"]
    queued = taken(path, "t2", queue=True)
    assert ("queued", 1) == (queued["status"], queued["turnIndex"])
    assert ("exists", queued["id"]) == (taken(path, "t2", queue=True)["status"], queued["id"])
    assert ("saved", queued["id"]) == tuple(taken(path, "t2")[name] for name in ("status", "id"))
    assert 1 == drained(path)["exists"]
    with open_view(path) as view:
        assert 2 == view.state.rows


def test_indices_count_per_session_and_scope(path: Path) -> None:
    """Stored and waiting turns count alike."""
    assert [0, 1, 2] == [taken(path, f"t{n}", queue=n == 1)["turnIndex"] for n in range(3)]
    assert 0 == taken(path, "t0", session="s2")["turnIndex"]
    assert 0 == taken(path, "t0", scope=OTHER_SCOPES["profileId"])["turnIndex"]
    assert 3 == taken(path, "")["turnIndex"]
    assert 4 == taken(path, "")["turnIndex"]


def test_another_text_of_the_same_source_event_conflicts(path: Path) -> None:
    """On record where the store is at hand."""
    taken(path)
    for queue in (False, True):
        with pytest.raises(errors.ConflictError, match="'t1'"):
            taken(path, messages=pair("I like coffee"), queue=queue)
    with open_view(path) as view:
        assert ["event", "refused-conflict"] == [audit.parse_line(line).op for line in view.overlay.audit]


def test_a_locked_store_queues(path: Path) -> None:
    """Acknowledged as queued; drained later it is there."""
    with Writer.open(path, 0.0, "other"):
        assert "queued" == taken(path)["status"]
    assert 1 == drained(path)["saved"]
    assert "exists" == taken(path)["status"]


def test_two_ways_of_the_same_turn_meet(path: Path) -> None:
    """Queued without sight of the stored one under another index, it exists when drained; another text is poison."""
    queued = taken(path, "t1", queue=True)
    outbox = Outbox(StorePaths(path))
    event = dict(next(outbox.events())[1])
    assert "saved" == taken(path, "t1")["status"]
    for change, verdict in (({"turnIndex": 7}, "exists"), ({"turnIndex": 8, "userText": "other"}, "quarantined")):
        with outbox.locked(create=True):
            outbox.put(create_episode_event({**event, **change}))
        answer = drained(path)
        assert (1 if verdict == "quarantined" else 0) == len(answer["quarantined"]), (verdict, answer, queued)


def test_skipped_turns_touch_nothing(path: Path) -> None:
    """Failed, unanswered, empty: no store is needed even."""
    assert ("skipped", "failed-turn") == tuple(taken(path, success=False)[name] for name in ("status", "reason"))
    assert "unanswered" == taken(path, messages=pair()[:1])["reason"]
    assert not Path(f"{path}.outbox").exists()
    missing = path.with_name("missing.h5")
    assert "skipped" == taken(missing, success=False)["status"]
    for queue in (False, True):
        with pytest.raises(errors.NoStoreError):
            taken(missing, queue=queue)
    assert not Path(f"{missing}.outbox").exists()


def forms(secret: str) -> list[bytes]:
    """The byte forms in which a text could lie in a file."""
    data = secret.encode()
    encoded = [base64.b64encode(b"x" * shift + data)[4 if shift else 0 : -4] for shift in range(3)]
    found = [data, secret.encode("utf-16-le"), secret.encode("utf-16-be"), json.dumps(secret)[1:-1].encode(), *encoded]
    return [form for form in found if len(form) >= 6]  # a shorter one turns up in any file


def leaks(folder: Path, secrets: list[str]) -> list[tuple[str, str]]:
    """Which secrets lie in which files of a folder, in any form."""
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            found += [(file.name, secret) for secret in secrets if any(form in data for form in forms(secret))]
    return found


def test_leaks_are_found(tmp_path: Path) -> None:
    """The search itself: each form is seen."""
    secret = 'a "secret" of some length'
    for form in forms(secret):
        (tmp_path / "file").write_bytes(b"...." + form + b"....")
        assert [("file", secret)] == leaks(tmp_path, [secret]), form


def test_no_secret_gets_to_the_disk(tmp_path: Path) -> None:
    """Every pattern's example, after capture, queueing, drain and checkpoint."""
    folder = tmp_path / "store"
    folder.mkdir()
    path = make_store(folder)
    secrets = [secret for _, secret, _ in CASES.values()]
    for number, (text, _, _) in enumerate(CASES.values()):
        answer = taken(path, f"t{number}", pair(text, f"fine {number}"), queue=number % 2 == 1)
        assert answer["redacted"], text
    assert [] == leaks(folder, secrets)
    drained(path)
    checkpoint(path)
    assert [] == leaks(folder, secrets)
    with open_view(path) as view:
        assert len(CASES) == view.state.rows


def test_memory_does_not_feed_itself(path: Path) -> None:
    """Recalled, pasted and captured five times: texts do not nest."""
    key = bytes.fromhex(scope_key(SCOPE))
    for number in range(5):
        with open_view(path) as view:
            chunks = [view.record(row.record_id).chunk for row in view.events_of_scope(key)]
        block = format_recalled_memories([{"label": "EPISODE", "text": text, "score": 1.0} for text in chunks])
        taken(path, f"t{number}", pair(f"{block}\n\nquestion {number}"))
    with open_view(path) as view:
        texts = [view.record(row.record_id).chunk for row in view.events_of_scope(key)]
    assert [f"User: question {number}\nAssistant: noted" for number in range(5)] == texts


def _capture_in_process(path: str, source: str) -> str:
    return str(taken(Path(path), source, pair(f"text of {source}"), lock_timeout=20.0)["status"])


def test_processes_that_capture_at_once(path: Path) -> None:
    """Every turn is there once, every index too."""
    sources = [f"t{number % 4}" for number in range(8)]
    with get_context("fork").Pool(8) as pool:
        answers = pool.starmap(_capture_in_process, [(str(path), source) for source in sources])
    assert ["exists"] * 4 + ["saved"] * 4 == sorted(answers)
    assert [0, 1, 2, 3] == sorted(taken(path, f"t{n}", pair(f"text of t{n}"))["turnIndex"] for n in range(4))
