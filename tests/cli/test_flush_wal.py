"""clawmem flush-wal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Answer


def test_the_log_moves_into_the_file(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Counted; a second time there is nothing left."""
    store("save", stdin='{"chunk":"x"}')
    store("save", stdin='{"chunk":"y"}')
    answer = store("flush-wal")
    conforms("flush-wal", answer.document)
    assert {"status": "flushed", "entries_flushed": 2, "wal_pending": 0} == answer.document
    assert 0 == store("flush-wal").document["entries_flushed"]
    assert ["x", "y"] == [row["chunk"] for row in store("export").lines]


def test_a_new_signer_is_told(store: Callable[..., Answer]) -> None:
    """Signing that starts, and a change of keys, are said on stderr; signing as ever is not."""
    for name in ("a.pem", "b.pem"):
        store("keygen", "--out", name)

    def told(*words: str) -> list[str]:
        store("save", stdin='{"chunk":"x"}')
        answer = store("flush-wal", *words)
        assert 0 == answer.code
        return [warning["message"] for warning in answer.warnings]

    assert [] == told()
    (first,) = told("--signing-key", "a.pem")
    assert "is signed from this checkpoint on" in first
    assert [] == told("--signing-key", "a.pem")
    (changed,) = told("--signing-key", "b.pem", "--rotate-key")
    assert "the key was changed" in changed
    assert [] == told("--signing-key", "b.pem", "--rotate-key")
