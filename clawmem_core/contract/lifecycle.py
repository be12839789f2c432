"""Rules for the life of an event: states, what a read may see, what a replacement may replace. No storage.

Invariants: a row changes only by a new version, whose record time is later than that of the one before; the payload
never changes; a value that was taken back is known by its value key, whatever turn, runtime, case or spacing brings it
again. Times: validity in seconds since the epoch, record time in whole microseconds. HOT.

States of a fact:  pending -> active -> superseded | retracted | expired;  pending -> rejected.
"""

from __future__ import annotations

import unicodedata

from clawmem_core.contract.canonical import JS_WHITESPACE, canonical_text
from clawmem_core.contract.digest import sha256_digest
from clawmem_core.errors import ConflictError, NotFoundError
from clawmem_core.storage.row_ops import NO_ID, STATUSES, TRUSTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from clawmem_core.storage.row_ops import EventRow

PENDING, ACTIVE, SUPERSEDED, RETRACTED, EXPIRED, REJECTED = range(1, len(STATUSES))
TRUSTED, MIXED, UNTRUSTED = range(1, len(TRUSTS))

_NEXT_STATES: Final = {PENDING: (ACTIVE, REJECTED), ACTIVE: (SUPERSEDED, RETRACTED, EXPIRED)}
# What held for a time and then stopped stays true of that time. A retracted or rejected value never held.
_HELD_STATES: Final = (ACTIVE, SUPERSEDED, EXPIRED)
_TRUST_FACTORS: Final = {TRUSTED: 1.0, MIXED: 0.9, UNTRUSTED: 0.7}
_SPACES: Final = dict.fromkeys(map(ord, JS_WHITESPACE), " ")
_MAX_CHAIN: Final = 10_000


# ---------------------------------------------------------------- values


def normalized_value(text: str) -> str:
    """The text as tombstones compare it: NFKC, no invisible format characters, single spaces, trimmed, case-folded.

    Normalised once more after folding, since folding can undo NFKC (Unicode § 3.13, D146).
    """
    visible = "".join(
        char for char in unicodedata.normalize("NFKC", text).translate(_SPACES) if unicodedata.category(char) != "Cf"
    )
    return unicodedata.normalize("NFKC", " ".join(visible.split()).casefold())


def value_key(scope_key: bytes, subject_key: str, kind: str, text: str) -> bytes:
    """The 32 bytes that name a value in a scope: SHA-256 of the canonical scope key, subject, kind and normal text.

    Unlike a fact's id it ignores the turn and the runtime a value came from.
    """
    value = {"kind": kind, "scopeKey": scope_key.hex(), "subjectKey": subject_key, "text": normalized_value(text)}
    return sha256_digest(canonical_text(value).encode())


# ---------------------------------------------------------------- states and versions


def initial_status(event: Mapping[str, Any]) -> int:
    """The state an event is stored in when nothing speaks against it: a fact that says it is inactive is retracted."""
    return ACTIVE if event.get("active", True) else RETRACTED


def next_record_time(previous_us: int, now_us: int) -> int:
    """Record time of the next version: the clock, but later than the one before also when the clock goes back."""
    return max(previous_us + 1, now_us)


def check_transition(row: EventRow, status: int) -> None:
    """Raise ConflictError unless a row may go from its state to `status`."""
    if status not in _NEXT_STATES.get(row.status, ()):
        raise ConflictError(
            detail=f"fact {row.event_id.hex()} is {STATUSES[row.status]}, so it cannot become {STATUSES[status]}"
        )


def next_version(row: EventRow, status: int, *, recorded: int, reason: str, actor: str, **changes: Any) -> EventRow:
    """The version that follows `row` in state `status`; the caller closes `row` at the new version's record time.

    Raises ConflictError for a step the states do not allow, or a record time that is not later.
    """
    check_transition(row, status)
    if recorded <= row.recorded_from:
        raise ConflictError(detail=f"fact {row.event_id.hex()} has a version recorded at or after this change")
    return row.changed(
        version=row.version + 1,
        status=status,
        recorded_from=recorded,
        recorded_to=0,
        reason=reason,
        actor=actor,
        **changes,
    )


