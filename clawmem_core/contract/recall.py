"""Which events a read may see, decided before anything is ranked (design § 6). Loaded by one-shot search.

Invariants: a read names one scope, or all of them on purpose and on record; candidates come from the rows of that scope
alone, so no filter can widen it; what is not visible, trusted or confident enough never reaches the ranking. Trust and
confidence also weigh what is ranked, and an episode whose fact was replaced stands below the fact that replaced it.
"""

from __future__ import annotations

from itertools import pairwise

from clawmem_core import clock
from clawmem_core.contract.event_keys import EPISODE, FACT, exact_session, exact_source
from clawmem_core.contract.lifecycle import (
    ACTIVE,
    MIXED,
    below_successors,
    known,
    rank_factor,
    trust_passes,
    visible,
)
from clawmem_core.contract.scope import build_scope_where
from clawmem_core.errors import NotFoundError
from clawmem_core.storage.row_ops import LABELS, NO_ID, TRUSTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clawmem_core.model import Record, SearchHit, SearchOptions
    from clawmem_core.storage.row_ops import EventRow
    from clawmem_core.view import View

#: how many hits beyond the page are looked at for the successor of a marked episode
BEYOND = 128


class EventFilter:
    """What a read of events asks for, besides its scope.

    `labels`: indices into LABELS, empty for all. `exclude_session`: leave out the episodes of this session and the
    facts that came from them. `min_trust`: index into TRUSTS. `min_confidence`: least confidence of a fact. `as_of`:
    validity time, None for now; an episode then counts whenever it was observed. `known_at`: record time, None for
    what is on record today. Times in seconds since the epoch.
    """

    __slots__ = ("as_of", "exclude_session", "known_at", "labels", "min_confidence", "min_trust")

    def __init__(
        self,
        labels: Sequence[int] = (),
        exclude_session: str = "",
        min_trust: int = MIXED,
        min_confidence: float = 0.0,
        as_of: float | None = None,
        known_at: float | None = None,
    ) -> None:
        self.labels, self.exclude_session, self.min_trust = labels, exclude_session, min_trust
        self.min_confidence, self.as_of, self.known_at = min_confidence, as_of, known_at

    def document(self, scope: Mapping[str, Any] | None) -> dict[str, Any]:
        """The filter in force, as `--explain` prints it. `scope`: None for all scopes."""
        where: dict[str, Any] = {}
        if scope is not None:
            where = build_scope_where(scope, exclude_session_id=self.exclude_session, active_only=True)
        elif self.exclude_session:
            where["externalSessionId"] = {"$ne": self.exclude_session}
        where["label"] = [LABELS[label] for label in self.labels or (EPISODE, FACT)]
        where["trustClass"] = list(TRUSTS[1 : self.min_trust + 1])
        where["confidence"] = {"$gte": self.min_confidence}
        where["asOf"], where["knownAt"] = self.as_of, self.known_at
        return where

    def passes(self, row: EventRow, now: float) -> bool:
        """Whether a version may be read at time `now`, sessions aside."""
        if self.labels and row.label not in self.labels:
            return False
        if not trust_passes(row, self.min_trust) or (row.label == FACT and row.confidence < self.min_confidence):
            return False
        if row.label == EPISODE and self.as_of is None:
            return row.status == ACTIVE and known(row, self.known_at)
        return visible(row, as_of=now if self.as_of is None else self.as_of, known_at=self.known_at)


