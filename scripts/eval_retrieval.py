#!/usr/bin/env python3
"""Measure retrieval on conversations with known answers, through the public search of clawmem.

    scripts/eval_retrieval.py DIR [--json] [--cranfield DIR] [--ablation] [--oracle]

DIR holds, at any depth, `NAME.turns.jsonl` and `NAME.queries.jsonl` with a float16 `.npy` beside each, one row a line
(tests/data/retrieval-mini is an example and says what the fields are). Every conversation becomes a store of its own
in a temporary folder. Printed: Hit@1/5/10, MRR@10, nDCG@10 (binary gains) and session Hit@5 (a gold session among the
first five distinct sessions of the full ranking), in percent, per conversation and over all queries, next to two
baselines: `word_overlap` counts the query's words that a turn holds, `ancestor_default` is BM25 over plain tokens and
cosine, each min-max scaled over its own hits, 0.4/0.6, without context. Nothing is random: two runs print the same
digits.

`--cranfield DIR`: also MAP over the full ranking of Cranfield (docs.jsonl, queries.jsonl, qrels.tsv, .npy).
`--ablation`: also every part of the ranking taken away or replaced.
`--oracle`: rank by tests/oracle.py instead of a store.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float16]
#: positions of all found texts, best first, for a query's text and vector
Ranker = Callable[[str, Any], list[int]]

METRICS = ("hit@1", "hit@5", "hit@10", "mrr@10", "ndcg@10", "session_hit@5")


@dataclass(frozen=True)
class Corpus:
    """Texts with vectors, sessions and times, in order."""

    texts: Sequence[str]
    vectors: Vectors
    sessions: Sequence[str]
    times: Sequence[float]


@dataclass(frozen=True)
class Question:
    """A query with the positions that answer it."""

    text: str
    vector: Any
    gold: frozenset[int]


@dataclass(frozen=True)
class Setting:
    """One way to rank: settings of the store, weights of the search, and the arms that are asked."""

    name: str
    store: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    arms: str = "vector text"


Builder = Callable[[Corpus, Setting], Ranker]

DEFAULT = Setting("default")
NO_CONTEXT = {"context": False}
ABLATION = (
    Setting("vector only", search=NO_CONTEXT, arms="vector"),
    Setting("BM25, plain tokens", {"tokenizer": "plain-1"}, NO_CONTEXT, "text"),
    Setting("BM25, english tokens", search=NO_CONTEXT, arms="text"),
    Setting("fused, plain tokens", {"tokenizer": "plain-1"}, NO_CONTEXT),
    Setting("fused, english tokens", search=NO_CONTEXT),
    Setting("fused + neighbours", {"session_prior_weight": 0.0}),
    Setting("fused + session prior", {"neighbour_weight": 0.0}),
    DEFAULT,
    Setting("default at 0.4/0.6", search={"vector_weight": 0.4, "keyword_weight": 0.6}),
    Setting("default at 0.6/0.4", search={"vector_weight": 0.6, "keyword_weight": 0.4}),
    Setting("default, plain tokens", {"tokenizer": "plain-1"}),
    Setting("default, fused by RRF", search={"fusion": "rrf"}),
)


def main() -> int:
    """Measure and print. Exit 2 when there is nothing to measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder with conversations")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--cranfield", type=Path, metavar="DIR", help="also measure MAP on Cranfield")
    parser.add_argument("--ablation", action="store_true", help="also measure the ranking with parts taken away")
    parser.add_argument("--oracle", action="store_true", help="rank by brute force instead of the product")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works without being installed
    conversations = dict(read_conversations(asked.dir))
    if not conversations:
        print(f"no *.turns.jsonl under {asked.dir}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        build = oracle_ranker if asked.oracle else product_builder(stack)
        document = measure(conversations, build)
        settings = ABLATION if asked.ablation else ()
        if settings:
            document["ablation"] = {
                setting.name: overall(
                    scores(corpus, questions, build(corpus, setting)) for corpus, questions in conversations.values()
                )
                for setting in settings
            }
        if asked.cranfield:
            document["cranfield"] = measure_cranfield(asked.cranfield, build, settings or (DEFAULT,))
    print(json.dumps(document) if asked.json else table(document))
    return 0


def measure(conversations: Mapping[str, tuple[Corpus, list[Question]]], build: Builder) -> dict[str, Any]:
    """Every conversation at defaults and by the baselines."""
    rows = {name: scores(*both, build(both[0], DEFAULT)) for name, both in conversations.items()}
    baselines = {"word_overlap": overlap_ranker, "ancestor_default": ancestor_ranker}
    return {
        "overall": overall(rows.values()),
        "baselines": {
            name: overall(scores(*both, ranker(both[0])) for both in conversations.values())
            for name, ranker in baselines.items()
        },
        "conversations": {name: overall([row]) for name, row in rows.items()},
    }


# ---------------------------------------------------------------- rankers


def product_builder(stack: ExitStack) -> Builder:
    """Builds stores of their own in a temporary folder, searched by their public method, until the stack closes."""
    from clawmem_core import MemoryEntry, MemoryStore, SearchOptions

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clawmem-eval-")))
    numbers = count()

    def build(corpus: Corpus, setting: Setting) -> Ranker:
        dim = corpus.vectors.shape[1]
        store = stack.enter_context(MemoryStore.create(folder / f"{next(numbers)}.h5", dim=dim, **setting.store))
        rows = zip(corpus.texts, corpus.vectors.tolist(), corpus.sessions, corpus.times, strict=True)
        entries = [MemoryEntry(text, vector, "conversation", time, session) for text, vector, session, time in rows]
        store.save_batch(entries)
        store.flush_wal()
        options = SearchOptions(len(corpus.texts), **setting.search)

        def rank(text: str, vector: Any) -> list[int]:
            embedding = vector.tolist() if "vector" in setting.arms else None
            return [hit.index for hit in store.search(embedding, text if "text" in setting.arms else None, options)]

        return rank

    return build


def oracle_ranker(corpus: Corpus, setting: Setting) -> Ranker:
    """The brute-force ranking of the tests."""
    from clawmem_core.search import ranking
    from clawmem_core.search.tokenizer import DEFAULT as DEFAULT_TOKENIZER
    from clawmem_core.search.tokenizer import tokenizer
    from tests.oracle import Oracle, OracleQuery, OracleRecord

    rows = enumerate(zip(corpus.texts, corpus.vectors, corpus.sessions, strict=True))
    records = [OracleRecord(id, text, vector, session or None) for id, (text, vector, session) in rows]
    oracle = Oracle(records, tokenizer(setting.store.get("tokenizer", DEFAULT_TOKENIZER)))
    context = setting.search.get("context", True)
    weights = {
        "vector_weight": setting.search.get("vector_weight", ranking.VECTOR_WEIGHT),
        "keyword_weight": setting.search.get("keyword_weight", ranking.KEYWORD_WEIGHT),
        "neighbour_weight": setting.store.get("neighbour_weight", ranking.NEIGHBOUR_WEIGHT) if context else 0.0,
        "prior_weight": setting.store.get("session_prior_weight", ranking.SESSION_PRIOR_WEIGHT) if context else 0.0,
        "fusion": setting.search.get("fusion", "weighted"),
    }

    def rank(text: str, vector: Any) -> list[int]:
        asked = text if "text" in setting.arms else "", vector if "vector" in setting.arms else None
        query = OracleQuery(*asked, **weights)
        return [hit.id for hit in oracle.search(query)]

    return rank


def overlap_ranker(corpus: Corpus) -> Ranker:
    """Like a patient grep: turns by the number of distinct query words they hold, ties in order."""
    words = [frozenset(plain_words(text)) for text in corpus.texts]

    def rank(text: str, vector: Any) -> list[int]:
        wanted = frozenset(plain_words(text))
        counts = [len(wanted & held) for held in words]
        return sorted((at for at, count in enumerate(counts) if count), key=lambda at: (-counts[at], at))

    return rank


def ancestor_ranker(corpus: Corpus) -> Ranker:
    """The ancestor's hybrid search: plain tokens, 0.4/0.6, each arm scaled over its own hits, equal scores count 0."""
    from clawmem_core.search.bm25 import Bm25Index

    index = Bm25Index()
    for at, text in enumerate(corpus.texts):
        index.add(at, plain_words(text))
    stored = corpus.vectors.astype(np.float64)
    stored /= np.maximum(np.linalg.norm(stored, axis=1, keepdims=True), 1e-12)

    def scaled(hits: Mapping[int, float]) -> dict[int, float]:
        low, high = min(hits.values(), default=0.0), max(hits.values(), default=0.0)
        return {at: (score - low) / (high - low) if high > low else 0.0 for at, score in hits.items()}

    def rank(text: str, vector: Any) -> list[int]:
        asked = np.asarray(vector, dtype=np.float64)
        cosines = scaled(dict(enumerate((stored @ (asked / np.linalg.norm(asked))).tolist())))
        keywords = scaled(index.scores(plain_words(text)))
        fused = {at: 0.4 * cosine + 0.6 * keywords.get(at, 0.0) for at, cosine in cosines.items()}
        return sorted(fused, key=lambda at: (-fused[at], at))

    return rank


def plain_words(text: str) -> list[str]:
    """The ancestor's tokens: runs of letters and digits in lower case."""
    return re.findall(r"[^\W_]+", text.lower())


# ---------------------------------------------------------------- measures


def scores(corpus: Corpus, questions: Iterable[Question], rank: Ranker) -> list[tuple[float, ...]]:
    """The METRICS of every question, each between 0 and 1."""
    rows = []
    for question in questions:
        order = rank(question.text, question.vector)
        gains = [at in question.gold for at in order[:10]]
        first = gains.index(True) + 1 if True in gains else 0
        ideal = sum(1 / math.log2(place + 2) for place in range(min(10, len(question.gold))))
        dcg = sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))
        sessions = list(dict.fromkeys(corpus.sessions[at] for at in order))[:5]
        wanted = {corpus.sessions[at] for at in question.gold}
        rows.append(
            (
                *(float(0 < first <= cut) for cut in (1, 5, 10)),
                1 / first if first else 0.0,
                dcg / ideal,
                float(not wanted.isdisjoint(sessions)),
            )
        )
    return rows


