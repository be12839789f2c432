"""clawmem delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Answer


def test_several_are_deleted_together_or_none(
    store: Callable[..., Answer], conforms: Callable[[str, Any], None]
) -> None:
    """An unknown id among them changes nothing."""
    store("save", "--ndjson", stdin='{"chunk":"x"}\n' * 4)
    assert (4, "not-found") == ((refused := store("delete", "1", "99")).code, refused.error["code"])
    assert 4 == store("stats").document["active"]
    answer = store("delete", "1", "3", "1")
    conforms("delete", answer.document)
    assert (2, 4, 2) == tuple(answer.document[name] for name in ("deleted", "count", "active"))
    assert (4, "deleted") == ((again := store("delete", "1")).code, again.error["code"])
    assert [0, 2] == [row["index"] for row in store("export").lines]
