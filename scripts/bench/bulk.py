"""Many records at once: streams, export, checkpoints, signing, verification."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import orjson

from bench import timing
from bench.corpus import Corpus
from bench.stores import Stores, clawmem
from bench.timing import Finished, Measured
from clawmem_core.model import MemoryEntry
from clawmem_core.store import MemoryStore

STREAM = 10_000  # records of a stream
FLUSHED = 1_000  # records that a checkpoint moves
SLOW_ROUNDS = 9  # of what takes a second or more


def measure(stores: Stores, rounds: int) -> dict[str, Measured]:
    """Streams, then everything at the largest of the usual sizes."""
    count = max(number for number in stores.counts if number <= 100_000)
    rounds = min(rounds, SLOW_ROUNDS)
    found = timing.in_turn({**_streams(stores), **_exports(stores, count), **_checkpoints(stores, count)}, rounds)
    found.update(timing.in_turn(_integrity(stores, count), rounds))
    found["records of the bulk store"] = timing.single(count, "")
    found["signature a record"] = timing.single(_signature_bytes(stores, count) / count, "B")
    return found


def _streams(stores: Stores) -> dict[str, Callable[[], Finished]]:
    corpus = stores.corpus(STREAM)
    cases: dict[str, Callable[[], Finished]] = {"pass, bulk": lambda: timing.process([sys.executable, "-c", "pass"])}
    for name, floats in (("floats", True), ("base64", False)):
        lines = list(corpus.lines(floats))
        text = "\n".join(lines) + "\n"
        cases[f"orjson.loads of {name}"] = lambda lines=lines: timing.timed(
            lambda: [orjson.loads(line) for line in lines]
        )
        cases[f"save --ndjson of {name}"] = lambda text=text: _stream(stores, text)
    return cases


def _stream(stores: Stores, text: str) -> Finished:
    path = stores.empty()
    finished = timing.process(clawmem(path, "save", "--ndjson", "--no-sync"), text)
    if finished.out.count('"saved"') != STREAM:
        raise timing.WrongAnswer(f"{finished.out.count('saved')} of {STREAM} lines were saved")
    for file in path.parent.glob(path.name + "*"):
        file.unlink()
    return finished


def _exports(stores: Stores, count: int) -> dict[str, Callable[[], Finished]]:
    path = stores.store(count)

    def export() -> Finished:
        finished = timing.process(clawmem(path, "export"))
        if finished.out.count("\n") != count:
            raise timing.WrongAnswer(f"export printed {finished.out.count(chr(10))} lines of {count}")
        return finished

    return {"export": export}


def _checkpoints(stores: Stores, count: int) -> dict[str, Callable[[], Finished]]:
    return {
        "import h5py, bulk": lambda: timing.process(
            [sys.executable, "-c", "import h5py"], env={"OPENBLAS_NUM_THREADS": "1"}
        ),
        "flush-wal": _Flush(stores.copy(count), count, wider=False),
        "flush-wal, wider text": _Flush(stores.copy(count), count, wider=True),
    }


class _Flush:
    """`flush-wal` of FLUSHED new records. `wider`: one of their texts is longer than all before."""

    def __init__(self, path: Path, count: int, wider: bool) -> None:
        self.path, self.count, self.wider, self.turn = path, count, wider, 0

    def __call__(self) -> Finished:
        self.turn += 1
        corpus = Corpus(FLUSHED, seed=self.turn)
        lines = list(corpus.lines())
        if self.wider:
            record = json.loads(lines[0])
            record["chunk"] += " again" * (100 + self.turn)
            lines[0] = json.dumps(record)
        timing.process(clawmem(self.path, "save", "--ndjson", "--no-sync"), "\n".join(lines) + "\n")
        finished = timing.process(clawmem(self.path, "flush-wal"))
        self.count += FLUSHED
        if json.loads(finished.out)["entries_flushed"] != FLUSHED:
            raise timing.WrongAnswer(f"flush-wal answered {finished.out}")
        stats = json.loads(timing.process(clawmem(self.path, "stats")).out)
        if (stats["count"], stats["index"], stats["wal_pending"]) != (self.count, "current", 0):
            raise timing.WrongAnswer(f"after flush-wal: {stats}")
        return finished


def _integrity(stores: Stores, count: int) -> dict[str, Callable[[], Finished]]:
    key = stores.folder / "key.pem"
    timing.process([*clawmem(stores.folder, "keygen", "--out", str(key))])
    signed, unsigned = stores.copy(count), stores.copy(count)
    with MemoryStore.open(signed, signing_key=str(key)) as store:
        store.flush_wal()
    public = json.loads(timing.process(clawmem(signed, "keygen", "--public", str(key))).out)["public_key"]
    atrest = stores.copy(count)
    with MemoryStore.open(atrest, signing_key=str(key)) as store:
        store.flush_wal()
    leaves = prebuilt_leaves(stores.corpus(count))
    return {
        "verify": lambda: _verify(atrest, public),
        "hashlib over prebuilt leaves": lambda: timing.timed(lambda: hash_tree(leaves)),
        "checkpoint, unsigned": _LongLived(MemoryStore.open(unsigned)),
        "checkpoint, signed": _LongLived(MemoryStore.open(signed, signing_key=str(key))),
    }


def _verify(path: Path, public: str) -> Finished:
    finished = timing.process(clawmem(path, "verify", "--public-key", public))
    if json.loads(finished.out)["valid"] is not True:
        raise timing.WrongAnswer("the signed store does not verify")
    return finished


def prebuilt_leaves(corpus: Corpus) -> list[bytes]:
    """As many bytes as a record's leaf holds: vector, text, session and about forty bytes of numbers."""
    rows = corpus.vectors.astype("<f2")
    return [
        rows[row].tobytes() + text.encode() + corpus.session(row).encode() + bytes(40)
        for row, text in enumerate(corpus.texts)
    ]


def hash_tree(leaves: list[bytes]) -> bytes:
    """SHA-256 of every leaf and of every inner node of a binary tree over them."""
    sha256 = hashlib.sha256
    level = [sha256(leaf).digest() for leaf in leaves]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [sha256(left + right).digest() for left, right in pairs] + level[len(level) & ~1 :]
    return level[0]


class _LongLived:
    """A checkpoint of FLUSHED new records by an open handle."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.turn = store, 0

    def __call__(self) -> Finished:
        self.turn += 1
        corpus = Corpus(FLUSHED, seed=self.turn)
        self.store.save_batch(
            MemoryEntry(text, vector.tolist()) for text, vector in zip(corpus.texts, corpus.vectors, strict=True)
        )
        return timing.timed(self.store.flush_wal)


def _signature_bytes(stores: Stores, count: int) -> int:
    """How much a store grows by being signed."""
    plain, signed = stores.copy(count), stores.copy(count)
    with MemoryStore.open(plain) as store:
        store.flush_wal()
    with MemoryStore.open(signed, signing_key=str(stores.folder / "key.pem")) as store:
        store.flush_wal()
    return signed.stat().st_size - plain.stat().st_size
