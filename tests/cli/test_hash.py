"""clawmem hash: ids as the contract computes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawmem_core.contract.canonical import sha256_hex
from tests.cli.conftest import ROOT, Answer
from tests.cli.lifecycle import in_process

KINDS = {"episodeEventId": "episode", "factEventId": "fact"}


def vectors() -> list[Any]:
    lines = (ROOT / "tests/vectors/contract.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    wanted = [one for one in found if one["fn"] in KINDS and one.get("typed", True)]
    return [  # but those with values that JSON cannot carry
        one for one in wanted if isinstance(one["expected"], str) and "$js" not in json.dumps(one["input"])
    ]  # fmt: skip


def test_the_published_fixture(clawmem: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """Its episode has the id that everybody gets; nothing is stored."""
    (fixture,) = [one for one in vectors() if one["id"] == "ep-001"]
    answer = clawmem("hash", "--kind", "episode", stdin=json.dumps(fixture["input"]))
    assert "67103226fb448be7129cf2cf27a2e2f779fef17bece5c516722ed3b910e96945" == answer.document["id"]
    conforms("hash", answer.document)


def test_vectors() -> None:
    """Every id of the vectors; the canonical text is what was hashed."""
    tried = 0
    for one in vectors():
        answer = in_process("hash", "--kind", KINDS[one["fn"]], stdin=json.dumps(one["input"]).encode())
        assert (one["expected"], 0) == (answer.document["id"], answer.code), one["id"]
        assert sha256_hex(answer.document["canonical"]) == one["expected"]
        tried += 1
    assert tried > 30


def test_scope() -> None:
    """Parts are trimmed, a null counts as empty."""
    answer = in_process("hash", "--kind", "scope", "--json", '{"parts":[" a ",null],"salt":"s"}').document
    assert {"id": sha256_hex("s\x1ea\x1f"), "canonical": "s\x1ea\x1f"} == answer


@pytest.mark.parametrize(
    "words",
    [
        ("hash", "--json", "{}"),
        ("hash", "--kind", "other", "--json", "{}"),
        ("hash", "--kind", "fact", "--json", "[]"),
        ("hash", "--kind", "fact", "--json", '{"a":1,"a":2}'),
        ("hash", "--kind", "scope", "--json", '{"parts":[1]}'),
        ("hash", "--kind", "scope", "--json", '{"parts":["a"],"salt":1}'),
        ("hash", "--kind", "scope", "--json", '{"parts":["a"],"pepper":"x"}'),
    ],
)
def test_bad_input(words: tuple[str, ...], tmp_path: Path) -> None:
    """Exit 2."""
    answer = in_process(*words)
    assert (2, b"") == (answer.code, answer.out), answer
