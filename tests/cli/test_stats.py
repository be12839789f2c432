"""clawmem stats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Answer


def test_counts_follow_every_change(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """count includes deleted rows; wal_pending is exact."""

    def counts() -> tuple[int, int, int]:
        document = store("stats").document
        conforms("stats", document)
        return document["count"], document["active"], document["wal_pending"]

    assert (0, 0, 0) == counts()
    store("save", stdin='{"chunk":"x"}')
    store("save", stdin='{"chunk":"y"}')
    assert (2, 2, 2) == counts()
    store("delete", "0")
    assert (2, 1, 3) == counts()
    store("flush-wal")
    assert (2, 1, 0) == counts()
    store("compact")
    assert (1, 1, 0) == counts()
