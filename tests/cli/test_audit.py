"""clawmem audit: one line for everything that changes a store, and none can be changed unseen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from clawmem_cli import options
from tests.cli.lifecycle import Commands, commands
from tests.core.contract.events import checkpoint, fact

__all__ = ["commands"]

#: verbs that take --actor and add nothing to what is on record
SILENT = {
    "create": "an empty store has no log yet",
    "snapshot": "a copy; takes no lock and leaves the store as it is",
    "flush-wal": "moves what is on record",
    "outbox retry": "drains, as outbox drain",
    "search": "a line only with --all-scopes",
    "export": "a line only with --all-scopes",
    "doctor": "recovery; it changes no memory",
}


def prepare(commands: Commands) -> dict[str, str]:
    """A store in which each verb has something to do; ids by name."""
    own = ("--scope", commands.own)
    ids = {}
    for name in ("a", "b", "c", "d"):
        ids[name] = commands("save", stdin=fact(f"value {name}", sourceEventId=name)).document["id"]
    commands("retract", *own, "--fact", ids["d"])
    for name in ("p", "q"):
        held = commands("save", "--actor", "eve", stdin=fact("value d", sourceEventId=name)).document
        ids[name] = held["id"]
    commands("save", "--ndjson", stdin=[{"chunk": "one", "key": "k"}, {"chunk": "two"}, {"chunk": "three"}])
    return ids


def changing(commands: Commands, ids: dict[str, str]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """One command line and stdin for each verb that changes a store."""
    own = ("--scope", commands.own)
    pair = json.dumps([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])
    session = ("--session", "s", "--source-event")
    return {
        "save": (("save",), {"chunk": "four"}),
        "delete": (("delete", "7"), ""),
        "compact": (("compact",), ""),
        "tick": (("tick",), ""),
        "replace": (("replace", *own, "--fact", ids["a"], "--text", "new"), ""),
        "retract": (("retract", *own, "--fact", ids["b"]), ""),
        "expire": (("expire", *own, "--fact", ids["c"]), ""),
        "review approve": (("review", "approve", *own, "--fact", ids["p"], "--actor", "bob"), ""),
        "review reject": (("review", "reject", *own, "--fact", ids["q"], "--actor", "bob"), ""),
        "capture": (("capture", *own, *session, "t1"), pair),
        "outbox drain": (("outbox", "drain"), ""),
        "purge": (("purge", "--record", "8"), ""),
    }


def test_every_verb_that_changes_a_store_leaves_a_line(commands: Commands) -> None:
    """The verbs come from the option table, so that a new one cannot escape."""
    ids = prepare(commands)
    lines = changing(commands, ids)
    changing_verbs = {verb.words for verb in options.VERBS.values() if any(o.name == "actor" for o in verb.options)}
    assert changing_verbs <= lines.keys() | SILENT.keys(), "a new verb: say what it puts on record"
    boosted = {"chunk": "boosted", "activation": 2.0}
    commands("save", stdin=boosted)
    for verb, (words, stdin) in lines.items():
        if verb == "outbox drain":
            commands("capture", "--scope", commands.own, "--session", "s", "--source-event", "t2", "--async",
                     stdin=lines["capture"][1])  # fmt: skip
        if verb == "purge":
            words = (*words, "--confirm", commands(*words).document["digest"])
        before = commands("stats").document["audit_lines"]
        answer = commands(*words, stdin=stdin)
        assert 0 == answer.code, (verb, answer)
        assert before + 1 == commands("stats").document["audit_lines"], verb
    assert commands("audit", "verify").document["valid"]


def test_refusals_leave_a_line(commands: Commands) -> None:
    """Of policy; usage, validation and what is not found do not."""
    id = commands("save", stdin=fact("tea")).document["id"]
    refused = [
        (("save",), {**fact("tea"), "text": "x"}),
        (("save",), fact("tea", provenance="x")),
        (("replace", "--scope", commands.own, "--fact", id, "--text", "TEA"), ""),
        (("purge", "--event", id, "--confirm", "0"), ""),
    ]
    quiet = [
        (("save",), {**fact("tea"), "confidence": 7}),
        (("replace", "--scope", commands.own, "--fact", "0" * 64, "--text", "x"), ""),
        (("search",), ""),
    ]
    for words, stdin in refused + quiet:
        before = commands("stats").document["audit_lines"]
        assert 0 != commands(*words, stdin=stdin).code
        added = commands("stats").document["audit_lines"] - before
        assert added == ((words, stdin) in refused), words


def test_show(commands: Commands, conforms: Callable[[str, Any], None]) -> None:
    """Lines of file and log in order; who did what to which event or record."""
    id = commands("save", "--actor", "ann", stdin=fact("tea")).document["id"]
    checkpoint(commands.path)
    commands("save", "--actor", "bob", stdin={"chunk": "x"})
    lines = commands("audit", "show").document
    conforms("audit-show", lines)
    assert [(1, "event", "ann", id[:16], None), (2, "save", "bob", None, 1)] == [
        tuple(line[name] for name in ("line", "op", "actor", "event", "index")) for line in lines
    ]
    assert lines[1:] == commands("audit", "show", "--tail", "1").document


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the audit lines in the HDF5 file, as somebody with a viewer would."""
    with h5py.File(path, "r+") as file:
        lines = change(file["audit/lines"][...])
        attributes = dict(file["audit/lines"].attrs)
        del file["audit/lines"]
        file["audit"].create_dataset("lines", data=lines).attrs.update(attributes)


@pytest.mark.parametrize("edit", ["flip", "drop", "swap", "cut", "last"])
def test_tampering_is_named(commands: Commands, edit: str, conforms: Callable[[str, Any], None]) -> None:
    """One byte, one line less, two in another order, the end cut off: the first bad line is named."""
    commands("save", "--ndjson", stdin=[fact(f"tea {n}", sourceEventId=f"t{n}") for n in range(3)])
    for number in range(6):
        commands("save", stdin={"chunk": f"record {number}"})
    checkpoint(commands.path)
    good = commands("audit", "verify")
    assert (0, True, 7, None) == (good.code, *(good.document[n] for n in ("valid", "lines", "first_bad_line")))

    def change(lines: Any) -> Any:
        if edit == "flip":
            lines[3, 20] ^= 1
            return lines
        if edit == "swap":
            lines[[2, 3]] = lines[[3, 2]]
            return lines
        if edit == "last":
            lines[6, 5] ^= 1
            return lines
        return np.delete(lines, 4, axis=0) if edit == "drop" else lines[:-2]

    _edit(commands.path, change)
    bad = commands("audit", "verify")
    expected = {"flip": 4, "drop": 5, "swap": 3, "cut": 6, "last": 7}[edit]
    assert (13, False, expected) == (bad.code, bad.document["valid"], bad.document["first_bad_line"])
    assert f"line {expected if edit != 'cut' else 5}" in bad.error["message"]
    conforms("audit-verify", bad.document)
