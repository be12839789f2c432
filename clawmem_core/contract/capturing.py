"""From a transcript to a stored or waiting episode (spec/lifecycle.md § 2, O9, O16).

Invariants: a turn's index depends on its source event, its session and its scope, so a hook that fires twice, a restart
or a replay gives the same episode; an index is one more than the highest of the session, in the store or waiting; what
is acknowledged is durable, in the store or in the outbox. Between processes the store's lock and that of the outbox
folder keep indices apart; while the store is locked by somebody else, two turns may share one, which nothing depends
on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_core.contract.capture import SKIP_REASONS, capture_episode
from clawmem_core.contract.event_keys import EPISODE, exact_session
from clawmem_core.contract.identities import create_episode_event
from clawmem_core.contract.outbox import Outbox, same_turn
from clawmem_core.contract.saving import refused, save_event
from clawmem_core.contract.scope import scope_key
from clawmem_core.errors import ConflictError, LockedError
from clawmem_core.storage.paths import StorePaths
from clawmem_core.strict_json import parse_json
from clawmem_core.view import open_view
from clawmem_core.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clawmem_core.contract.redaction import Redactor
    from clawmem_core.view import View


def capture(
    path: str, messages: Sequence[Any], *, scope: Mapping[str, Any], metadata: Mapping[str, Any], success: bool = True,
    redactor: Redactor | None = None, actor: str | None = None, lock_timeout: float = 0.0, queue: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Store the turn that ends a transcript, or keep it in the outbox while the store is locked, or with `queue`.

    `metadata`: members of the episode but turnIndex, which is assigned. Returns {"status"} "saved", "exists", "queued"
    (with "id", "turnIndex", "index" or "file") or "skipped" (with "reason"), and "redacted": counts by class. Raises
    ConflictError where the source event is taken by another text, NoStoreError, OutboxFullError, and as
    `capture_episode`.
    """
    made = capture_episode(
        messages, scope=scope, metadata={**metadata, "turnIndex": 0}, success=success, redactor=redactor
    )  # fmt: skip
    if made.event is None:
        answer = {"status": "skipped", "reason": made.skipped, "explanation": SKIP_REASONS[made.skipped]}
    elif queue:
        answer = _queue(path, made.event)
    else:
        try:
            with Writer.open(path, lock_timeout, actor) as writer:
                answer = _store(writer, made.event)
        except LockedError:
            answer = _queue(path, made.event)
    return {**answer, "redacted": made.redacted}


def _store(writer: Writer, event: dict[str, Any]) -> dict[str, Any]:
    """Into the store, whose lock is held."""
    outbox = Outbox(writer.paths)
    with outbox.locked(), open_view(writer.paths.real) as view:
        turns = list(_turns(view, outbox, event))
        found = _of_source(turns, event)
        if found is not None and not same_turn(found, event):
            raise refused(writer, _conflict(event), bytes.fromhex(event["eventId"]))
        whole = _numbered(event, turns) if found is None else found
        saved = save_event(writer, whole, judged=True)
        writer.commit()
    return {"status": saved.status, "id": saved.id, "turnIndex": whole["turnIndex"], "index": saved.index}


def _queue(path: str, event: dict[str, Any]) -> dict[str, Any]:
    """Into the outbox, unless the store or the outbox holds the turn already."""
    outbox = Outbox(StorePaths(path))
    with open_view(path) as view, outbox.locked(create=True):
        turns = list(_turns(view, outbox, event))
        found = _of_source(turns, event)
        if found is not None:
            if not same_turn(found, event):
                raise _conflict(event)
            return {"status": "exists", "id": found["eventId"], "turnIndex": found["turnIndex"]}
        whole = _numbered(event, turns)
        name = outbox.put(whole)
    return {"status": "queued", "id": whole["eventId"], "turnIndex": whole["turnIndex"], "file": name}


def _turns(view: View, outbox: Outbox, event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every episode of the event's session in its scope, stored or waiting."""
    key, session = scope_key(event), event["externalSessionId"]
    for row in view.events_of_scope(bytes.fromhex(key)):
        if row.label == EPISODE and not row.recorded_to and exact_session(row) == session:
            yield parse_json(row.payload)
    for _, waiting in outbox.events():
        if waiting.get("externalSessionId") == session and scope_key(waiting) == key:
            yield waiting


def _of_source(turns: Sequence[dict[str, Any]], event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The episode that came from the same source event, if the event names one."""
    source = event.get("sourceEventId")
    return next((turn for turn in turns if turn.get("sourceEventId") == source), None) if source else None


def _numbered(event: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The event with the next index of its session."""
    return create_episode_event({**event, "turnIndex": max((turn["turnIndex"] + 1 for turn in turns), default=0)})


def _conflict(event: Mapping[str, Any]) -> ConflictError:
    return ConflictError(detail=f"another turn of this session has source event {event['sourceEventId']!r}")
