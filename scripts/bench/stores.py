"""The stores that are measured: one of each size, only read; copies of them that are written to."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from bench import timing
from bench.corpus import DIM, Corpus
from clawmem_core.model import MemoryEntry, StoreConfig
from clawmem_core.store import MemoryStore


class Stores:
    """Corpora and stores by number of records, made when first asked for. `peers`: whether peers are measured."""

    def __init__(self, folder: Path, counts: list[int], peers: bool) -> None:
        self.folder, self.counts, self.peers = folder, counts, peers
        self._corpora: dict[int, Corpus] = {}
        self._copies = 0

    def corpus(self, count: int) -> Corpus:
        """The corpus of a size."""
        if count not in self._corpora:
            self._corpora[count] = Corpus(count)
        return self._corpora[count]

    def store(self, count: int) -> Path:
        """The checkpointed store of a size; not to be changed."""
        path = self.folder / f"store-{count}" / "m.h5"
        if not path.exists():
            path.parent.mkdir()
            corpus = self.corpus(count)
            with MemoryStore.bulk_create(path, StoreConfig(dim=DIM)) as bulk:
                for row, (text, vector) in enumerate(zip(corpus.texts, corpus.vectors, strict=True)):
                    entry = MemoryEntry(text, vector.tolist(), "cli", 1.7e9 + row, corpus.session(row))
                    bulk.add(entry)
                bulk.finish()
            found = json.loads(timing.process(clawmem(path, "stats")).out)
            if (found["count"], found["index"]) != (count, "current"):
                raise timing.WrongAnswer(f"a store of {count} records says {found}")
        return path

    def copy(self, count: int) -> Path:
        """A copy of the store of a size, with everything beside it, to be changed."""
        source = self.store(count)
        self._copies += 1
        target = self.folder / f"copy-{self._copies}"
        shutil.copytree(source.parent, target)
        index = target / "m.h5.idx"
        timing.process(clawmem(target / source.name, "index"))  # the index names the very file it was made of
        if not index.exists():
            raise timing.WrongAnswer("`clawmem index` made no index")
        return target / source.name

    def empty(self, *options: str) -> Path:
        """A new store without records."""
        self._copies += 1
        path = self.folder / f"empty-{self._copies}.h5"
        timing.process(clawmem(path, "create", "--dim", str(DIM), *options))
        return path


def clawmem(store: Path, *words: str) -> list[str]:
    """The command line of a verb."""
    return [str(Path(sys.executable).parent / "clawmem"), "--path", str(store), *words]


def size_name(count: int) -> str:
    """1K, 10K, 100K, 1M."""
    return f"{count // 1_000_000}M" if count >= 1_000_000 else f"{count // 1000}K"
