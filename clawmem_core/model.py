"""The words of the engine: what a memory, a record, a hit and a store's settings are.

Plain classes without behaviour, so that a one-shot `save` can load them in no time. Values are checked in door.py,
nowhere else. Times are seconds since the epoch (UTC, float64); vectors are little-endian float16 or float32 bytes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class MemoryEntry:
    """What a caller hands in. Only `chunk` is required.

    `embedding`: sequence of `dim` finite numbers, or None. `timestamp`: seconds since the epoch, or None for now.
    `key`: upsert key, unique among live records; "" for none. `source_id`: id in the system it was imported from.
    """

    __slots__ = ("chunk", "embedding", "key", "session_id", "source_channel", "source_id", "tags", "timestamp")

    def __init__(
        self,
        chunk: str,
        embedding: Sequence[float] | bytes | None = None,
        source_channel: str = "cli",
        timestamp: float | None = None,
        session_id: str = "",
        tags: str = "",
        key: str = "",
        source_id: str = "",
    ) -> None:
        self.chunk, self.embedding, self.source_channel = chunk, embedding, source_channel
        self.timestamp, self.session_id, self.tags = timestamp, session_id, tags
        self.key, self.source_id = key, source_id


class Record:
    """A stored memory.

    `id`: stable number, never reused. `vector`: the embedding's bytes as stored, or None. `scope`: 32-byte scope key of
    an event's record, b"" for an ordinary one. `activation`: weight in [0, 4], 1.0 unless boosted.
    """

    __slots__ = (
        "activation", "chunk", "deleted", "id", "key", "scope", "session_id", "source_channel", "source_id", "tags",
        "timestamp", "vector",
    )  # fmt: skip

    def __init__(
        self, id: int, chunk: str, timestamp: float, source_channel: str = "", session_id: str = "", tags: str = ""
    ) -> None:
        self.id, self.chunk, self.timestamp = id, chunk, timestamp
        self.source_channel, self.session_id, self.tags = source_channel, session_id, tags
        self.key = self.source_id = ""
        self.scope = b""
        self.vector: bytes | None = None
        self.activation = 1.0
        self.deleted = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Record({self.id}, {self.chunk[:40]!r})"


class SearchHit:
    """One row of a result page.

    `score`: what the page is ordered by. `similarity`: raw closeness in [0, 1], see docs/ranking.md. `explain`: how the
    score came about, when asked for.
    """

    __slots__ = ("activation", "chunk", "explain", "index", "score", "session_id", "similarity", "source_channel",
                 "tags", "timestamp")  # fmt: skip

    def __init__(
        self, index: int, score: float, similarity: float, chunk: str, timestamp: float, source_channel: str,
        session_id: str, tags: str, activation: float,
    ) -> None:  # fmt: skip
        self.index, self.score, self.similarity = index, score, similarity
        self.chunk, self.timestamp = chunk, timestamp
        self.source_channel, self.session_id, self.tags = source_channel, session_id, tags
        self.activation = activation
        self.explain: Mapping[str, Any] | None = None


class SearchOptions:
    """How to search. `with_*` methods return a changed copy, as the ancestor's do.

    `k`: rows of a page. Weights: None means the store's. `since` inclusive and `until` exclusive, seconds. An empty
    list is no filter. `context`: neighbours and session prior. `rerank`, `confidence`: settings or None for off.
    `min_score`: least raw similarity.
    """

    __slots__ = ("confidence", "context", "explain", "fusion", "k", "keyword_weight", "min_score", "rerank", "sessions",
                 "since", "sources", "tags", "until", "vector_weight")  # fmt: skip

    def __init__(self, k: int = 5, **options: Any) -> None:
        self.k = k
        self.vector_weight: float | None = None
        self.keyword_weight: float | None = None
        self.sources: Sequence[str] = ()
        self.sessions: Sequence[str] = ()
        self.tags: Sequence[str] = ()
        self.since: float | None = None
        self.until: float | None = None
        self.context = True
        self.explain = False
        self.fusion = "weighted"
        self.rerank: Any = None
        self.confidence: Any = None
        self.min_score: float | None = None
        for name, value in options.items():
            if name not in self.__slots__:
                raise TypeError(f"SearchOptions has no option {name!r}")
            setattr(self, name, value)

    def _with(self, **options: Any) -> SearchOptions:
        values = {name: getattr(self, name) for name in self.__slots__}
        values.update(options)
        return SearchOptions(**values)

    def with_sources(self, sources: Sequence[str]) -> SearchOptions:
        """Only memories whose source channel is one of these (exact match; an empty list is no filter)."""
        return self._with(sources=tuple(sources))

    def with_rerank(self, config: Any = None) -> SearchOptions:
        """Re-rank by relevance, recency, source authority and activation (search/rerank.py)."""
        from clawmem_core.search.rerank import ReRankConfig

        return self._with(rerank=config or ReRankConfig())

    def with_confidence(self, config: Any = None) -> SearchOptions:
        """Leave out weak matches (search/confidence.py)."""
        from clawmem_core.search.confidence import ConfidenceConfig

        return self._with(confidence=config or ConfidenceConfig())


class StoreConfig:
    """A store's settings, all persisted as attributes of /meta. Defaults are those of a new store.

    `dim`: values a vector has (1 to 65,536), fixed. `float16`: stored as half precision. `wal_enabled` False: every
    save checkpoints. `wal_max_entries`: least log length that triggers a checkpoint. `hnsw_ef_search` 0: scaled with k.
    """

    FIELDS: Mapping[str, Any] = {
        "agent_id": "default", "embedder": "unknown", "dim": 384, "chunk_size": 512, "overlap": 50, "created_at": "",
        "float16": True, "compression": False, "compression_level": 0, "compact_threshold": 0.3, "hebbian_boost": 0.15,
        "decay_factor": 0.98, "wal_enabled": True, "wal_max_entries": 500, "quantized_index": True, "hnsw_m": 16,
        "hnsw_ef_construction": 64, "hnsw_ef_search": 0, "tokenizer": "english-1", "vector_weight": 0.5,
        "keyword_weight": 0.5, "neighbour_weight": 0.5, "session_prior_weight": 0.6,
    }  # fmt: skip
    #: what a missing attribute of an older file means, where that is not the default above (design § 3)
    LEGACY: Mapping[str, Any] = {"float16": False, "quantized_index": False}

    def __init__(self, **settings: Any) -> None:
        self.agent_id: str
        self.embedder: str
        self.dim: int
        self.chunk_size: int
        self.overlap: int
        self.created_at: str
        self.float16: bool
        self.compression: bool
        self.compression_level: int
        self.compact_threshold: float
        self.hebbian_boost: float
        self.decay_factor: float
        self.wal_enabled: bool
        self.wal_max_entries: int
        self.quantized_index: bool
        self.hnsw_m: int
        self.hnsw_ef_construction: int
        self.hnsw_ef_search: int
        self.tokenizer: str
        self.vector_weight: float
        self.keyword_weight: float
        self.neighbour_weight: float
        self.session_prior_weight: float
        for name in settings:
            if name not in self.FIELDS:
                raise TypeError(f"StoreConfig has no setting {name!r}")
        for name, default in self.FIELDS.items():
            setattr(self, name, settings.get(name, default))

    def as_dict(self) -> dict[str, Any]:
        """Every setting by name."""
        return {name: getattr(self, name) for name in self.FIELDS}
