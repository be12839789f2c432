"""Pages made by arrays are those made record by record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clawmem_core.model import SearchHit
from clawmem_core.search.engine import Search, search
from clawmem_core.search.stored_vectors import StoredVectors
from clawmem_core.storage import ops
from tests.core.search.index_stores import reader_of, record
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


def test_a_row_of_zeros_has_cosine_zero() -> None:
    """As without numpy, whether vectors are kept or not; only a damaged file holds one."""
    base = reader_of([record(0, "a", [1.0, 1.0]), record(1, "b", [1.0, 0.0])], 2)
    vectors = StoredVectors(base)
    zeros = bytes(4)
    assert [0.0] == vectors.compare_bytes(np.array([1.0, 2.0]), zeros).tolist()
    found = [vectors.exact(np.array([1.0, 0.0]), np.array([0, 1])).tolist() for _ in range(8)]
    assert [[0.707106781187, 1.0]] * 8 == found
