"""Searches within one process: milliseconds of a call, beside bare index libraries on the same vectors and words."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import timing
from bench.corpus import DIM, Corpus, Question
from bench.stores import Stores, clawmem, size_name
from bench.timing import Measured
from clawmem_core.model import SearchOptions
from clawmem_core.search import simd as _before_usearch  # noqa: F401  usearch puts symbols of its own over simsimd's
from clawmem_core.search.engine import request_of, search
from clawmem_core.store import MemoryStore
from clawmem_core.view import open_view

QUESTIONS = 60  # a round
RECALLS = 200  # questions whose ten nearest are compared with the brute force
DEGREE, BUILD, SHIPPED = 16, 64, 128  # M, efConstruction and ef of the graphs that are compared

#: a search that returns the rows it found
Finder = Callable[[Question], list[int]]


def measure(stores: Stores, rounds: int) -> dict[str, Measured]:
    """Median milliseconds of a search at each size, and recall of the vector arms."""
    found: dict[str, Measured] = {}
    for count in stores.counts:
        corpus, path = stores.corpus(count), stores.copy(count)
        timing.process(clawmem(path, "index", "--ann"))  # as a process that searches often would have it
        with MemoryStore.open_read_only(path) as store, open_view(path) as view:
            graph = bare_graph(corpus)
            finders: dict[str, Finder] = {"hybrid": hybrid(store), "bare hnswlib": graph}
            if stores.peers:
                finders |= {"usearch": usearch_graph(corpus), "bm25s": bm25s_words(corpus)}
            measured = _in_turn(finders, corpus, rounds)
            arms = {
                "exact arm": exact_arm(view),
                "search in process": hybrid(store, words=False),
                "bare hnswlib": graph,
            }
            measured |= {f"recall of {what}": value for what, value in _recalls(arms, corpus).items()}
        found.update({f"{what} {size_name(count)}": value for what, value in measured.items()})
    return found


def _in_turn(finders: dict[str, Finder], corpus: Corpus, rounds: int) -> dict[str, Measured]:
    """Each question to each finder, one after the other; a median a round. The first round warms up."""
    medians: dict[str, list[float]] = {name: [] for name in finders}
    questions = [corpus.question() for _ in range(QUESTIONS)]
    for number in range(rounds + 1):
        times: dict[str, list[float]] = {name: [] for name in finders}
        for question in questions:
            for name, find in finders.items():
                began = time.perf_counter()
                rows = find(question)
                times[name].append((time.perf_counter() - began) * 1000)
                if name == "hybrid" and rows[0] != question.row:
                    raise timing.WrongAnswer(f"{name} found {rows}, not {question.row}")
        if number:
            for name, values in times.items():
                medians[name].append(statistics.median(values))
    return {name: timing.summary(values, "ms") for name, values in medians.items()}


def _recalls(finders: dict[str, Finder], corpus: Corpus) -> dict[str, Measured]:
    """Share of the ten nearest that each finder finds."""
    right = dict.fromkeys(finders, 0)
    for _ in range(RECALLS):
        question = corpus.question()
        nearest = set(corpus.nearest(np.array(question.vector)))
        for name, find in finders.items():
            right[name] += len(nearest.intersection(find(question)))
    return {name: timing.single(count / RECALLS / 10, "") for name, count in right.items()}


def hybrid(store: MemoryStore, words: bool = True) -> Finder:
    """The public search of the library; without `words` only by vector, context off."""
    options = SearchOptions(k=10) if words else SearchOptions(k=10, context=False)
    return lambda question: [
        hit.index for hit in store.search(question.vector, question.text if words else None, options)
    ]


def exact_arm(view: Any) -> Finder:
    """What a one-shot search without words finds: the int8 scan and exact scores of its best."""
    options = SearchOptions(k=10, context=False)
    return lambda question: [hit.index for hit in search(view, request_of(view, question.vector, None, options))]


def bare_graph(corpus: Corpus) -> Finder:
    """hnswlib alone, one thread."""
    import hnswlib

    graph = hnswlib.Index("ip", DIM)
    graph.init_index(corpus.count, M=DEGREE, ef_construction=BUILD)
    graph.set_num_threads(1)
    graph.add_items(corpus.vectors)
    graph.set_ef(shipped_ef())
    return lambda question: graph.knn_query(np.array(question.vector, np.float32), 10)[0][0].tolist()  # type: ignore[no-any-return]


def shipped_ef() -> int:
    """The ef that clawmem searches its graph with."""
    try:
        from clawmem_core.search import ann
    except ImportError:
        return SHIPPED
    return int(getattr(ann, "EF", SHIPPED))


def usearch_graph(corpus: Corpus) -> Finder:
    """usearch alone, int8, one thread."""
    from usearch.index import Index

    graph = Index(
        ndim=DIM, metric="cos", dtype="i8", connectivity=DEGREE, expansion_add=BUILD, expansion_search=SHIPPED
    )
    graph.add(np.arange(corpus.count), corpus.vectors, threads=1)
    return lambda question: graph.search(np.array(question.vector, np.float32), 10, threads=1).keys.tolist()  # type: ignore[no-any-return]


def bm25s_words(corpus: Corpus) -> Finder:
    """bm25s alone: words, no vectors."""
    import bm25s

    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(bm25s.tokenize(corpus.texts, stopwords=None, show_progress=False), show_progress=False)

    def find(question: Question) -> list[int]:
        tokens = bm25s.tokenize([question.text], stopwords=None, show_progress=False)
        return index.retrieve(tokens, k=10, show_progress=False)[0][0].tolist()  # type: ignore[no-any-return]

    return find
