"""Pages made by arrays are those made record by record."""

from __future__ import annotations

from typing import Any

import pytest

from clawmem_core.model import SearchHit
from clawmem_core.search.engine import Search, search
from clawmem_core.storage import ops
from tests.core.search.search_cases import Case


def shown(hits: list[SearchHit]) -> list[tuple[object, ...]]:
    """Everything a hit shows but how its score came about."""
    return [tuple(getattr(hit, name) for name in SearchHit.__slots__ if name != "explain") for hit in hits]


@pytest.mark.parametrize("seed", range(8))
def test_every_field_is_that_of_the_page_by_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the log holds new activation weights and nothing else; explained or not."""
    case = Case(seed, (5, 80, 300)[seed % 3], 0, 4, float16=seed % 2 == 0)
    view: Any = case.view
    live = [id for id, entry in case.records.items() if not entry.deleted]
    if seed % 2:
        view.overlay.apply([(ops.ACTIVATION, 0, tuple((id, 0.5) for id in live[::3]))])
    for _ in range(12):
        request = case.request()
        request.executor, request.k = "numpy", min(request.k, 64)
        by_arrays = search(view, request)
        request.explain = True
        explained = search(view, request)
        with monkeypatch.context() as patched:
            patched.setattr(Search, "_by_arrays", lambda _: False)
            by_records = search(view, request)
        assert shown(by_records) == shown(by_arrays) == shown(explained)
        assert [hit.explain for hit in by_records] == [hit.explain for hit in explained]
