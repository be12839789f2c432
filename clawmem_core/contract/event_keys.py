"""Under which keys the key table knows events and rejected values (log-v4.md § 8, design § 6).

Kinds: P (label, event id, scope key): this very event; S (scope key, session, source event): the turn an episode came
from; V (value key, which covers the scope): a tombstoned value. Invariant: the keys of a row depend on that row alone,
so a checkpoint rebuilds the table from the events and gets what each save wrote. HOT.
"""

from __future__ import annotations

from clawmem_core.contract.digest import sha256_digest
from clawmem_core.storage.keys import key_bytes
from clawmem_core.storage.log_format import NO_ID, Key
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawmem_core.storage.row_ops import EventRow, ValueRow

EPISODE, FACT = 1, 2  # indices into row_ops.LABELS
IN_FORCE, LIFTED = 1, 2  # status of a V key
REPLACED = "\ufffd"  # stands in a column for what the column cannot hold


def identity_key(label: int, event_id: bytes, scope_key: bytes) -> bytes:
    """Key P: the event with this label and id in this scope."""
    return key_bytes("P", bytes([label]), event_id, scope_key)


def source_key(scope_key: bytes, session: str, source_event: str) -> bytes:
    """Key S: the turn of a session, both texts exactly as in the event (lone surrogates included)."""
    parts = (sha256_digest(text.encode("utf-8", "surrogatepass")) for text in (session, source_event))
    return key_bytes("S", scope_key, *parts)


def value_key_bytes(value_key: bytes) -> bytes:
    """Key V: a value, by its value key (contract/lifecycle.py)."""
    return key_bytes("V", value_key)


def payload_digest(payload: bytes) -> bytes:
    """What tells `exists` from a conflict: the first 16 bytes of SHA-256 over the canonical payload."""
    return sha256_digest(payload)[:16]


def exact_session(row: EventRow) -> str:
    """The session of an episode exactly as in its payload."""
    return _exact(row, row.session, "externalSessionId")


def exact_source(row: EventRow) -> str:
    """The source event of a row exactly as in its payload; "" for none."""
    return _exact(row, row.source_event, "sourceEventId")


def _exact(row: EventRow, column: str, member: str) -> str:
    """A column, or what it stands for: the payload is parsed only where the column shows that it could not hold it."""
    if REPLACED not in column:
        return column
    text: str = parse_json(row.payload).get(member, "")
    return text


def event_keys(row: EventRow) -> Iterator[Key]:
    """The keys of an event's first version; later versions keep them."""
    digest = payload_digest(row.payload)
    yield Key(identity_key(row.label, row.event_id, row.scope_key), digest, row.record_id, "P", row.status)
    if row.label == EPISODE and row.source_event:
        key = source_key(row.scope_key, exact_session(row), exact_source(row))
        yield Key(key, digest, row.record_id, "S", 0)


def purged_keys(row: EventRow) -> Iterator[Key]:
    """The keys that say that an event is gone, until a checkpoint makes a table without it."""
    return (Key(key.key, NO_ID, key.record_id, key.kind, 0) for key in event_keys(row))


def stored(key: Key | None) -> Key | None:
    """A P or S key, if what it stands for is still there."""
    return None if key is None or key.digest == NO_ID else key


def value_key_of(row: ValueRow) -> Key:
    """The key of a value tombstone. Its `record_id` is the whole second in which the tombstone ends, 0 for never."""
    ends = 0 if row.expires == float("inf") else max(-int(-row.expires // 1), 1)
    return Key(value_key_bytes(row.value_key), bytes(16), ends, "V", LIFTED if row.lifted else IN_FORCE)


def in_force(key: Key | None, now: float) -> bool:
    """Whether a V key says that the value is rejected at time `now` (seconds)."""
    return key is not None and key.status == IN_FORCE and (key.record_id == 0 or now < key.record_id)
