"""The benchmark: medians, verdicts, pages, corpora. Nothing here is timed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "bench.py"
Part = Callable[[str], ModuleType]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    """Imports a module of the package `bench` beside the script, for the length of a test."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    yield lambda name: importlib.import_module(f"bench.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


@pytest.fixture
def run() -> dict[str, Any]:
    """A run as `--json` writes it."""

    def ms(median: float, cpu: float | None = None) -> dict[str, Any]:
        timed = {"unit": "ms", "median": median, "low": median - 1, "high": median + 2, "rounds": 9}
        return timed if cpu is None else {**timed, "cpu": cpu}

    return {
        "machine": {
            "processor": "Some CPU", "cores": 2, "memory_gib": 8, "system": "Linux 6.1", "python": "3.12.1",
            "clawmem": "0.1.0", "libraries": {"numpy": "2.0.0"}, "load_before": 0.1, "load": 1.5,
        },
        "settings": {"counts": [1000, 10000], "rounds": 9, "peers": False, "only": []},
        "measured": {
            "python -c pass": ms(10.0, 8.0),
            "save 10K": ms(20.0, 18.0),
            "search 10K": ms(40.0, 20.0),
            "peak memory of search 10K": {"unit": "MiB", "median": 38.0, "low": 38.0, "high": 38.0, "rounds": 1},
        },
    }  # fmt: skip


def test_summary(part: Part) -> None:
    """Median and range, and the median of processor times."""
    found = part("timing").summary([3.0, 1.0, 10.0], "ms", [1.0, 2.0, 9.0])
    assert {"unit": "ms", "median": 3.0, "low": 1.0, "high": 10.0, "rounds": 3, "cpu": 2.0} == found


def test_cases_run_in_turn_and_the_first_round_is_not_counted(part: Part) -> None:
    """a b a b a b for two rounds and one to warm up; the slow first run is in no number."""
    timing = part("timing")
    order: list[str] = []

    def case(name: str) -> Callable[[], Any]:
        def call() -> Any:
            order.append(name)
            return timing.Finished(99.0 if len(order) < 3 else 1.0 * len(order), 0.5, "")

        return call

    found = timing.in_turn({"a": case("a"), "b": case("b")}, 2)
    assert list("ababab") == order
    assert (3.0, 5.0, 2) == (found["a"]["low"], found["a"]["high"], found["a"]["rounds"])


def test_a_failing_command_is_no_measurement(part: Part) -> None:
    """What ends badly raises, with what it said."""
    timing = part("timing")
    with pytest.raises(timing.WrongAnswer, match="exit 7: it broke"):
        timing.process([sys.executable, "-c", "import sys; print('it broke', file=sys.stderr, end=''); sys.exit(7)"])


