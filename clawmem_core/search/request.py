"""What is searched for, checked and complete. Loaded by one-shot search."""

from __future__ import annotations

import struct

from clawmem_core import door
from clawmem_core.errors import InvalidInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from clawmem_core.model import SearchOptions
    from clawmem_core.view import View

EXECUTORS = ("auto", "pure", "numpy", "ann")


class SearchRequest:
    """One search.

    `vector`: float32 values as float64 (an array where `long_lived`), or None. `text`: the words, "" for none. `k`:
    rows of the page. Filters as in filters.py. `allowed`: ids the caller lets through, None for no such limit; `scope`:
    only records of this scope key; `all_scopes`: events' texts too. `factors`: what a record's fused score is
    multiplied by (1 where missing).
    `neighbour_weight`, `session_prior_weight`: 0 without context. `rerank`, `confidence`: configurations or None.
    `executor`: "auto", or one of EXECUTORS for tests. `long_lived`: the process will search again, so caches pay.
    """

    __slots__ = (
        "all_scopes", "allowed", "confidence", "exclude_sessions", "executor", "explain", "factors", "fusion", "k",
        "keyword_weight", "long_lived", "min_score", "neighbour_weight", "rerank", "scope", "session_prior_weight",
        "sessions", "since", "sources", "tags", "text", "until", "vector", "vector_weight",
    )  # fmt: skip

    def __init__(self, vector: Sequence[float] | None, text: str, k: int = 5) -> None:
        self.vector, self.text, self.k = vector, text, k
        self.vector_weight = self.keyword_weight = 0.5
        self.neighbour_weight, self.session_prior_weight = 0.5, 0.6
        self.sources: Collection[str] = ()
        self.sessions: Collection[str] = ()
        self.exclude_sessions: Collection[str] = ()
        self.tags: Collection[str] = ()
        self.since: float | None = None
        self.until: float | None = None
        self.allowed: Collection[int] | None = None
        self.scope: bytes | None = None
        self.all_scopes = False
        self.factors: Mapping[int, float] = {}
        self.fusion = "weighted"
        self.rerank: Any = None
        self.confidence: Any = None
        self.min_score: float | None = None
        self.explain = False
        self.executor = "auto"
        self.long_lived = False


def request_of(
    view: View,
    embedding: Any,
    text: str | None,
    options: SearchOptions,
    *,
    long_lived: bool = False,
    allowed: Collection[int] | None = None,
    scope: bytes | None = None,
    factors: Mapping[int, float] | None = None,
    exclude_sessions: Collection[str] = (),
) -> SearchRequest:
    """A request from what a caller gave; weights left open are the store's.

    `embedding`: `dim` numbers or None. Raises DimensionError, InvalidVectorError, InvalidInputError.
    """
    vector = None
    if embedding is not None:
        dim = view.base.dim
        data = door.vector(embedding, dim, float16=False)
        vector = _numbers(data) if long_lived else struct.unpack(f"<{dim}f", data)
    request = SearchRequest(vector, _words(text), door.integer("k", options.k, 1, door.MAX_K))
    settings = view.config()
    request.vector_weight, request.keyword_weight = door.weights(
        settings["vector_weight"] if options.vector_weight is None else options.vector_weight,
        settings["keyword_weight"] if options.keyword_weight is None else options.keyword_weight,
    )
    request.neighbour_weight = settings["neighbour_weight"] if options.context else 0.0
    request.session_prior_weight = settings["session_prior_weight"] if options.context else 0.0
    for name in ("sources", "sessions", "tags"):
        setattr(request, name, _names(name, getattr(options, name)))
    request.exclude_sessions = exclude_sessions
    if options.since is not None:
        request.since = door.timestamp(options.since, field="since")
    if options.until is not None:
        request.until = door.timestamp(options.until, field="until")
    request.allowed = None if allowed is None else frozenset(allowed)
    request.scope, request.factors = scope, factors or {}
    if options.fusion not in ("weighted", "rrf"):
        raise InvalidInputError(field="fusion", detail="must be weighted or rrf")
    request.fusion = options.fusion
    request.rerank, request.confidence = options.rerank, options.confidence
    if options.min_score is not None:
        request.min_score = door.number("min-score", options.min_score, 0.0, 1.0)
    request.explain, request.long_lived = options.explain, long_lived
    return request


def _words(text: Any) -> str:
    """The query's text; None is none."""
    if text is not None and not isinstance(text, str):
        raise InvalidInputError(field="text", detail="must be a text or None")
    return text or ""


def _numbers(data: bytes) -> Any:
    """float32 bytes as an array of float64."""
    import numpy

    return numpy.frombuffer(data, "<f4").astype(numpy.float64)


def _names(field: str, values: Any) -> tuple[str, ...]:
    """Filter values; one text alone is one value."""
    names = (values,) if isinstance(values, str) else tuple(values or ())
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(field=field, detail="must hold texts")
    return names
