"""What an event is looked up by: the keys of log frames and of `.keys` (spec/log-v4.md § 8).

HOT. Invariant: two things share a key only if they are the same thing; parts of varying length are preceded by theirs.
"""

from __future__ import annotations

from clawmem_core.storage.keys import key_bytes


def event_key(label: int, event_id: bytes, scope_key: bytes) -> bytes:
    """P: an event's identity. Ids and scope keys have 32 bytes; `label` is an index into ops.LABELS."""
    return key_bytes("P", bytes((label,)), event_id, scope_key)


def source_key(scope_key: bytes, session: str, source_event: str) -> bytes:
    """S: the place of an episode in its session; the source event may hold lone surrogates."""
    name = session.encode("utf-8", "surrogatepass")
    return key_bytes(
        "S", scope_key, len(name).to_bytes(4, "little"), name, source_event.encode("utf-8", "surrogatepass")
    )


def value_key(value: bytes) -> bytes:
    """V: a value in its scope, by the 32 bytes that name it (contract/lifecycle.py)."""
    return key_bytes("V", value)
