"""One-shot commands: whole processes, from start to end, beside the interpreter's own start and peers' scripts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import peers, timing
from bench.corpus import Corpus, Question
from bench.stores import Stores, clawmem, size_name
from bench.timing import Finished, Measured

PENDING = 480  # entries in the log of the store that is searched with a log: below every checkpoint threshold
PASS = "python -c pass"
FLOORS = {PASS: "pass", **{name: name for name in ("import numpy", "import h5py", "import typer")}}
#: the console script in an interpreter where the extra `fast` is not installed
WITHOUT_SIMSIMD = "import sys; sys.modules['simsimd'] = None; from clawmem_cli.entry import main; main()"

Cases = dict[str, Callable[[], Finished]]


def measure(stores: Stores, rounds: int) -> dict[str, Measured]:
    """Everything that is a whole process, in one interleaved run."""
    cases: Cases = {name: _floor(code) for name, code in FLOORS.items()}
    for count in stores.counts:
        name, corpus, path = size_name(count), stores.corpus(count), stores.store(count)
        asked = _Questions(corpus, rounds + 1)
        cases[f"save {name}"] = _Saves(stores.copy(count), count)
        cases[f"recall {name}"] = _recall(path, corpus)
        cases[f"stats {name}"] = _stats(path, count)
        cases[f"search {name}"] = asked.case(lambda q, path=path: search(path, q))
        cases[f"search {name}, numpy only"] = asked.case(
            lambda q, path=path: [sys.executable, "-c", WITHOUT_SIMSIMD, *search(path, q)[1:]]
        )
        if stores.peers:
            for peer, script in peers.databases(stores.folder, corpus).items():
                cases[f"{peer} {name}"] = asked.case(script, check=False)
    ten = stores.store(10_000)
    cases["agents-md 10K"] = lambda: timing.process(clawmem(ten, "agents-md"))
    cases["recall 10K through typer"] = _recall(ten, stores.corpus(10_000), typer=True)
    logged = _with_log(stores)
    cases["search 10K, log"] = _Questions(stores.corpus(10_000), rounds + 1).case(lambda q: search(logged, q))
    synced = stores.copy(10_000)
    cases["save 10K, synced"] = _Saves(synced, 10_000, ())
    cases["one fdatasync"] = _fdatasync(stores.folder / "sync", _bytes_of_a_save(stores))
    found = timing.in_turn(cases, rounds)
    found["entries in the log"] = timing.single(PENDING, "")
    return found


def search(path: Path, question: Question) -> list[str]:
    """The command line of a hybrid search for ten records."""
    return clawmem(path, "search", "--embedding", question.json, "--query", question.text, "-k", "10")


def _floor(code: str) -> Callable[[], Finished]:
    return lambda: timing.process([sys.executable, "-c", code], env={"OPENBLAS_NUM_THREADS": "1"})


class _Questions:
    """The same questions for every case that is made of them."""

    def __init__(self, corpus: Corpus, count: int) -> None:
        self._questions = [corpus.question() for _ in range(count)]

    def case(self, command: Callable[[Question], list[str]], check: bool = True) -> Callable[[], Finished]:
        """A case that asks one after the other. `check`: the record a question was made from comes first."""
        following: Iterator[Question] = iter(self._questions)

        def ask() -> Finished:
            question = next(following)
            finished = timing.process(command(question))
            found = [hit["index"] for hit in json.loads(finished.out)]
            if question.row not in (found[:1] if check else found):
                raise timing.WrongAnswer(f"{command(question)[-5:]} found {found}, not {question.row}")
            return finished

        return ask


class _Saves:
    """Saves one record after the other; checks that each got the next index."""

    def __init__(self, path: Path, count: int, options: tuple[str, ...] = ("--no-sync",)) -> None:
        self.path, self.count, self.options = path, count, options

    def __call__(self) -> Finished:
        record = record_line(self.count)
        finished = timing.process(clawmem(self.path, "save", *self.options), record)
        answer = json.loads(finished.out)
        if (answer["status"], answer["index"]) != ("saved", self.count):
            raise timing.WrongAnswer(f"save number {self.count} answered {answer}")
        self.count += 1
        return finished


def record_line(number: int) -> str:
    """A record with a vector of 384 JSON floats, unlike for each number."""
    vector = Corpus(1, seed=number).vectors[0]
    numbers = ",".join(f"{value:.6f}" for value in vector.tolist())
    return (
        f'{{"chunk":"The deploy of service {number} went through after the second try","embedding":[{numbers}],'
        f'"source_channel":"chat","session_id":"deploys","tags":"ops,deploy"}}'
    )


def _recall(path: Path, corpus: Corpus, typer: bool = False) -> Callable[[], Finished]:
    """Recalls one record after the other. `typer`: in a spelling that only typer reads."""
    rows = iter(range(corpus.count // 3, corpus.count))
    command = [clawmem(path)[0], f"-p{path}"] if typer else clawmem(path)

    def recall() -> Finished:
        row = next(rows)
        finished = timing.process([*command, "recall", str(row)])
        if json.loads(finished.out)["chunk"] != corpus.texts[row]:
            raise timing.WrongAnswer(f"recall {row} printed another text")
        return finished

    return recall


def _stats(path: Path, count: int) -> Callable[[], Finished]:
    def stats() -> Finished:
        finished = timing.process(clawmem(path, "stats"))
        if json.loads(finished.out)["count"] != count:
            raise timing.WrongAnswer("stats counts wrongly")
        return finished

    return stats


def _with_log(stores: Stores) -> Path:
    """The store of 10K with PENDING more records in its log: other texts, so that what is asked stays first."""
    path = stores.copy(10_000)
    lines = "\n".join(Corpus(PENDING, seed=1).lines())
    timing.process(clawmem(path, "save", "--ndjson"), lines)
    found: dict[str, Any] = json.loads(timing.process(clawmem(path, "stats")).out)
    if found["wal_pending"] != PENDING:
        raise timing.WrongAnswer(f"{found['wal_pending']} entries wait in the log, not {PENDING}")
    return path


def _bytes_of_a_save(stores: Stores) -> int:
    """How many bytes one such save adds to the log."""
    path = stores.empty()
    log = path.with_name(path.name + ".wal")
    before = log.stat().st_size
    timing.process(clawmem(path, "save"), record_line(0))
    return log.stat().st_size - before


def _fdatasync(path: Path, size: int) -> Callable[[], Finished]:
    """Appending `size` bytes to a file and one fdatasync, in this process."""

    def sync() -> Finished:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, bytes(size))
            return timing.timed(lambda: os.fdatasync(fd))
        finally:
            os.close(fd)

    return sync
