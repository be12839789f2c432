"""Events that wait for their store: one file each in `<store>.outbox`, taken in once and in order.

A file is `<20-digit sequence>-<first 16 digits of the id>.json` and holds the canonical event. Invariants: a file is
complete and durable before anybody is told; it is removed only after what it holds is committed, so a crash in between
leaves it to be found again and known as `exists`; its name, the id inside and the id its content gives must agree, or
it goes to `<store>.outbox/quarantine` with a reason and the others go on. The folder itself is the lock of what is in
it.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from clawmem_core import clock, door
from clawmem_core.contract.canonical import canonical_ascii
from clawmem_core.contract.event_keys import EPISODE, source_key, stored
from clawmem_core.contract.saving import save_event
from clawmem_core.contract.scope import scope_key
from clawmem_core.contract.validate import check_event, event_identity
from clawmem_core.errors import ClawmemError, InvalidInputError, NotFoundError, OutboxFullError
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.strict_json import parse_json
from clawmem_core.times import format_rfc3339
from clawmem_core.view import open_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clawmem_core.storage.paths import StorePaths
    from clawmem_core.writer import Writer

MAX_FILES: Final = 10_000
MAX_FILE: Final = door.MAX_CHUNK + (1 << 20)  # bytes; an event and its vector
_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{16})\.json\Z")
_REGULAR: Final = 0o100000
_KIND: Final = 0o170000
_GROUP: Final = 64  # files taken in with one sync
#: exit codes of errors that are about one file; all others end a drain
_OF_A_FILE: Final = frozenset((2, 14, 15))
_REASON: Final = ".reason"
_TEMP: Final = ".tmp-"


class Outbox:
    """The outbox of one store. Nothing is created before `put`."""

    def __init__(self, paths: StorePaths) -> None:
        self.paths = paths
        self.folder = paths.real + ".outbox"
        self.quarantine = os.path.join(self.folder, "quarantine")

    @contextmanager
    def locked(self, create: bool = False) -> Iterator[bool]:
        """Hold the folder against other processes; yields whether there is one. Waits as long as it takes."""
        if create and fs.mkdir(self.folder):
            fs.sync_directory(self.paths.directory)
        fd = fs.open_existing(self.folder, fs.RDONLY | fs.NOFOLLOW)
        try:
            if fd is not None:
                fs.flock(fd, blocking=True)
            yield fd is not None
        finally:
            if fd is not None:
                fs.close(fd)

    def names(self) -> list[str]:
        """Names of the waiting files, oldest first; temporary files are none."""
        if fs.lstat(self.folder) is None:
            return []
        return [name for name in fs.listdir(self.folder) if name != "quarantine" and _TEMP not in name]

    def quarantined(self) -> list[str]:
        """Names of the files in quarantine."""
        if fs.lstat(self.quarantine) is None:
            return []
        return [name for name in fs.listdir(self.quarantine) if not name.endswith(_REASON) and _TEMP not in name]

    def put(self, event: Mapping[str, Any]) -> str:
        """Keep an event durably; the caller holds the folder. Returns the file's name. Raises OutboxFullError."""
        names = self.names()
        if len(names) >= MAX_FILES:
            raise OutboxFullError(path=self.folder, count=len(names))
        _, id = event_identity(event)
        last = max((int(found.group(1)) for found in map(_NAME.match, names) if found), default=0)
        number = max(last + 1, clock.now_us())
        while True:
            name = f"{number:020d}-{id[:16]}.json"
            with AtomicFile(os.path.join(self.folder, name)) as file:
                file.write(canonical_ascii(event) + b"\n")
                if file.commit_new():
                    return name
            number += 1

    def read(self, name: str) -> dict[str, Any]:
        """The event in a file, checked. Raises InvalidInputError, InvalidEventError, ForgedIdError, …"""
        found = _NAME.match(name)
        if not found:
            raise InvalidInputError(field="file name", detail="is not that of a waiting event")
        fields = self.parse(name)
        event = {key: value for key, value in fields.items() if key not in door.VECTOR_KEYS}
        check_event(event)
        if event_identity(event)[1][:16] != found.group(2):
            raise InvalidInputError(field="file name", detail="names another event than the file holds")
        return fields

    def parse(self, name: str) -> dict[str, Any]:
        """The JSON object in a file. Raises InvalidInputError, InvalidJsonError, DuplicateKeyError."""
        path = os.path.join(self.folder, name)
        found = fs.lstat(path)
        if found is None or found.st_mode & _KIND != _REGULAR:
            raise InvalidInputError(field="file", detail="is no regular file")
        if found.st_size > MAX_FILE:
            raise InvalidInputError(field="file", detail=f"is longer than {MAX_FILE} bytes")
        fields = parse_json(fs.read_all(path, MAX_FILE) or b"", refuse_duplicates=True)
        if not isinstance(fields, dict):
            raise InvalidInputError(field="file", detail="holds no JSON object")
        return fields

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and content of the waiting files that hold a valid event."""
        for name in self.names():
            try:
                event = self.read(name)
            except ClawmemError as problem:
                if problem.exit not in _OF_A_FILE:
                    raise
                continue
            yield name, event

    def listing(self) -> dict[str, Any]:
        """What waits, and what is in quarantine and why. Takes no lock."""
        waiting = [{"file": name, "bytes": fs.size(os.path.join(self.folder, name))} for name in self.names()]
        return {
            "waiting": waiting,
            "quarantined": [{"file": name, **self._reason(name)} for name in self.quarantined()],
        }

    def _reason(self, name: str) -> dict[str, Any]:
        data = fs.read_all(os.path.join(self.quarantine, name + _REASON), 1 << 16)
        found = parse_json(data) if data else None
        return found if isinstance(found, dict) else {"code": "unknown", "message": ""}

    def remove(self, name: str) -> None:
        """Remove a waiting file for good."""
        fs.unlink(os.path.join(self.folder, name))

    def set_aside(self, name: str, problem: ClawmemError) -> dict[str, str]:
        """Move a file to the quarantine, with the reason beside it."""
        if fs.mkdir(self.quarantine):
            fs.sync_directory(self.folder)
        target, number = name, 0
        while fs.lstat(os.path.join(self.quarantine, target)) is not None:
            number += 1
            target = f"{name}.{number}"
        reason = {"code": problem.code, "message": problem.message, "at": format_rfc3339(clock.now())}
        with AtomicFile(os.path.join(self.quarantine, target + _REASON)) as file:
            file.write(canonical_ascii(reason) + b"\n")
            file.commit()
        fs.replace(os.path.join(self.folder, name), os.path.join(self.quarantine, target))
        fs.sync_directory(self.quarantine)
        return {"file": target, "code": problem.code, "message": problem.message}

    def release(self, names: Sequence[str] = ()) -> list[str]:
        """Move files (none named: all) from the quarantine back, for the next drain. Raises NotFoundError."""
        found = self.quarantined()
        for name in names:
            if name not in found:
                raise NotFoundError(kind="file in quarantine", id=name)
        moved = []
        for name in names or found:
            target = re.sub(r"(\.json)\.[0-9]+\Z", r"\1", name)
            if fs.lstat(os.path.join(self.folder, target)) is None:
                fs.replace(os.path.join(self.quarantine, name), os.path.join(self.folder, target))
                fs.unlink(os.path.join(self.quarantine, name + _REASON))
                moved.append(target)
        return moved

    def remove_stale_temps(self) -> None:
        """Remove temporary files whose maker is gone."""
        for name in fs.listdir(self.folder):
            if _TEMP in name:
                path = os.path.join(self.folder, name)
                fd = fs.open_existing(path, fs.RDONLY | fs.NOFOLLOW)
                if fd is not None:
                    try:
                        if fs.flock(fd):
                            fs.unlink(path)
                    finally:
                        fs.close(fd)


# ---------------------------------------------------------------- draining


def drain(writer: Writer, outbox: Outbox, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Take every waiting file in, in order. `scope`: take only events of this scope, all others are left.

    Returns {"saved", "exists", "pending"} as counts, "quarantined" as files with reasons, "left" as a count. Draining
    again changes nothing.
    """
    tally = {"saved": 0, "exists": 0, "pending": 0}
    aside: list[dict[str, str]] = []
    done: list[str] = []

    def finish() -> None:
        writer.commit()
        for name in done:
            outbox.remove(name)
        done.clear()

    with outbox.locked() as there:
        if there:
            outbox.remove_stale_temps()
        for name in outbox.names():
            try:
                fields = outbox.read(name)
                if scope is not None and scope_key(fields) != scope_key(scope):
                    continue
                tally[_take_in(writer, fields)] += 1
            except ClawmemError as problem:
                if problem.exit not in _OF_A_FILE:
                    raise
                aside.append(outbox.set_aside(name, problem))
                continue
            done.append(name)
            if len(done) >= _GROUP:
                finish()
        finish()
        if there:
            fs.sync_directory(outbox.folder)
        return {**tally, "quarantined": aside, "left": len(outbox.names())}


def _take_in(writer: Writer, fields: Mapping[str, Any]) -> str:
    """Stage one event; the turn of an episode that came in by another way meanwhile exists already."""
    if fields["eventType"] == "episode" and fields.get("sourceEventId"):
        scope = bytes.fromhex(scope_key(fields))
        key = source_key(scope, fields["externalSessionId"], fields["sourceEventId"])
        found = stored(writer.find("S", key))
        if found is not None and _same_turn(writer, scope, found.record_id, fields):
            return "exists"
    # `capture` judged an episode before it had to wait; its rules may allow what ours do not
    return save_event(writer, fields, judged=fields["eventType"] == "episode").status


def _same_turn(writer: Writer, scope: bytes, record_id: int, fields: Mapping[str, Any]) -> bool:
    """Whether the stored episode with this record says the same as `fields`, whatever its index and time."""
    writer.commit()
    with open_view(writer.paths.real) as view:
        for row in view.events_of_scope(scope):
            if row.label == EPISODE and row.record_id == record_id:
                return same_turn(parse_json(row.payload), fields)
    return False


def same_turn(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two episodes of one source event are the same turn."""
    return all(one[name] == other[name] for name in ("runtime", "userText", "assistantText"))
