"""clawmem compact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Answer


def test_deleted_rows_go_and_ids_stay(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Old to new positions are told; the next id is a new one."""
    store("save", "--ndjson", stdin='{"chunk":"x"}\n' * 4)
    store("delete", "1")
    answer = store("compact")
    conforms("compact", answer.document)
    assert (1, 3, {"2": 1, "3": 2}) == tuple(answer.document[name] for name in ("removed", "count", "moved"))
    assert [0, 2, 3] == [row["index"] for row in store("export", "--include-deleted").lines]
    assert 4 == store("save", stdin='{"chunk":"y"}').document["index"]
    assert 0 == store("compact").document["removed"]
