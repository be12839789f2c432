"""Records and hits as the JSON objects that every verb prints. HOT."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_core.model import Record, SearchHit


def record_fields(record: Record, float16: bool, embedding: bool = True) -> dict[str, Any]:
    """A record as `recall` and `export` print it and `save` takes it back, vector included as base64 of its bytes.

    What is as usual stays away: no key, no source id, activation 1, not deleted, no vector.
    """
    fields: dict[str, Any] = {
        "index": record.id,
        "chunk": record.chunk,
        "source_channel": record.source_channel,
        "timestamp": record.timestamp,
        "session_id": record.session_id,
        "tags": record.tags,
    }
    if record.key:
        fields["key"] = record.key
    if record.source_id:
        fields["source_id"] = record.source_id
    if record.activation != 1.0:
        fields["activation"] = record.activation
    if record.deleted:
        fields["deleted"] = True
    if embedding and record.vector is not None:
        import binascii

        name = "embedding_f16" if float16 else "embedding_f32"
        fields[name] = binascii.b2a_base64(record.vector, newline=False).decode("ascii")
    return fields


def hit_fields(hit: SearchHit) -> dict[str, Any]:
    """One row of a result page."""
    fields: dict[str, Any] = {
        "index": hit.index,
        "score": hit.score,
        "chunk": hit.chunk,
        "timestamp": hit.timestamp,
        "source_channel": hit.source_channel,
        "session_id": hit.session_id,
        "tags": hit.tags,
        "similarity": hit.similarity,
    }
    if hit.explain is not None:
        fields["explain"] = dict(hit.explain)
    return fields
