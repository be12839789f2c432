"""Reads of events: no verb ever shows a row of another scope, whatever single field differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from clawmem_core.contract import scope
from tests.cli.conftest import Answer
from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import OTHER_SCOPES, SCOPE, checkpoint, episode, fact

__all__ = ["commands"]

#: every way to read an event, as words after the store; each shows the word `zebra` of the right row, and only of it
READS: dict[str, tuple[str, ...]] = {
    "search": ("search", "--query", "zebra", "-k", "50"),
    "search vector": ("search", "--embedding", "[1,0,0,0]", "-k", "50"),
    "context": ("search", "--query", "zebra", "--format", "context"),
    "fenced": ("search", "--query", "zebra", "--format", "fenced"),
    "deadline": ("search", "--query", "zebra", "--deadline-ms", "30000"),
    "batch": ("search", "--batch"),
    "export": ("export",),
    "recall": ("recall", "0"),
    "history": ("history",),
}


def read(commands: Commands, name: str, scope_file: str, id: str, more: tuple[str, ...] = ()) -> Answer:
    words: tuple[str, ...] = (*READS[name], "--scope", scope_file, *more)
    if name == "history":
        words += ("--fact", id)
    return commands(*words, stdin='{"query":"zebra"}' if name == "batch" else "")


def stored(commands: Commands, label: str, state: str) -> str:
    """One row of the own scope that says zebra, in the log or the file; returns its id."""
    event = fact("zebra stripes") if label == "MEMORY_FACT" else episode("zebra stripes")
    saved = commands("save", stdin={**event, "embedding": [1, 0, 0, 0]})
    assert 0 == saved.code, saved
    if state != "log":
        checkpoint(commands.path)
    return str(saved.document["id"])


@pytest.mark.parametrize("state", ["log", "file"])
@pytest.mark.parametrize("label", ["EPISODE", "MEMORY_FACT"])
def test_the_matrix(commands: Commands, label: str, state: str) -> None:
    """Five fields by every reading verb: nothing of the other scope, everything of the own one."""
    id = stored(commands, label, state)
    others = {field: commands.scope(field, fields) for field, fields in OTHER_SCOPES.items()}
    for name in READS:
        if (name, label) == ("history", "EPISODE"):
            continue
        own = read(commands, name, commands.own, id)
        assert 0 == own.code and b"zebra" in own.out, (name, own)
        for field, file in others.items():
            answer = read(commands, name, file, id)
            assert b"zebra" not in answer.out + answer.err, (name, field, answer)
            assert id[:16].encode() not in answer.out, (name, field, answer)


def test_a_fresh_process_sees_at_once_what_another_wrote(commands: Commands, clawmem: Callable[..., Answer]) -> None:
    """Episodes and facts, each command a process of its own; another scope does not."""
    other = commands.scope("other", OTHER_SCOPES["participantScopeHash"])
    for event in (fact("zebra fact"), episode("zebra episode")):
        assert 0 == clawmem("--path", commands.path, "save", "--scope", commands.own, stdin=json.dumps(event)).code
    found = clawmem("--path", commands.path, "search", "--query", "zebra", "--scope", commands.own)
    assert {"EPISODE", "MEMORY_FACT"} == {hit["label"] for hit in found.document}
    assert [] == clawmem("--path", commands.path, "search", "--query", "zebra", "--scope", other).document


@pytest.mark.parametrize("field", scope.SCOPE_FIELDS)
def test_dropping_a_field_from_the_predicate_is_noticed(
    commands: Commands, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The matrix goes red: with the field left out of the key, the other scope's row is shown."""
    whole = scope.scope_key

    def lacking(members: Any) -> str:
        return whole({**members, field: SCOPE[field]})

    for module in ("saving", "recall", "event_row", "correcting", "scope"):
        target = f"clawmem_core.contract.{module}.scope_key"
        if hasattr(__import__(f"clawmem_core.contract.{module}", fromlist=("x",)), "scope_key"):
            monkeypatch.setattr(target, lacking)
    monkeypatch.setattr("clawmem_cli.scoped.scope_key", lacking)
    with pytest.raises(AssertionError, match=f"'search', '{field}'"):
        test_the_matrix(commands, "MEMORY_FACT", "log")


@pytest.mark.parametrize("name", [name for name in READS if name not in ("history", "recall")])
def test_without_a_scope_there_are_no_events(commands: Commands, name: str) -> None:
    """Plain records are shown as ever."""
    stored(commands, "MEMORY_FACT", "log")
    commands("save", stdin={"chunk": "zebra, plain", "embedding": [1, 0, 0, 0]})
    answer = commands(*READS[name], stdin='{"query":"zebra"}' if name == "batch" else "")
    assert b"zebra, plain" in answer.out and b"stripes" not in answer.out, answer
    assert 4 == commands("recall", "0").code
    assert 4 == commands("delete", "0").code


