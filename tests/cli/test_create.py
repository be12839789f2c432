"""clawmem create."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Answer


def test_a_new_store_is_described_and_private(
    clawmem: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path
) -> None:
    """The ancestor's command line."""
    answer = clawmem("--path", "agent.h5", "create", "--agent-id", "my-agent", "--dim", "8", "--wal")
    conforms("create", answer.document)
    assert {
        "status": "created", "path": "agent.h5", "agent_id": "my-agent", "embedding_dim": 8, "wal_enabled": True,
        "count": 0,
    } == answer.document  # fmt: skip
    assert 0o600 == stat.S_IMODE((tmp_path / "agent.h5").stat().st_mode)


def test_settings_reach_the_store(clawmem: Callable[..., Answer]) -> None:
    """--f32, --no-wal and the tokenizer."""
    assert 0 == clawmem("-p", "a.h5", "create", "--dim", "2", "--f32", "--no-wal", "--tokenizer", "plain").code
    stats = clawmem("-p", "a.h5", "stats").document
    assert (False, False) == (stats["float16"], stats["wal_enabled"])


def test_an_existing_store_is_kept(store: Callable[..., Answer], tmp_path: Path) -> None:
    """Exit 15, no byte changed."""
    before = (tmp_path / "m.h5").read_bytes()
    assert 15 == store("create", "--dim", "8").code
    assert before == (tmp_path / "m.h5").read_bytes()


def test_a_bad_dimension_makes_no_file(clawmem: Callable[..., Answer], tmp_path: Path) -> None:
    """0, negative, no number, beyond the limit."""
    for dim in ("0", "-4", "four", "65537"):
        assert 2 == clawmem("-p", "x.h5", "create", "--dim", dim).code
    assert [] == list(tmp_path.iterdir())
