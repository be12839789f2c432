"""clawmem doctor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Answer


def test_healthy_store(store: Callable[..., Answer], conforms: Callable[[str, Any], None]) -> None:
    """No finding, exit 0, also with --repair."""
    store("save", "--json", '{"chunk":"x"}')
    for options in ([], ["--json"], ["--repair"]):
        answer = store("doctor", *options)
        assert (0, []) == (answer.code, answer.document["findings"])
        conforms("doctor", answer.document)


def test_damage_is_named_and_repaired(
    store: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path
) -> None:
    """A torn log: 13 with its code, 0 once it is repaired, and nothing afterwards."""
    store("save", "--json", '{"chunk":"x"}')
    store("save", "--json", '{"chunk":"y"}')
    (log,) = tmp_path.glob("*.wal")
    log.write_bytes(log.read_bytes()[:-7])
    answer = store("doctor")
    conforms("doctor", answer.document)
    assert (13, "damaged", ["log-torn"]) == (
        answer.code,
        answer.error["code"],
        [finding["code"] for finding in answer.document["findings"]],
    )
    repaired = store("doctor", "--repair")
    conforms("doctor", repaired.document)
    assert (0, True) == (repaired.code, repaired.document["repaired"])
    assert [] == store("doctor").document["findings"]


def test_beyond_repair(store: Callable[..., Answer], tmp_path: Path) -> None:
    """A file cut short stays as it is, and 13 says so."""
    (file,) = tmp_path.glob("*.h5")
    file.write_bytes(file.read_bytes()[:3000])
    answer = store("doctor", "--repair")
    assert (13, False) == (answer.code, answer.document["repaired"])
    assert "not recoverable" in answer.document["findings"][0]["message"]
    assert 3000 == file.stat().st_size
