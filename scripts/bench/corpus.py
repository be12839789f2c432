"""Records to measure with: clustered vectors, texts of 30 to 60 Zipf-distributed words, sessions of 25 turns."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DIM = 384
VOCABULARY = 30_000
SESSION = 25
_LETTERS = "bdfgklmnprstvz"
_VOWELS = "aeiou"


class Question(NamedTuple):
    """A query made from a record: its row, a vector near its own, and some of its words."""

    row: int
    vector: list[float]
    text: str

    @property
    def json(self) -> str:
        """The vector as a JSON array of six digits."""
        return "[" + ",".join(f"{value:.6f}" for value in self.vector) + "]"


class Corpus:
    """`count` records, the same for the same count. `vectors`: float32 of length 1 [count, DIM]; `texts`: one each."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count = count
        rng = np.random.default_rng((seed, count))
        centres = rng.standard_normal((256, DIM), np.float32)
        self.vectors = centres[rng.integers(0, len(centres), count)]
        self.vectors += 0.8 * rng.standard_normal((count, DIM), np.float32)
        self.vectors /= np.linalg.norm(self.vectors, axis=1, keepdims=True)
        share = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
        lengths = rng.integers(30, 61, count)
        self._edges = np.concatenate([[0], np.cumsum(lengths)])
        self._ranks = rng.choice(VOCABULARY, self._edges[-1], p=share / share.sum()).astype(np.uint16)
        words = np.array([word(rank) for rank in range(VOCABULARY)], object)
        self.texts = [
            " ".join(words[self._ranks[start:stop]]) for start, stop in zip(self._edges, self._edges[1:], strict=False)
        ]
        self._rng = np.random.default_rng((seed, count, 1))

    def question(self) -> Question:
        """The next question: its text is the commonest of all words, two middling and two rare ones of a record."""
        row = int(self._rng.integers(self.count))
        vector = self.vectors[row] + 0.03 * self._rng.standard_normal(DIM)
        own = sorted(set(self._ranks[self._edges[row] : self._edges[row + 1]].tolist()))
        middle = len(own) // 2
        text = " ".join(word(rank) for rank in (0, *own[middle : middle + 2], *own[-2:]))
        return Question(row, (vector / np.linalg.norm(vector)).tolist(), text)

    def nearest(self, vector: npt.NDArray[Any], k: int = 10) -> list[int]:
        """Rows of the `k` vectors nearest to one by float32 products, the reference for recall."""
        cosines = self.vectors @ vector.astype(np.float32)
        best = np.argpartition(-cosines, k)[:k]
        return best[np.argsort(-cosines[best], kind="stable")].tolist()  # type: ignore[no-any-return]

    def session(self, row: int) -> str:
        """The session of a row."""
        return f"session-{row // SESSION}"

    def lines(self, floats: bool = False) -> Iterator[str]:
        """The records as lines for `save --ndjson`: vectors in base64, or with `floats` as JSON arrays."""
        for row, text in enumerate(self.texts):
            record: dict[str, object] = {"chunk": text, "session_id": self.session(row), "timestamp": 1.7e9 + row}
            if floats:
                record["embedding"] = [round(value, 6) for value in self.vectors[row].tolist()]
            else:
                record["embedding_f16"] = base64.b64encode(self.vectors[row].astype("<f2").tobytes()).decode()
            yield json.dumps(record)


def word(rank: int) -> str:
    """The word of a frequency rank: syllables, the commoner the shorter."""
    base = len(_LETTERS) * len(_VOWELS)
    text = ""
    while True:
        rank, place = divmod(rank, base)
        text = _LETTERS[place // len(_VOWELS)] + _VOWELS[place % len(_VOWELS)] + text
        if not rank:
            return text + "k"
        rank -= 1
