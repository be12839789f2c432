"""A store as a plain dict: what every executor, log, checkpoint and file must agree with."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import numpy as np


def half(values: list[float]) -> bytes:
    """Numbers as a float16 store holds them, by numpy."""
    return np.array(values, "f8").astype("<f4").astype("<f2").tobytes()


def single(value: float) -> float:
    """A number rounded to float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@dataclass
class Row:
    """One record of the model."""

    chunk: str
    timestamp: float
    source_channel: str = "cli"
    session_id: str = ""
    tags: str = ""
    key: str = ""
    vector: bytes | None = None
    activation: float = 1.0
    deleted: bool = False


@dataclass
class Model:
    """Records by id, and what else a store keeps."""

    rows: dict[int, Row] = field(default_factory=dict)
    next_id: int = 0
    sessions: dict[str, tuple[int, int]] = field(default_factory=dict)
    entities: list[tuple[str, str]] = field(default_factory=list)
    relations: dict[tuple[int, int, str], float] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)

    def save(self, row: Row) -> tuple[str, int]:
        """Insert, or replace the live row with the same key."""
        for id, other in self.rows.items():
            if row.key and other.key == row.key and not other.deleted:
                self.rows[id] = row
                return "updated", id
        id = self.next_id
        self.rows[id] = row
        self.next_id += 1
        return "saved", id

    def live(self) -> dict[int, Row]:
        """Rows that are not deleted."""
        return {id: row for id, row in self.rows.items() if not row.deleted}

    def compact(self) -> dict[int, int]:
        """Drop deleted rows; old→new positions of those that moved."""
        positions = {id: at for at, id in enumerate(sorted(self.rows))}
        self.rows = dict(sorted(self.live().items()))
        return {positions[id]: at for at, id in enumerate(self.rows) if positions[id] != at}

    def boost(self, ids: list[int], amount: float) -> None:
        """Raise activations within [0, 4]."""
        for id in ids:
            row = self.rows[id]
            self.rows[id] = replace(row, activation=single(min(max(row.activation + amount, 0.0), 4.0)))

    def tick(self, decay: float) -> None:
        """Move the activation of live rows toward 1."""
        for id, row in self.live().items():
            self.rows[id] = replace(row, activation=single(1.0 + (row.activation - 1.0) * decay))
