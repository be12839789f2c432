"""Purge: records and events physically gone, by a plan that is shown first and then executed exactly.

Invariants: a plan's digest covers what goes and the state of the store, so a store that changed in between is refused,
on record; a signed store without its key is refused before anything; the frame says that a purge is pending, so that
every later change checkpoints until the log is a new one; when `execute` returns, no file of the store holds the texts.
Snapshots, backups and exports made earlier are out of reach. What stays: ids in other rows, audit lines, and
tombstones, which hold digests only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from clawmem_core.contract.canonical import canonical_text, sha256_hex
from clawmem_core.contract.event_keys import FACT, exact_session, purged_keys, value_key_of
from clawmem_core.contract.lifecycle import value_key
from clawmem_core.contract.outbox import Outbox
from clawmem_core.contract.saving import actor_of, refused
from clawmem_core.contract.scope import scope_key
from clawmem_core.errors import ClawmemError, ConflictError, NotFoundError, SigningKeyRequiredError, StorageError
from clawmem_core.storage import fs, ops, row_ops
from clawmem_core.storage.atomic import remove_stale_temps
from clawmem_core.storage.log_format import PURGE_PENDING, SIGNED, Key
from clawmem_core.storage.row_ops import EventRow, ValueRow
from clawmem_core.strict_json import parse_json
from clawmem_core.view import open_view
from clawmem_core.writer import GONE, upsert_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clawmem_core.integrity.signing import Signing
    from clawmem_core.view import View
    from clawmem_core.writer import Writer

OUT_OF_REACH: Final = "snapshots, backups and exports made earlier keep what they hold"
_TEXTS: Final = ("text", "userText", "assistantText", "summary")
#: characters from which on a text names what it is from; "ok" stands in every other turn
_TELLING: Final = 16
_FRAME_KEYS: Final = 50_000  # a frame takes 65,535


class Selection:
    """What somebody wants to be gone. `scope`: only within this scope, and all of it where nothing else is named."""

    __slots__ = ("events", "records", "scope", "sessions")

    def __init__(
        self, events: Sequence[str] = (), records: Sequence[int] = (), sessions: Sequence[str] = (),
        scope: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.events, self.records, self.sessions, self.scope = events, records, sessions, scope


class Plan:
    """What a purge removes, seen in one state of a store."""

    def __init__(self, view: View, wanted: Selection) -> None:
        self.view = view
        key = None if wanted.scope is None else bytes.fromhex(scope_key(wanted.scope))
        versions = list(view.events() if key is None else view.events_of_scope(key))
        ids = self._ids(versions, wanted, key)
        self.records = [record for id in sorted(ids) if (record := view.find(id)) is not None]
        self.versions = [row for row in versions if row.record_id in ids]
        self.sessions = [row.id for row in view.overlay.all_sessions() if key is None and row.id in wanted.sessions]
        self.events = sorted({row.event_id.hex() for row in self.versions})
        texts = {record.chunk for record in self.records}
        for row in self.versions:
            event = parse_json(row.payload)
            texts.update(event[name] for name in _TEXTS if event.get(name))
        self.outbox = _waiting(Outbox(view.paths), wanted, texts, set(self.events))
        self.quarantine = [os.path.basename(path) for path in view.paths.quarantined()]

    def _ids(self, versions: Iterable[EventRow], wanted: Selection, key: bytes | None) -> set[int]:
        """Record ids of everything that is wanted. Raises NotFoundError for what is not there."""
        by_event: dict[str, set[int]] = {}
        by_session: dict[str, set[int]] = {}
        for row in versions:
            by_event.setdefault(row.event_id.hex(), set()).add(row.record_id)
            if row.session:
                by_session.setdefault(exact_session(row), set()).add(row.record_id)
        every = set().union(*by_event.values())
        if key is not None and not (wanted.events or wanted.records or wanted.sessions):
            return every
        if key is None and wanted.sessions:
            for record in self.view.records(include_deleted=True):
                if not record.scope and record.session_id in wanted.sessions:
                    by_session.setdefault(record.session_id, set()).add(record.id)
        found: set[int] = set()
        for kind, names, table in (("event", wanted.events, by_event), ("session", wanted.sessions, by_session)):
            for name in names:
                if name not in table and not _waits(Outbox(self.view.paths), wanted, name):
                    raise NotFoundError(kind=kind, id=name)
                found |= table.get(name, set())
        for id in wanted.records:
            if (id not in every) if key is not None else (self.view.find(id) is None):
                raise NotFoundError(kind="record", id=id)
            found.add(id)
        return found

    def document(self) -> dict[str, Any]:
        """The plan as it is shown: ids and counts, never texts."""
        return {
            "events": self.events,
            "records": [record.id for record in self.records],
            "counts": {"records": len(self.records), "events": len(self.events), "versions": len(self.versions)},
            "sessions": self.sessions,
            "outbox": self.outbox,
            "quarantine": self.quarantine,
        }

    def digest(self) -> str:
        """64 hex digits over the plan and the state it was made in."""
        state = self.view.state
        seen = [self.view.base.store_id.hex(), state.seq, state.next_record_id, state.last_record_us]
        return sha256_hex(canonical_text({"plan": self.document(), "state": seen}))


def _waiting(outbox: Outbox, wanted: Selection, texts: set[str], ids: set[str]) -> list[str]:
    """Files of the outbox and its quarantine that are wanted themselves, or hold one of the ids or telling texts.

    Unreadable ones count too; what names another scope than the wanted one does not.
    """
    telling = [text for text in texts if len(text) >= _TELLING]
    found = []
    for place, fields in _files(outbox):
        if fields and wanted.scope and any(fields.get(name, value) != value for name, value in wanted.scope.items()):
            continue
        strings = [value for value in (fields or {}).values() if isinstance(value, str)]
        if (
            fields is None
            or _claims(fields, wanted)
            or ids.intersection(strings)
            or any(text in string for text in telling for string in strings)
        ):
            found.append(place)
    return found


def _waits(outbox: Outbox, wanted: Selection, name: str) -> bool:
    """True if a wanted session or event has files that wait, though the store has nothing of it."""
    return any(fields and name in _claims(fields, wanted) for _, fields in _files(outbox))


def _claims(fields: Mapping[str, Any], wanted: Selection) -> list[str]:
    """By which session and event id a waiting event is wanted, whether or not it is a sound one; [] if it is not."""
    if wanted.scope is not None and any(fields.get(name) != value for name, value in wanted.scope.items()):
        return []
    claimed = [(fields.get("externalSessionId"), wanted.sessions)]
    claimed += [(fields.get(name), wanted.events) for name in ("eventId", "factId")]
    everything = wanted.scope is not None and not (wanted.sessions or wanted.events or wanted.records)
    return [name for name, names in claimed if isinstance(name, str) and (everything or name in names)]


def _files(outbox: Outbox) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each file that waits or is in quarantine with the object in it; None where it cannot be read as one."""
    for folder, names in (("", outbox.names()), ("quarantine", outbox.quarantined())):
        for name in names:
            place = os.path.join(folder, name)
            try:
                yield place, outbox.parse(place)
            except ClawmemError as problem:
                if problem.exit != 2:
                    raise
                yield place, None


