"""clawmem recall."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Answer


def test_every_field_comes_back(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """The vector as the store holds it, in base64."""
    store(
        "save", "--json",
        '{"chunk":"x","embedding":[0.1,0.2,0.3,0.4],"source_channel":"chat","timestamp":1700000000.5,'
        '"session_id":"s1","tags":["a","b"],"key":"k","source_id":"7"}',
    )  # fmt: skip
    document = store("recall", "0").document
    conforms("recall", document)
    vector = struct.unpack("<4e", base64.b64decode(document.pop("embedding_f16")))
    assert struct.unpack("<4e", struct.pack("<4e", 0.1, 0.2, 0.3, 0.4)) == vector
    assert {
        "index": 0, "chunk": "x", "source_channel": "chat", "timestamp": 1700000000.5, "session_id": "s1",
        "tags": "a,b", "key": "k", "source_id": "7",
    } == document  # fmt: skip


def test_unknown_and_deleted_are_told_apart(store: Callable[..., Answer]) -> None:
    """Both exit 4, with code words of their own."""
    store("save", stdin='{"chunk":"x"}')
    store("delete", "0")
    deleted, unknown = store("recall", "0"), store("recall", "99")
    assert (4, "deleted", 4, "not-found") == (
        deleted.code, deleted.error["code"], unknown.code, unknown.error["code"],
    )  # fmt: skip
    assert "99" in unknown.error["message"]
    assert 2 == store("recall", "first").code