def test_all_scopes_is_on_record_before_it_is_shown(commands: Commands) -> None:
    """Everything is there; one audit line a reading; refused while the lock is taken."""
    from clawmem_core.writer import Writer

    stored(commands, "MEMORY_FACT", "log")
    commands("save", stdin=fact("zebra two", **OTHER_SCOPES["agentId"]))
    commands("save", stdin={"chunk": "zebra, plain"})
    assert {0, 1, 2} == {hit["index"] for hit in commands("search", "--query", "zebra", "--all-scopes").document}
    exported = commands("export", "--all-scopes", "--no-embeddings").lines
    assert ["zebra stripes", "zebra two", "zebra, plain"] == [line.get("text", line.get("chunk")) for line in exported]
    assert ["read-all-scopes"] * 2 == [line["op"] for line in commands("audit", "show").document[-2:]]
    with Writer.open(commands.path, 0.0, "other"):
        refused = commands("export", "--all-scopes", "--lock-timeout", "0")
    assert (11, b"") == (refused.code, refused.out)


def test_filters_of_the_command_line(commands: Commands) -> None:
    """Each option narrows; the explained filter is the one in force."""
    commands("save", "--ndjson", stdin=[
        fact("zebra a", sourceEventId="t1"), episode("zebra b", sourceEventId="t1"),
        fact("zebra c", sourceEventId="t2", trustClass="untrusted", confidence=0.2),
    ])  # fmt: skip

    def found(*words: str) -> set[int]:
        answer = commands("search", "--query", "zebra", "--scope", commands.own, *words)
        assert 0 == answer.code, answer
        return {hit["index"] for hit in answer.document}

    assert {0, 1} == found()
    assert {0, 1, 2} == found("--min-trust", "untrusted")
    assert {0} == found("--label", "MEMORY_FACT")
    assert {1} == found("--no-facts")
    assert {0, 1} == found("--min-trust", "untrusted", "--min-confidence", "0.5")
    assert {2} == found("--min-trust", "untrusted", "--exclude-session", "session-1")
    assert set() == found("--as-of", "2025-12-31T00:00:00Z")
    assert set() == found("--known-at", "2020-01-01T00:00:00Z")
    answer = commands("search", "--query", "zebra", "--scope", commands.own, "--explain", "--exclude-session", "x")
    where = {
        **SCOPE, "externalSessionId": {"$ne": "x"}, "active": True, "label": ["EPISODE", "MEMORY_FACT"],
        "trustClass": ["trusted", "mixed"], "confidence": {"$gte": 0.0}, "asOf": None, "knownAt": None,
    }  # fmt: skip
    assert [where, where] == [hit["explain"]["filter"] for hit in answer.document]
    assert [{"filter": where}] == answer.summaries


@pytest.mark.parametrize(
    "words",
    [
        ("--label", "EPISODE"),
        ("--no-facts",),
        ("--as-of", "1"),
        ("--scope", "x", "--all-scopes"),
        ("--strict",),
        ("--deadline-ms", "49"),
        ("--deadline-ms", "30001"),
        ("--format", "context", "-k", "21"),
        ("--scope", "/nonexistent"),
    ],
)
def test_bad_command_lines(commands: Commands, words: tuple[str, ...]) -> None:
    """Exit 2, nothing on stdout."""
    answer = commands("search", "--query", "x", *words)
    assert (2, b"") == (answer.code, answer.out), answer


@pytest.mark.parametrize("at", [0, 552])  # in the header; in the first of two entries
def test_a_damaged_log_gives_no_half_answer(commands: Commands, at: int) -> None:
    """What the log took back is not told as if it held; --strict fails. Without a deadline it is a warning."""
    id = stored(commands, "MEMORY_FACT", "file")
    commands("retract", "--scope", commands.own, "--fact", id)
    commands("save", stdin=fact("zebra crossing", sourceEventId="other"))
    log = commands.folder / "m.h5.wal"
    data = bytearray(log.read_bytes())
    data[at : at + 4] = b"\xa5" * 4
    log.write_bytes(data)
    words = ("search", "--query", "zebra", "--scope", commands.own)
    assert commands(*words).warnings
    answer = commands(*words, "--deadline-ms", "30000")
    assert (0, b"[]\n", ["degraded"]) == (answer.code, answer.out, [one["code"] for one in answer.warnings])
    assert 13 == commands(*words, "--deadline-ms", "30000", "--strict").code


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"agentId":"a"}', b'{"agentId":"a","agentId":"b"}', b"\xff"])
def test_bad_scope_files(commands: Commands, content: bytes) -> None:
    """A scope that is not whole is none; so is a decision that denies."""
    file = commands.folder / "scope.json"
    denied = json.dumps({"read": False, "write": False, "reason": "group", "scope": None}).encode()
    lame = json.dumps({**SCOPE, "participantScopeHash": "x"}).encode()
    for data in (content, denied, lame):
        file.write_bytes(data)
        answer = commands("search", "--query", "x", "--scope", file)
        assert (2, b"") == (answer.code, answer.out), answer


