"""Everything that reads what others wrote: files of a store, input of commands, keys, notes, mappings."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from clawmem_core import MemoryStore
from clawmem_core.contract import fixtures, identities, scope, validate
from clawmem_core.errors import ClawmemError
from clawmem_core.integrity import keys
from clawmem_core.strict_json import parse_json
from clawmem_migrate import mapping
from tests.faults.verbs import line, template
from tests.fuzz import mutate
from tests.fuzz.engine import Caller, Target

READERS: tuple[tuple[str, ...], ...] = (
    ("export", "--include-deleted"), ("stats",), ("search", "--query", "operator", "--embedding", "[1,2,3,4]"),
)  # fmt: skip
EVENT_MEMBERS = ("agentId", "profileHash", "participantScopeHash", "privacyScope")


@cache
def healthy() -> dict[str, bytes]:
    """The files of a store by suffix, what a note of it says, and its public key."""
    with tempfile.TemporaryDirectory() as name:
        path = template(Path(name))
        return {one.name.removeprefix("m.h5"): one.read_bytes() for one in path.parent.iterdir()}


@cache
def signed() -> dict[str, bytes]:
    """The same of a signed store, with "key", "public" and "note"."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        public = keys.keygen(str(folder / "key"))
        with MemoryStore.create(folder / "m.h5", dim=4, signing_key=str(folder / "key")) as store:
            store.save_batch([])
            store.flush_wal()
        from clawmem_core.integrity.verify import verify
        from clawmem_core.storage.paths import StorePaths

        report = verify(StorePaths(folder / "m.h5"), public)
        files = {one.name.removeprefix("m.h5"): one.read_bytes() for one in folder.iterdir() if one.name != "key"}
        return {**files, "key": (folder / "key").read_bytes(), "public": public.hex.encode(),
                "note": report["note"].encode()}  # fmt: skip


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    """Put a store's files into a folder; the path of the store."""
    for suffix, data in files.items():
        if suffix == "" or suffix.startswith("."):
            (folder / f"m.h5{suffix}").write_bytes(data)
    return folder / "m.h5"


class StoreFile:
    """One file of a store, damaged; read by everything, written to, examined and repaired."""

    def __init__(self, suffix: str, name: str, alone: bool = False) -> None:
        self.suffix, self.name, self.alone = suffix, name, alone

    def seeds(self) -> Sequence[bytes]:
        return [healthy()[self.suffix]]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return mutate.damaged(data, rng)

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        files = {**healthy(), self.suffix: data}
        if self.alone:
            files = {suffix: content for suffix, content in files.items() if suffix in ("", ".wal")}
        path = lay(folder, files)
        for words in READERS:
            call("--path", path, *words)
        saved = call("--path", path, "save", "--key", "k1", stdin=line("after the damage"))
        call("--path", path, "doctor")
        repaired = call("--path", path, "doctor", "--repair")
        call("--path", path, "flush-wal")
        if repaired.code == 0:
            assert call("--path", path, "stats").code == 0
            again = call("--path", path, "save", stdin=line("after the repair"))
            assert again.code == 0, (saved, repaired, again)


class Structure(StoreFile):
    """The HDF5 file, its structure changed; the input is the seed of the change, as text."""

    def __init__(self) -> None:
        super().__init__("", "hdf5-structure", alone=True)

    def seeds(self) -> Sequence[bytes]:
        return [b"0"]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return str(rng.randrange(1 << 40)).encode()

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        super().run(mutate.restructured(healthy()[""], random.Random(data)), folder, call)


class Derived(StoreFile):
    """A derived file, damaged: every answer is the one without damage."""

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        path = lay(folder, {**healthy(), self.suffix: data})
        expected = _answers()
        for words in READERS[:1] + READERS[2:]:
            assert expected[words] == call("--path", path, *words).out
        saved = call("--path", path, "save", "--key", "k1", stdin=line("a new text"))
        assert saved.code == 0, saved
        answer = json.loads(saved.out)
        assert ("updated", 0) == (answer["status"], answer["index"]), saved
        assert call("--path", path, "doctor", "--repair").code == 0
        assert call("--path", path, "flush-wal").code == 0


@cache
def _answers() -> dict[tuple[str, ...], bytes]:
    from tests.faults.command import command

    with tempfile.TemporaryDirectory() as name:
        path = lay(Path(name), healthy())
        return {words: command("--path", path, *words).out for words in READERS}


class Input:
    """What a command reads from stdin."""

    def __init__(self, name: str, words: Sequence[str], seeds: Sequence[bytes]) -> None:
        self.name, self.words, self._seeds = name, words, seeds

    def seeds(self) -> Sequence[bytes]:
        return self._seeds

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        lines = data.splitlines(keepends=True) or [b""]
        at = rng.randrange(len(lines))
        lines[at] = mutate.damaged_json(lines[at], rng) + b"\n"
        return mutate.damaged(b"".join(lines), rng) if rng.random() < 0.1 else b"".join(lines)

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        path = lay(folder, healthy())
        answer = call("--path", path, *self.words, stdin=data)
        assert answer.code in (0, 2, 3, 4, 14, 15, 16), answer
        after = call("--path", path, "stats")
        assert after.code == 0, after


