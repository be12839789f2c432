"""clawmem snapshot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Answer


def test_a_snapshot_holds_what_is_pending(
    store: Callable[..., Answer], clawmem: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path
) -> None:
    """In the file; the log that is made beside it holds nothing, and is named."""
    store("save", stdin='{"chunk":"in the file"}')
    store("flush-wal")
    store("save", stdin='{"chunk":"in the log"}')
    answer = store("snapshot", "copy.h5")
    conforms("snapshot", answer.document)
    assert ("snapshot_created", 0) == (answer.document["status"], answer.document["pending"])
    assert {answer.document["dest"], answer.document["wal"]} == set(map(str, tmp_path.glob("copy.h5*")))
    assert store("export").out == clawmem("-p", answer.document["dest"], "export").out
    assert 0 == clawmem("-p", "copy.h5", "stats").document["wal_pending"]


def test_an_existing_file_is_kept_without_force(store: Callable[..., Answer], tmp_path: Path) -> None:
    """Nor is the store its own snapshot, forced or not."""
    (tmp_path / "there").write_text("mine")
    assert 15 == store("snapshot", "there").code
    assert "mine" == (tmp_path / "there").read_text()
    assert store("snapshot", "m.h5").code in (2, 15)
    assert store("snapshot", "--force", "m.h5").code in (2, 15)
    assert 0 == store("snapshot", "copy.h5").code
    assert 0 == store("snapshot", "--force", "copy.h5").code