def test_text_formats(commands: Commands) -> None:
    """Eight memories by default; the fenced block says more; no hit is no byte."""
    commands("save", "--ndjson", stdin=[fact(f"zebra {n}", sourceEventId=str(n)) for n in range(12)])
    for name, count in (("context", 8), ("fenced", 8)):
        out = commands(*READS[name], "--scope", commands.own).out.decode()
        assert count == out.count("[Memory ")
        assert ("trust=trusted; confidence=0.900" in out) == (name == "fenced")
        assert b"" == commands("search", "--query", "giraffe", "--scope", commands.own, "--format", name).out
    assert 12 == commands(*READS["context"], "-k", "20", "--scope", commands.own).out.count(b"[Memory ")
    plain = commands("search", "--query", "zebra", "--format", "context")
    assert b"" == plain.out


@pytest.mark.parametrize("form", ["json", "context"])
def test_fail_open(commands: Commands, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or damaged store and a late answer are an empty one and a warning; --strict fails."""
    import time

    stored(commands, "MEMORY_FACT", "log")
    words = ("search", "--query", "zebra", "--scope", commands.own, "--format", form, "--deadline-ms", "100")
    empty = b"[]\n" if form == "json" else b""

    def slow(*_: Any) -> None:
        time.sleep(5)

    with monkeypatch.context() as patch:
        patch.setattr("clawmem_cli.scoped.search_events", slow)
        began = time.monotonic()
        answer = commands(*words)
        assert time.monotonic() - began < 2
        assert (0, empty, ["degraded"]) == (answer.code, answer.out, [one["code"] for one in answer.warnings])
        assert answer.warnings[0]["message"].startswith("deadline: ")
        assert 11 == commands(*words, "--strict").code
    for suffix in ("", ".idx", ".wal"):
        (commands.folder / f"m.h5{suffix}").write_bytes(b"damaged" * 100)
    answer = commands(*words)
    assert (0, empty, 1) == (answer.code, answer.out, len(answer.warnings)), answer
    assert commands(*words, "--strict").code not in (0, 2)
    (commands.folder / "m.h5").unlink()
    assert (0, empty) == (commands(*words).code, commands(*words).out)
    assert 10 == commands(*words, "--strict").code


def test_export_comes_back_through_save(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Exactly: into the same store as `exists`, into another one as the same events and vectors."""
    commands("save", stdin={**fact("zebra \ud800"), "embedding": [1, 2, 3, 4]})
    commands("save", stdin=episode("zebra \0", externalSessionId="s\udc00"))
    exported = commands("export", "--scope", commands.own).out
    for line in exported.splitlines():
        conforms("export", json.loads(line))
    again = commands("save", "--ndjson", "--scope", commands.own, stdin=exported)
    assert ["exists", "exists"] == [line["status"] for line in again.lines]
    folder = commands.folder / "second"
    folder.mkdir()
    second = Commands(folder)
    assert 0 == second("save", "--ndjson", "--scope", second.own, stdin=exported).code
    assert exported == second("export", "--scope", second.own).out
    checkpoint(second.path)
    assert exported == second("export", "--scope", second.own).out


def test_recall_prints_the_event(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """With the exact text; nothing of what is not believed."""
    commands("save", stdin=fact("zebra \ud800", trustClass="untrusted"))
    assert 4 == commands("recall", "0", "--scope", commands.own).code
    answer = commands("recall", "0", "--scope", commands.own, "--min-trust", "untrusted")
    assert ("zebra \ud800", fact("zebra \ud800", trustClass="untrusted")) == (
        answer.document["chunk"], answer.document["event"],
    )  # fmt: skip
    conforms("recall", {**answer.document, "event": {}})
    hits = commands("search", "--query", "zebra", "--scope", commands.own, "--min-trust", "untrusted").document
    conforms("search", hits)
    assert "zebra \ud800" == hits[0]["chunk"]
