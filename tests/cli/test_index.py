"""clawmem index."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clawmem_cli import index
from clawmem_core.errors import UsageError
from clawmem_core.model import MemoryEntry, SearchOptions
from clawmem_core.store import MemoryStore
from tests.cli.conftest import Answer


def test_lost_derived_files_are_written_anew(
    store: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path
) -> None:
    """The same bytes, the same answers meanwhile, the log untouched."""
    store("save", stdin='{"chunk":"some words","key":"k"}')
    store("flush-wal")
    store("save", stdin='{"chunk":"more words"}')
    names = ("m.h5", "m.h5.wal", "m.h5.idx", "m.h5.keys")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    found = store("search", "--query", "words").out
    for name in names[2:]:
        (tmp_path / name).unlink()
    assert found == store("search", "--query", "words").out
    answer = store("index")
    conforms("index", answer.document)
    assert (1, len(before["m.h5.idx"])) == (answer.document["records"], answer.document["index_bytes"])
    assert before == {name: (tmp_path / name).read_bytes() for name in names}


def test_graph_is_written_on_request_and_found_by_the_library(
    store: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long-lived search takes the saved graph and answers as before; after a checkpoint the graph is stale."""
    pytest.importorskip("hnswlib")
    from clawmem_core.search import ann

    monkeypatch.setattr(ann, "LEAST_ROWS", 4)
    path = tmp_path / "m.h5"
    entries = [MemoryEntry(f"word{at}", [1.0, at, at % 7, at % 11]) for at in range(80)]
    vector = [1.0, 40.0, 3.0, 5.0]
    with MemoryStore.open(path) as opened:
        opened.save_batch(entries)
        opened.flush_wal()
        expected = [(hit.index, hit.score) for hit in opened.search(vector, None)]
    answer = store("index", "--ann")
    conforms("index", answer.document)
    assert answer.document["ann_bytes"] == (tmp_path / "m.h5.ann").stat().st_size > 0
    monkeypatch.setattr(ann, "build", lambda _: pytest.fail("built, not loaded"))
    with MemoryStore.open(path) as opened:
        hits = opened.search(vector, None, SearchOptions(explain=True))
        assert expected == [(hit.index, hit.score) for hit in hits]
        assert hits[0].explain is not None and hits[0].explain["executor"] == "ann"
        with opened.viewed() as view:
            assert view.base.memo["ann"]._graph is not None
        opened.save(MemoryEntry("another"))
        opened.flush_wal()
        with opened.viewed() as view:
            assert ann.load(view.paths.ann, view.base) is None


def test_graph_needs_its_library(store: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without hnswlib the name of the extra is said, and nothing is written."""
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError) as raised:
        index.run(cast(Any, SimpleNamespace(path=str(tmp_path / "m.h5"), ann=True, lock_timeout=0.0)))
    assert "clawmem[ann]" in raised.value.hint
    assert before == sorted(tmp_path.iterdir())
