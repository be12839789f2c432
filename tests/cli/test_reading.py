"""What all reading verbs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clawmem_cli import options
from tests.cli.conftest import Answer

READING = (["search", "--query", "dark"], ["recall", "0"], ["stats"], ["export"], ["agents-md"])


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_reading_writes_nothing_and_is_clean_with_warnings_on(
    store: Callable[..., Answer], tmp_path: Path, words: list[str]
) -> None:
    """Checkpointed and pending records; -W always."""
    store("save", stdin='{"chunk":"User prefers dark mode"}')
    store("flush-wal")
    store("save", stdin='{"chunk":"dark chocolate"}')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    answer = store(*words, env={"PYTHONWARNINGS": "always"})
    assert (0, b"") == (answer.code, answer.err)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


#: what a verb needs beside the store before it looks at it; verbs that are not here need a scope file and more
NEEDED: dict[str, list[str]] = {
    "save": ["--json", '{"chunk":"x"}'], "search": ["--query", "x"], "recall": ["0"], "delete": ["0"],
    "snapshot": ["copy.h5"], "verify": ["--public-key", "ab" * 32], "stats": [], "export": [], "agents-md": [],
    "flush-wal": [], "compact": [], "index": [], "tick": [], "doctor": [],
}  # fmt: skip
ON_A_STORE = [verb.words for verb in options.VERBS.values() if verb.store and verb.words != "create"]


@pytest.mark.parametrize("verb", ON_A_STORE)
def test_a_missing_store_stays_missing(clawmem: Callable[..., Answer], tmp_path: Path, verb: str) -> None:
    """Exit 10 from every verb that works on a store; a folder is none."""
    words = [*verb.split(), *NEEDED.get(verb, [])]
    assert clawmem("-p", "none.h5", *words).code in ((10,) if verb in NEEDED else (2, 10))
    assert [] == list(tmp_path.iterdir())
    assert clawmem("-p", tmp_path, *words).code in (2, 10, 14)
