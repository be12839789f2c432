"""BM25 over token lists, kept up to date record by record. Usable alone; knows nothing of stores, texts or neighbours.

Invariant: scores depend on what is held, never on how it came there: after any sequence of `add`, `update` and `remove`
they equal those of a fresh index of the same records to the last bit (counts and lengths are integers, and every sum
runs in query order). The formula is that of ranking.py with context off.
"""

from __future__ import annotations

from clawmem_core.search.ranking import average_length, count_tokens, idf, length_norm, rounded_score, term_score

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Bm25Index:
    """Token counts of records by id, and their postings."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[str, int]] = {}
        self._lengths: dict[int, int] = {}
        self._postings: dict[str, dict[int, int]] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, id: int) -> bool:
        return id in self._counts

    def add(self, id: int, tokens: Iterable[str]) -> None:
        """Hold a record; one without tokens counts too. Raises KeyError if the id is held already."""
        if id in self._counts:
            raise KeyError(id)
        counts = count_tokens(tokens)
        self._counts[id] = counts
        self._lengths[id] = sum(counts.values())
        self._total += self._lengths[id]
        for token, count in counts.items():
            self._postings.setdefault(token, {})[id] = count

    def remove(self, id: int) -> None:
        """Forget a record. Raises KeyError if it is not held."""
        for token in self._counts.pop(id):
            posting = self._postings[token]
            del posting[id]
            if not posting:
                del self._postings[token]
        self._total -= self._lengths.pop(id)

    def update(self, id: int, tokens: Iterable[str]) -> None:
        """Replace a record's tokens. Raises KeyError if it is not held."""
        self.remove(id)
        self.add(id, tokens)

    def document_frequency(self, token: str) -> int:
        """Records that hold the token."""
        return len(self._postings.get(token, ()))

    def scores(self, tokens: Iterable[str]) -> dict[int, float]:
        """Score of every record that holds a query token, each above 0. A token named twice counts twice."""
        average = average_length(self._total, 0, len(self), 0.0)
        sums: dict[int, float] = {}
        for token, repeats in count_tokens(tokens).items():
            posting = self._postings.get(token, {})
            weight = repeats * idf(len(posting), len(self))
            for id, count in posting.items():
                norm = length_norm(self._lengths[id], average)
                sums[id] = sums.get(id, 0.0) + term_score(weight, count, norm)
        return {id: rounded_score(score) for id, score in sums.items()}

    def top(self, tokens: Iterable[str], k: int) -> list[tuple[int, float]]:
        """The best `k` as (id, score), ties by lower id."""
        return sorted(self.scores(tokens).items(), key=lambda hit: (-hit[1], hit[0]))[: max(0, k)]

    def ideal(self, tokens: Iterable[str]) -> float:
        """Score of a record of average length that holds every query token once: the scale of ranking.similarity."""
        return sum(repeats * idf(self.document_frequency(t), len(self)) for t, repeats in count_tokens(tokens).items())
