"""`ranking.fuse` over arrays: the same formulas, roundings and order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.search import ranking

Array = npt.NDArray[Any]

FEW = 16  # candidates that plain Python fuses faster


def fused(
    cosines: Array | None, bm25: Array | None, boosts: Array | None, sessions: Array, weights: ranking.Weights
) -> Array:
    """Rounded final scores of a union by weighted fusion, float64[n].

    `cosines`: float64, NaN for none, and `bm25`: float64; None for an arm that is absent, not both. `boosts`: None
    where all are 1. `sessions`: small whole numbers that tell sessions apart, -1 for none.
    """
    scores: Array | None = None
    total = 0.0
    for values, weight in ((cosines, weights.vector), (bm25, weights.keyword)):
        if values is not None:
            share = _unit(values)
            share *= weight
            scores = share if scores is None else np.add(scores, share, out=scores)
            total += weight
    assert scores is not None
    scores /= total
    if boosts is not None:
        scores *= boosts
    if weights.prior and len(scores):
        best = np.empty(int(np.maximum.reduce(sessions)) + 2)  # the last place is for records without session
        best.fill(-1.0)
        np.maximum.at(best, sessions, scores)
        smoothed = best[sessions]
        smoothed *= weights.prior
        smoothed += scores
        smoothed /= 1.0 + weights.prior
        scores = smoothed if np.minimum.reduce(sessions) >= 0 else np.where(sessions < 0, scores, smoothed)
    return rounded(scores, ranking.FINAL_DIGITS)


def rounded(values: Array, digits: int) -> Array:
    """What np.round computes, without its way there."""
    scale = 10.0**digits
    values = values * scale
    np.rint(values, out=values)
    values /= scale
    return values


def fuse(
    candidates: Sequence[ranking.Candidate], weights: ranking.Weights, *, vector: bool, keyword: bool
) -> list[tuple[int, float]]:
    """`ranking.fuse`; many candidates by arrays."""
    weighted = weights.fusion == "weighted" and (weights.vector * vector or weights.keyword * keyword)
    if not weighted or len(candidates) < FEW:
        return ranking.fuse(candidates, weights, vector=vector, keyword=keyword)
    ids, cosines, bm25, boosts, sessions = zip(*candidates, strict=True)
    numbers: dict[Any, int] = {}
    codes = [-1 if session is None else numbers.setdefault(session, len(numbers)) for session in sessions]
    scores = fused(
        np.array(cosines, np.float64) if vector else None, np.array(bm25, np.float64) if keyword else None,
        np.array(boosts), np.array(codes, np.int64), weights,
    )  # fmt: skip
    names = np.array(ids, np.int64)
    order = np.lexsort((names, -scores))
    return list(zip(names[order].tolist(), scores[order].tolist(), strict=True))


def _unit(values: Array) -> Array:
    """Values from 0 (least) to 1 (greatest), 0 for NaN; 1 where all are equal."""
    low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    if low < high:
        found: Array = values - low
        found /= high - low
        return found
    missing = np.isnan(values)
    if not missing.any():
        return np.ones(len(values))
    found = np.zeros(len(values))
    if not missing.all():
        found[~missing] = _unit(values[~missing])
    return found