class Event:
    """Members of an event, at the doors of the contract."""

    name = "event"

    def seeds(self) -> Sequence[bytes]:
        return [json.dumps(event()).encode()]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return mutate.damaged_json(data, rng)

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        for check in (validate.validate_event, identities.create_episode_event, scope.scope_key, fixtures.revive):
            try:
                value = parse_json(data, refuse_duplicates=True)
                if check is validate.validate_event or isinstance(value, dict):
                    check(value)
            except ClawmemError:
                continue


def event() -> dict[str, object]:
    """A whole, valid episode event."""
    return identities.create_episode_event(
        {
            "agentId": "agent", "profileHash": "a" * 64, "participantScopeHash": "b" * 64, "privacyScope": "private",
            "sandboxEligible": False, "externalSessionId": "s1", "turnIndex": 1, "userText": "What is due?",
            "assistantText": "The report.", "summary": "The report is due.", "occurredAt": "2024-05-01T10:00:00.000Z",
            "sourceEventId": "e1", "runtime": "cli", "originClass": "participant", "trustClass": "mixed",
            "visibility": "conversation", "provenance": "turn",
        }
    )  # fmt: skip


class KeyFile:
    """Secret and public key files."""

    name = "key-file"

    def seeds(self) -> Sequence[bytes]:
        return [signed()["key"], signed()["public"], b"\n" + signed()["public"] + b"\n"]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return mutate.damaged(data, rng, list(self.seeds()))

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        path = lay(folder, signed())
        file = folder / "key"
        file.write_bytes(data)
        file.chmod(0o600)
        assert call("keygen", "--public", file).code in (0, 12)
        assert call("--path", path, "verify", "--public-key", file).code in (0, 12, 13)
        assert call("--path", path, "save", "--signing-key", file, stdin=line("x")).code in (0, 12)
        assert call("--path", path, "flush-wal", "--signing-key", file).code in (0, 12)


class NoteFile:
    """Checkpoint notes."""

    name = "note"

    def seeds(self) -> Sequence[bytes]:
        return [signed()["note"]]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return mutate.damaged(data, rng)

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        path = lay(folder, signed())
        (folder / "note").write_bytes(data)
        answer = call(
            "--path", path, "verify", "--public-key", signed()["public"].decode(), "--checkpoint", folder / "note"
        )
        assert answer.code in ((0,) if data == signed()["note"] else (0, 12, 13)), answer


class MappingFile:
    """Mapping files of the importer."""

    name = "mapping"

    def seeds(self) -> Sequence[bytes]:
        shelf = Path(mapping.__file__).parent / "mappings"
        return [one.read_bytes() for one in sorted(shelf.glob("*.toml"))]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return mutate.damaged(data, rng, list(self.seeds()))

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        (folder / "map.toml").write_bytes(data)
        try:
            mapping.from_file(str(folder / "map.toml"))
        except ClawmemError as problem:
            assert problem.exit == 2, problem


class LegacyLog(StoreFile):
    """A log of the ancestor's kind beside a store."""

    def __init__(self) -> None:
        super().__init__(".wal", "legacy-log")

    def seeds(self) -> Sequence[bytes]:
        shelf = Path(__file__).resolve().parents[1] / "data/clawhdf5-2.1.0"
        return [one.read_bytes() for one in sorted(shelf.glob("*.wal"))] or [b"EHWL\x01\0\0\0"]


class LegacyFile:
    """A store of the 2.1.0 tools, imported."""

    name = "legacy-file"

    def seeds(self) -> Sequence[bytes]:
        shelf = Path(__file__).resolve().parents[1] / "data/clawhdf5-2.1.0"
        return [one.read_bytes() for one in sorted(shelf.glob("*.h5"))]

    def mutate(self, data: bytes, rng: random.Random) -> bytes:
        return mutate.damaged(data, rng)

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        from clawmem_core.storage import legacy_hdf5

        (folder / "old.h5").write_bytes(data)
        try:
            with legacy_hdf5.load(str(folder / "old.h5")) as columns:
                list(columns.chunks)
        except ClawmemError:
            return


class LockFile(StoreFile):
    """What stands in a lock file."""

    def __init__(self) -> None:
        super().__init__(".lock", "lock-file")

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        path = lay(folder, {**healthy(), ".lock": data})
        assert call("--path", path, "save", stdin=line("x")).code == 0
        shutil.rmtree(folder)


_RECORD = line("a text", tags="a,b", session_id="s", key="k9")
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        StoreFile(".wal", "log"),
        StoreFile("", "hdf5", alone=True),
        StoreFile("", "hdf5-beside-index"),
        Structure(),
        Derived(".idx", "index"),
        Derived(".keys", "keys"),
        Input("ndjson", ("save", "--ndjson"), [_RECORD * 3, line("é", key="") + b"\n \n" + _RECORD]),
        Input("record", ("save",), [_RECORD]),
        Input("query", ("search", "--batch"), [b'{"query":"operator","k":3,"embedding":[1,2,3,4],"since":0}\n']),
        Event(),
        KeyFile(),
        NoteFile(),
        MappingFile(),
        LegacyLog(),
        LegacyFile(),
        LockFile(),
    )
}