def overall(parts: Iterable[list[tuple[float, ...]]]) -> dict[str, float]:
    """Means over all questions of all parts, in percent to two digits."""
    rows = [row for part in parts for row in part]
    return {name: round(100 * math.fsum(row[at] for row in rows) / len(rows), 2) for at, name in enumerate(METRICS)}


def mean_average_precision(questions: Sequence[Question], rank: Ranker) -> float:
    """MAP over the full ranking, in percent to two digits; relevant texts that are not found count as missed."""
    total = 0.0
    for question in questions:
        found = 0
        for place, at in enumerate(rank(question.text, question.vector), 1):
            if at in question.gold:
                found += 1
                total += found / place / len(question.gold)
    return round(100 * total / len(questions), 2)


# ---------------------------------------------------------------- data


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def read_conversations(folder: Path) -> Iterable[tuple[str, tuple[Corpus, list[Question]]]]:
    """Name, corpus and questions of every conversation below a folder, by name. Questions without gold are left out."""
    for path in sorted(folder.rglob("*.turns.jsonl")):
        name = path.name.removesuffix(".turns.jsonl")
        turns, queries = read_lines(path), read_lines(path.with_name(f"{name}.queries.jsonl"))
        corpus = Corpus(
            [turn["content"] for turn in turns],
            np.load(path.with_name(f"{name}.turns.npy")),
            [turn["session_id"] for turn in turns],
            [seconds(turn["ts"]) for turn in turns],
        )
        position = {turn["id"]: at for at, turn in enumerate(turns)}
        vectors = np.load(path.with_name(f"{name}.queries.npy"))
        questions = [
            Question(query["question"], vector, frozenset(position[id] for id in query["gold"]))
            for query, vector in zip(queries, vectors, strict=True)
            if query["gold"]
        ]
        yield name, (corpus, questions)