def test_a_command_gets_stdin_and_no_steering_environment(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLAWMEM_* of the caller does not reach what is measured; what is given does."""
    monkeypatch.setenv("CLAWMEM_PATH", "elsewhere")
    code = "import os, sys; print(sys.stdin.read(), os.environ.get('CLAWMEM_PATH'), os.environ['GIVEN'])"
    found = part("timing").process([sys.executable, "-c", code], "text", {"GIVEN": "x"})
    assert "text None x\n" == found.out
    assert found.wall > 0


def test_verdicts(part: Part, run: dict[str, Any]) -> None:
    """Measured targets are judged by their medians, by processor time beside; the others are left out."""
    found = {verdict.target.what: verdict for verdict in part("targets").judge(run["measured"])}
    save = found["save one record, 384 JSON floats, --no-sync, 10K"]
    assert (2.0, True, 18 / 8) == (save.value, save.met, save.by_cpu)
    search = found["hybrid search, fast, 10K"]
    assert (4.0, False, 2.5) == (search.value, search.met, search.by_cpu)
    assert 2 == len(found)


def test_a_target_from_below(part: Part) -> None:
    """A rate is met at and above its limit."""
    targets = part("targets")
    for milliseconds, met in ((2000.0, True), (2001.0, False)):
        measured = {"records of the bulk store": {"median": 100_000}, "export": {"median": milliseconds}}
        (verdict,) = targets.judge(measured)
        assert ("export", met) == (verdict.target.what, verdict.met)


def test_every_target_can_be_judged(part: Part) -> None:
    """Each target asks for medians by name only, and gives a number."""
    targets = part("targets")
    for target in targets.TARGETS:
        assert isinstance(target.value(lambda _: 2.0), float), target.what


def test_page(part: Part, run: dict[str, Any]) -> None:
    """The machine, the verdicts and all numbers, ranges included."""
    page = part("report").page(run)
    assert "Some CPU, 2 cores, 8 GiB, Linux 6.1, Python 3.12.1, clawmem 0.1.0; numpy 2.0.0." in page
    assert "1 of 2 met." in page
    assert "| hybrid search, fast, 10K | python -c pass | ≤ 3× | 4× | 2.5× | **missed** |" in page
    assert "| save 10K | 20.0 ms | 19.0 ms | 22.0 ms | 18.0 ms | 9 |" in page
    assert "| peak memory of search 10K | 38.0 MiB |  |  |  | counted |" in page


def test_page_says_why_a_target_is_missed(part: Part, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of a missed target is printed, that of a met one is not."""
    targets = part("targets")
    noted = tuple(target._replace(note=f"because of {target.unit}") for target in targets.TARGETS)
    monkeypatch.setattr(targets, "TARGETS", noted)
    page = part("report").page(run)
    assert "- hybrid search, fast, 10K against python -c pass: because of ×" in page
    assert 1 == page.count("because of")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (50_000, "records/s", "50,000 records/s"),
        (12.34, "ms", "12.3 ms"),
        (1.234, "×", "1.23×"),
        (0.9985, "", "0.9985"),
    ],
)
def test_figures(part: Part, value: float, unit: str, text: str) -> None:
    """Three digits, thousands parted, the unit behind; shares with four."""
    assert text == part("report").figure(value, unit)


def test_report_of_a_file(run: dict[str, Any], tmp_path: Path) -> None:
    """`--report FILE` prints the page and measures nothing."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps(run))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--report", str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("# Performance\n")


def test_the_committed_page_is_that_of_the_committed_run(part: Part) -> None:
    """docs/performance.md is made of docs/bench.json."""
    committed = json.loads((ROOT / "docs" / "bench.json").read_text())
    assert (ROOT / "docs" / "performance.md").read_text() == part("report").page(committed)


def test_words(part: Part) -> None:
    """Every rank has a word of its own, shorter for the commoner, and its rank can be drawn."""
    corpus = part("corpus")
    words = [corpus.word(rank) for rank in range(corpus.VOCABULARY)]
    assert corpus.VOCABULARY == len(set(words))
    assert len(words[0]) < len(words[-1])


def test_corpus_is_the_same_each_time(part: Part) -> None:
    """Vectors of length 1, texts of 30 to 60 words, lines that carry both."""
    corpus, again = part("corpus").Corpus(40), part("corpus").Corpus(40)
    assert corpus.texts == again.texts
    assert np.allclose(np.linalg.norm(corpus.vectors, axis=1), 1, atol=1e-6)
    assert all(30 <= len(text.split()) <= 60 for text in corpus.texts)
    record = json.loads(list(corpus.lines(floats=True))[7])
    assert (corpus.texts[7], "session-0") == (record["chunk"], record["session_id"])
    assert np.allclose(corpus.vectors[7], record["embedding"], atol=1e-6)


def test_questions_come_from_their_record(part: Part) -> None:
    """The nearest vector is the record's own, by the reference the recalls are measured with."""
    corpus = part("corpus").Corpus(300)
    for _ in range(20):
        question = corpus.question()
        assert question.row == corpus.nearest(np.array(question.vector))[0]
        assert 5 == len(question.text.split())


def test_machine_names_the_processor(part: Part) -> None:
    """Model name with family and model, from /proc/cpuinfo."""
    text = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Some CPU\n\nprocessor\t: 1\n"
    assert "Some CPU (family 6, model 207)" == part("environment").processor(text)


def test_hash_tree(part: Part) -> None:
    """Every leaf changes the root, also one without a partner."""
    bulk = part("bulk")
    leaves = [b"a", b"b", b"c"]
    roots = {bulk.hash_tree(leaves)} | {bulk.hash_tree([*leaves[:at], b"x", *leaves[at + 1 :]]) for at in range(3)}
    assert 4 == len(roots)
