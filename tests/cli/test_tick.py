"""clawmem tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Answer


def test_raised_activation_decays(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Toward 1, and only where it is not 1."""
    store("save", "--ndjson", stdin='{"chunk":"x","activation":2}\n{"chunk":"y"}\n')
    answer = store("tick")
    conforms("tick", answer.document)
    assert 1 == answer.document["changed"]
    assert 1 < store("recall", "0").document["activation"] < 2
    assert "activation" not in store("recall", "1").document