def end_validity(
    row: EventRow, status: int, *, at: float, recorded: int, reason: str, actor: str, superseded_by: bytes = NO_ID
) -> EventRow:
    """The version with which a fact stops holding at `at` (seconds): superseded, retracted or expired.

    An end that was set earlier stays. Raises ConflictError as `next_version`.
    """
    return next_version(
        row, status, recorded=recorded, reason=reason, actor=actor,
        valid_until=min(row.valid_until, at), superseded_by=superseded_by,
    )  # fmt: skip


# ---------------------------------------------------------------- reading


def known(row: EventRow, known_at: float | None) -> bool:
    """True if this version is the one on record at `known_at` (seconds; None: the current one)."""
    if known_at is None:
        return row.recorded_to == 0
    moment = round(known_at * 1_000_000)
    return row.recorded_from <= moment and (row.recorded_to == 0 or moment < row.recorded_to)


def visible(row: EventRow, *, as_of: float, known_at: float | None = None) -> bool:
    """True if a read at validity time `as_of`, with what was on record at `known_at`, may show this version.

    Validity is from `valid_from` inclusive to `valid_until` exclusive. Pending, rejected and retracted rows are never
    shown; superseded and expired ones for the time they held.
    """
    return row.status in _HELD_STATES and row.valid_from <= as_of < row.valid_until and known(row, known_at)


def trust_passes(row: EventRow, minimum: int = MIXED) -> bool:
    """True if the row's trust class is at least `minimum` (an index into TRUSTS; the first is the highest)."""
    return row.trust <= minimum


def rank_factor(trust: int, confidence: float) -> float:
    """What a row's relevance is multiplied by: trust 1.0 / 0.9 / 0.7, times half to all by confidence in [0, 1]."""
    return _TRUST_FACTORS[trust] * (0.5 + confidence / 2)


def below_successors(order: Sequence[int], successors: Mapping[int, int]) -> list[int]:
    """A page in which every marked row stands below the fact that replaced what it says, where both are on it.

    `order`: record ids, best first; `successors`: marked record id to the record id of the newest fact. The order is
    otherwise kept. A marked row moves directly behind its successor.
    """
    waiting: dict[int, list[int]] = {}
    places = {record_id: place for place, record_id in enumerate(order)}
    result: list[int] = []
    for place, record_id in enumerate(order):
        successor = successors.get(record_id)
        if successor is not None and places.get(successor, -1) > place and successor not in successors:
            waiting.setdefault(successor, []).append(record_id)
            continue
        result.append(record_id)
        result.extend(waiting.pop(record_id, ()))
    return result


# ---------------------------------------------------------------- replacing


def check_replaceable(
    old: EventRow | None,
    *,
    fact_id: str,
    scope_key: bytes,
    old_value: bytes,
    new_value: bytes,
    new_id: bytes,
    find: Callable[[bytes], EventRow | None],
) -> EventRow:
    """The row to replace, if it may be: in this scope, active, another value, and no way back to itself.

    `old`: the current version found for `fact_id`, or None; `find`: current version of an event id in this scope.
    Raises NotFoundError for an unknown fact and, in the same words, for one of another scope; ConflictError otherwise.
    """
    if old is None or old.scope_key != scope_key:
        raise NotFoundError(kind="fact", id=fact_id)
    check_transition(old, SUPERSEDED)
    if old_value == new_value:
        raise ConflictError(detail=f"fact {fact_id} already says this")
    ancestor: EventRow | None = old
    for _ in range(_MAX_CHAIN):
        if ancestor is None:
            return old
        if ancestor.event_id == new_id:
            raise ConflictError(
                detail=f"fact {new_id.hex()} is where fact {fact_id} came from",
                hint="said again in another turn it is a new fact: give that turn's sourceEventId with --json",
            )
        ancestor = find(ancestor.supersedes) if ancestor.supersedes != NO_ID else None
    raise ConflictError(detail=f"the history of fact {fact_id} is longer than {_MAX_CHAIN} facts or runs in a circle")
