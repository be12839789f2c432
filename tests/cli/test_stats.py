"""clawmem stats."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Answer


def test_counts_follow_every_change(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """count includes deleted rows; wal_pending is exact."""

    def counts() -> tuple[int, int, int]:
        document = store("stats").document
        conforms("stats", document)
        return document["count"], document["active"], document["wal_pending"]

    assert (0, 0, 0) == counts()
    store("save", stdin='{"chunk":"x"}')
    store("save", stdin='{"chunk":"y"}')
    assert (2, 2, 2) == counts()
    store("delete", "0")
    assert (2, 1, 3) == counts()
    store("flush-wal")
    assert (2, 1, 0) == counts()
    store("compact")
    assert (1, 1, 0) == counts()


def test_a_path_is_named_whatever_the_locale(clawmem: Callable[..., Answer]) -> None:
    """An error shows the letters of a path, not Python's escapes for them."""
    answer = clawmem("--path", "nö.h5", "stats", env={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert (10, "no store at nö.h5") == (answer.code, answer.error["message"])


def test_what_is_no_regular_file_is_no_store(clawmem: Callable[..., Answer], tmp_path: Path) -> None:
    """A named pipe is refused at once, not waited for, and gets no lock file."""
    os.mkfifo(tmp_path / "pipe.h5")
    for words in (["stats"], ["recall", "0"], ["save", "--json", '{"chunk":"x"}'], ["doctor"], ["flush-wal"]):
        answer = clawmem("--path", "pipe.h5", *words)
        assert (14, "not-a-store") == (answer.code, answer.error["code"])
    assert ["pipe.h5"] == os.listdir(tmp_path)
