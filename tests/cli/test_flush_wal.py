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
