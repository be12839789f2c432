"""pure.py: what is left out before it is compared exactly could not have been among the best."""

from __future__ import annotations

import numpy as np
import pytest

from clawmem_core.search import ranking
from tests.core.search.index_stores import reader_of, record

pytest.importorskip("simsimd")

from clawmem_core.search.pure import PureExecutor


@pytest.mark.parametrize("dim", [8, 384])
@pytest.mark.parametrize("count", [10, 65, 300])
def test_of_the_vectors_beside_the_index_none_is_left_out_that_counts(count: int, dim: int) -> None:
    """Each that reaches the bar and is among the best is given with its exact cosine, whatever the bar is."""
    rng = np.random.default_rng((count, dim))
    executor = PureExecutor(reader_of([record(0, "", rng.normal(size=dim).tolist())], dim))
    vectors = rng.normal(size=(count, dim)) * rng.uniform(1e-2, 10, (count, 1))
    stored = [vector.astype("<f2").tobytes() for vector in vectors]
    query = executor.vector(rng.normal(size=dim).tolist())
    exact = executor.compare(query, b"".join(stored))
    best = sorted(range(count), key=lambda at: -exact[at])[: ranking.POOL]
    for bar in (-1.0, exact[best[-1]], exact[best[len(best) // 2]], exact[best[0]], 1.0):
        found = executor.beside(query, stored, bar)
        assert all(cosine == exact[at] for cosine, at in found)
        assert {at for at in best if exact[at] >= bar} <= {at for _, at in found}
    if count > ranking.POOL:
        assert len(executor.beside(query, stored, exact[best[3]])) == 4