def seconds(text: str) -> float:
    """Seconds since the epoch of an ISO time; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def measure_cranfield(folder: Path, build: Builder, settings: Iterable[Setting]) -> dict[str, float]:
    """MAP of every setting over Cranfield. Empty documents cannot be stored; their relevance still counts as missed."""
    documents, vectors = read_lines(folder / "docs.jsonl"), np.load(folder / "docs.npy")
    kept = [at for at, document in enumerate(documents) if document["text"].strip()]
    corpus = Corpus([documents[at]["text"] for at in kept], vectors[kept], [""] * len(kept), [0.0] * len(kept))
    position = {documents[at]["id"]: place for place, at in enumerate(kept)}
    relevant: dict[int, set[int]] = {}
    for line in (folder / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
        query, document, _ = line.split("\t")
        relevant.setdefault(int(query), set()).add(position.get(int(document), -1 - int(document)))
    questions = [
        Question(query["text"], vector, frozenset(relevant[query["id"]]))
        for query, vector in zip(read_lines(folder / "queries.jsonl"), np.load(folder / "queries.npy"), strict=True)
    ]
    chosen = {setting.name: setting for setting in settings}
    for setting in (Setting("vector only", arms="vector"), Setting("BM25, english tokens", arms="text")):
        chosen.setdefault(setting.name, setting)
    return {name: mean_average_precision(questions, build(corpus, setting)) for name, setting in chosen.items()}


# ---------------------------------------------------------------- output


def table(document: Mapping[str, Any]) -> str:
    """The document for reading."""
    lines = [f"{'':28}" + "".join(f"{name:>14}" for name in METRICS)]
    rows = {
        "clawmem": document["overall"],
        **document["baselines"],
        **document["conversations"],
        **document.get("ablation", {}),
    }
    lines += [f"{name:28}" + "".join(f"{row[metric]:14.2f}" for metric in METRICS) for name, row in rows.items()]
    if "cranfield" in document:
        lines += ["", "Cranfield MAP", *(f"{name:28}{value:14.2f}" for name, value in document["cranfield"].items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
