"""The measuring script: its numbers on the small set, from the product and from the oracle."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "eval_retrieval.py"
MINI = ROOT / "tests" / "data" / "retrieval-mini"
DATA = Path(os.environ.get("CLAWMEM_EVAL_DATA", ""))
needs_data = pytest.mark.skipif(not (DATA / "locomo").is_dir(), reason="CLAWMEM_EVAL_DATA has no locomo folder")


def run(*arguments: object) -> Any:
    """The script's JSON document."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("eval_retrieval", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_product_ranks_as_the_oracle() -> None:
    """Every digit of the small set, in every setting of the ablation, and better than both baselines."""
    product, oracle = run(MINI, "--ablation"), run(MINI, "--ablation", "--oracle")
    assert oracle == product
    for baseline in product["baselines"].values():
        assert product["overall"]["ndcg@10"] > baseline["ndcg@10"] + 10


def test_the_document() -> None:
    """Its keys and the committed numbers of the small set."""
    document = run(MINI, "--oracle")
    assert {
        "hit@1": 53.12,
        "hit@5": 84.38,
        "hit@10": 93.75,
        "mrr@10": 66.12,
        "ndcg@10": 70.4,
        "session_hit@5": 100.0,
    } == document["overall"]
    assert ["overall", "baselines", "conversations"] == list(document)
    assert ["word_overlap", "ancestor_default"] == list(document["baselines"])
    assert ["garden", "migration"] == list(document["conversations"])


def test_measures_by_hand(script: ModuleType) -> None:
    """Two gold texts at places 2 and 4 of a ranking over three sessions."""
    corpus = script.Corpus(["a", "b", "c", "d"], np.zeros((4, 1), np.float16), ["s", "s", "t", "u"], [0.0] * 4)
    questions = [script.Question("q", None, frozenset({1, 3}))]
    (row,) = script.scores(corpus, questions, lambda text, vector: [0, 1, 2, 3])
    gain = (1 / np.log2(3) + 1 / np.log2(5)) / (1 + 1 / np.log2(3))
    assert pytest.approx((0.0, 1.0, 1.0, 0.5, gain, 1.0)) == row
    assert 50.0 == script.mean_average_precision(questions, lambda text, vector: [0, 1, 2, 3])
    assert 25.0 == script.mean_average_precision(questions, lambda text, vector: [0, 1])


def test_nothing_to_measure(tmp_path: Path) -> None:
    """An empty folder is exit 2 and one line."""
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 2 == done.returncode and done.stderr.startswith("no *.turns.jsonl") and not done.stdout


@needs_data
@pytest.mark.slow
def test_targets_on_public_collections() -> None:
    """LoCoMo and Cranfield through the product at defaults."""
    document = run(DATA / "locomo", "--cranfield", DATA / "cranfield")
    assert document["overall"]["ndcg@10"] >= 55 and document["overall"]["hit@5"] >= 71.5
    assert document["cranfield"]["default"] >= 46 and document["cranfield"]["BM25, english tokens"] >= 42
    assert document["baselines"]["ancestor_default"]["ndcg@10"] < 45