def dry_run(path: str, wanted: Selection) -> dict[str, Any]:
    """What a purge would remove, and the digest that confirms it. Changes nothing. Raises NotFoundError."""
    with open_view(path) as view:
        plan = Plan(view, wanted)
        return {"status": "planned", "digest": plan.digest(), **plan.document(), "out_of_reach": OUT_OF_REACH}


def execute(writer: Writer, wanted: Selection, digest: str, signing: Signing | None = None) -> dict[str, Any]:
    """Remove exactly what the plan with this digest named, and checkpoint.

    Raises SigningKeyRequiredError before anything; ConflictError, on record, where plan or store are not those of the
    digest; UnfinishedError where the checkpoint failed: the purge is committed then, and the next change finishes it.
    """
    from clawmem_core.storage.checkpoint import finishing

    if writer.header.flags & SIGNED and signing is None:
        raise SigningKeyRequiredError(path=writer.paths.given, pending=writer.pending)
    outbox = Outbox(writer.paths)
    with outbox.locked() as there, open_view(writer.paths.real) as view:
        plan = Plan(view, wanted)
        if plan.digest() != digest:
            problem = ConflictError(detail="the store is not as in the dry run; nothing was purged")
            raise refused(writer, problem, operation="refused-purge")
        _remove_waiting(outbox, plan.outbox)
        if there:
            outbox.remove_stale_temps()
        for quarantined in writer.paths.quarantined():
            fs.unlink(quarantined)
        _stage(writer, plan)
        document = plan.document()
    writer.commit()
    with finishing("purge"):
        for derived in (writer.paths.index, writer.paths.keys, writer.paths.ann):
            fs.unlink(derived)
        result = writer.checkpoint(signing)
        if writer.header.base_checkpoint_id != result.checkpoint_id:
            detail = "the old log could not be replaced and holds what was purged"
            raise StorageError(path=writer.paths.log, detail=detail, errno=0)
        remove_stale_temps(writer.paths)
    return {"status": "purged", **document, "out_of_reach": OUT_OF_REACH, "warnings": result.warnings}


def _stage(writer: Writer, plan: Plan) -> None:
    """One frame: what goes, the sessions that go with it, and tombstones for the facts among it."""
    recorded, actor = writer.record_time(), actor_of(writer)
    values = _tombstones(plan.versions, recorded, actor)
    operations = [ops.purge(record.id for record in plan.records)]
    operations += [row_ops.remove(row_ops.SESSION_KIND, name=name) for name in plan.sessions]
    operations += [row_ops.value(row) for row in values]
    keys = [*map(value_key_of, values), *_gone(plan)]
    writer.stage(
        b"".join(operations), len(plan.records) + len(plan.sessions) + len(values), operation="purge",
        target=plan.records[0].id if plan.records else 0, keys=keys[:_FRAME_KEYS], rows=-len(plan.records),
        active=-sum(not record.deleted for record in plan.records), event_rows=-len(plan.versions),
        record_us=recorded, state_flags=PURGE_PENDING,
    )  # fmt: skip
    for at in range(_FRAME_KEYS, len(keys), _FRAME_KEYS):
        writer.stage(b"", 0, operation="purge", keys=keys[at : at + _FRAME_KEYS])


def _tombstones(versions: Iterable[EventRow], recorded: int, actor: str) -> list[ValueRow]:
    """One tombstone for the value of each fact."""
    found: dict[bytes, ValueRow] = {}
    for row in versions:
        if row.label == FACT:
            event = parse_json(row.payload)
            key = value_key(row.scope_key, event["subjectKey"], event["kind"], event["text"])
            found[key] = ValueRow(key, row.scope_key, "purged", actor, recorded)
    return list(found.values())


def _gone(plan: Plan) -> Iterator[Key]:
    """Keys that say what is not there any more, for those who ask before the checkpoint is done."""
    for record in plan.records:
        if record.key:
            yield Key(upsert_key(record.key), bytes(16), record.id, "K", GONE)
    for row in plan.versions:
        if row.version == 1:
            yield from purged_keys(row)


def _remove_waiting(outbox: Outbox, places: Iterable[str]) -> None:
    for place in places:
        outbox.remove(place)
        outbox.remove(place + ".reason")