class Readable:
    """The events that a read may see, by the record with their text.

    `successors`: by scope and source event, the records of the facts that replaced what came from there. An episode is
    marked when its fact is replaced, and here once more, for those that came in after that.
    """

    __slots__ = ("rows", "successors")

    def __init__(self, versions: Iterable[EventRow], wanted: EventFilter) -> None:
        every = list(versions)
        now = clock.now()
        excluded = _excluded(every, wanted.exclude_session) if wanted.exclude_session else set()
        self.successors = _successors(every)
        self.rows: dict[int, EventRow] = {}
        for row in every:
            if row.record_id not in excluded and wanted.passes(row, now):
                late = wanted.known_at is None and row.label == EPISODE and self._sources(row)
                self.rows[row.record_id] = row.changed(marked=True) if late and not row.marked else row

    def _sources(self, row: EventRow) -> Sequence[int]:
        """Records of the facts that replaced what came from the same source event as an episode."""
        return self.successors.get((row.scope_key, exact_source(row)), ()) if row.source_event else ()

    def factors(self) -> dict[int, float]:
        """What trust and confidence do to the rank of each record."""
        return {id: rank_factor(row.trust, row.confidence) for id, row in self.rows.items()}

    def order(self, hits: list[SearchHit]) -> list[SearchHit]:
        """The hits, every marked episode below the facts that replaced what it says."""
        places = {hit.index: place for place, hit in enumerate(hits)}
        below = {}
        for id, row in self.rows.items():
            if row.marked and id in places:
                found = [one for one in self._sources(row) if one in places]
                if found:
                    below[id] = max(found, key=places.__getitem__)
        by_id = {hit.index: hit for hit in hits}
        page = [by_id[id] for id in below_successors([hit.index for hit in hits], below)]
        for before, after in pairwise(page):
            after.score = min(after.score, before.score)  # what was moved down says so
        return page


def _excluded(versions: Sequence[EventRow], session: str) -> set[int]:
    """Records of a session's episodes and of the facts that name one of its source events."""
    mine = [row for row in versions if row.label == EPISODE and exact_session(row) == session]
    sources = {(row.scope_key, exact_source(row)) for row in mine if row.source_event}
    found = {row.record_id for row in mine}
    found.update(
        row.record_id for row in versions
        if row.label == FACT and (row.scope_key, exact_source(row)) in sources
    )  # fmt: skip
    return found


def _successors(versions: Iterable[EventRow]) -> dict[tuple[bytes, str], list[int]]:
    """By scope and source event: the records of the newest facts that replaced what came from there."""
    current = {(row.scope_key, row.event_id): row for row in versions if row.label == FACT and not row.recorded_to}
    found: dict[tuple[bytes, str], list[int]] = {}
    for row in current.values():
        newest = row
        for _ in range(len(current)):  # a chain is never longer, and a damaged one never turns for ever
            following = current.get((row.scope_key, newest.superseded_by))
            if newest.superseded_by == NO_ID or following is None:
                break
            newest = following
        if newest is not row:
            found.setdefault((row.scope_key, exact_source(row)), []).append(newest.record_id)
    return found


# ---------------------------------------------------------------- reading


def read_scope_rows(view: View, scope_key: bytes | None, wanted: EventFilter) -> Readable:
    """What a read of one scope, or (None) of all scopes, may see."""
    return Readable(view.events() if scope_key is None else view.events_of_scope(scope_key), wanted)


def search_events(
    view: View, readable: Readable, scope_key: bytes | None, vector: Any, text: str | None, options: SearchOptions
) -> list[SearchHit]:
    """The page of a search over events; over all scopes (`scope_key` None) plain records take part too.

    Raises as `request_of`.
    """
    from clawmem_core.search.engine import request_of, search

    allowed = set(readable.rows)
    if scope_key is None:
        allowed |= plain_ids(view)
    request = request_of(
        view, vector, text, options, allowed=allowed, scope=scope_key, factors=readable.factors()
    )  # fmt: skip
    if not any(row.marked for row in readable.rows.values()):
        return search(view, request)
    k, request.k = request.k, request.k + BEYOND
    return readable.order(search(view, request))[:k]


def plain_ids(view: View) -> set[int]:
    """Records that are not the text of an event."""
    base, overlay = view.base, view.overlay
    found = {base.id_at(row) for row in range(base.count) if not base.scope(row)} - overlay.dropped
    found.update(id for id, record in overlay.records.items() if not record.scope)
    return found


def recall_event(view: View, id: int, scope_key: bytes, wanted: EventFilter) -> tuple[Record, EventRow]:
    """One event of a scope by the index of its record. Raises NotFoundError, in the same words whatever the reason."""
    row = read_scope_rows(view, scope_key, wanted).rows.get(id)
    record = None if row is None else view.find(id)
    if row is None or record is None:
        raise NotFoundError(kind="record", id=id)
    return record, row
