"""Store files made without the engine, so that these tests depend on the layout alone."""

from __future__ import annotations

import os

import numpy as np

from clawmem_core.contract.event_row import first_version
from clawmem_core.integrity.keys import SecretKey
from clawmem_core.integrity.signing import Signing
from clawmem_core.model import StoreConfig
from clawmem_core.storage import fs, hdf5_file, schema
from clawmem_core.storage.columns import Columns, TextColumn, VectorColumn, norms_of
from clawmem_core.storage.row_ops import Alias, Entity, Relation, Session, ValueRow
from tests.core.contract.events import fact

DIM = 4


def secret_key(number: int = 1) -> SecretKey:
    """A fixed key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SecretKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


def columns(count: int = 20, *, dim: int = DIM, float16: bool = True, width: int = 0) -> Columns:
    """A store of `count` records, two of them deleted, with sessions, graph, events and audit lines."""
    made = Columns(StoreConfig(agent_id="honest", dim=dim, float16=float16, created_at="2026-01-01T00:00:00Z"))
    made.store_id, made.checkpoint_id, made.generation = b"s" * 16, os.urandom(16), 1
    made.log_state, made.signed = bytes(72) + b"h" * 32, True
    made.ids = np.arange(count, dtype=np.int64)
    made.chunks = TextColumn.of([f"memory number {number:02d}".ljust(width, "·") for number in range(count)])
    made.source_channel = TextColumn.of(["chat"] * count)
    made.session_ids = TextColumn.of([f"s{number // 5}" for number in range(count)])
    made.tags = TextColumn.of([f"tag{number:02d}" for number in range(count)])
    made.keys = TextColumn.of([f"key{number}" if number % 3 == 0 else "" for number in range(count)])
    made.source_ids = TextColumn.of([f"old-{number}" for number in range(count)])
    vectors = np.random.default_rng(count).standard_normal((count, dim)).astype(made.embeddings.dtype)
    made.embeddings = VectorColumn("", "", vectors, count, dim, made.embeddings.dtype)
    made.timestamps = 1.7e9 + np.arange(count, dtype=np.float64)
    made.tombstones = np.zeros(count, np.uint8)
    made.tombstones[[2, 15][: max(count - 15, 0)]] = 1
    made.norms, made.activation = norms_of(vectors), np.ones(count, np.float32)
    if count:
        made.session_rows = [Session("s0", 0, 4, "chat", "first", 1.7e9), Session("s1", 5, 9, "mail", "ünïcode", 1.8e9)]
        made.entity_rows = [Entity(0, "Ada", "person", 1), Entity(1, "Engine", "thing")]
        made.relation_rows = [Relation(0, 1, "wrote about", 0.5, 1.7e9)]
        made.alias_rows = [Alias("ada l.", 0), Alias("the engine", 1)]
        made.events = [first_version(fact(), record_id=18, recorded=5, actor="me")]
        made.values = [ValueRow(b"v" * 32, b"k" * 32, "wrong", "me", 7)]
        made.audit = b"a" * 72 + b"b" * 72
    return made


def write_store(path: str, content: Columns, signing: Signing | None, changed: set[int] | None = None) -> None:
    """A store file at `path`, sealed if `signing` is given."""
    fs.unlink(path)
    fd = fs.open_new(path)
    assert fd is not None
    with hdf5_file.writing(fd, path) as file:
        schema.write(file, content)
        if signing is not None:
            signing.seal(file, path, changed)
    fs.close(fd)
