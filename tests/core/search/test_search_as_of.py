"""Searching events as of a time: what a correction hides from other tools is still there to be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawmem_core import clock
from clawmem_core.contract.correcting import replace
from clawmem_core.contract.recall import EventFilter, read_scope_rows, search_events
from clawmem_core.contract.scope import scope_key
from clawmem_core.model import SearchOptions
from clawmem_core.search.engine import request_of, search
from clawmem_core.store import MemoryStore
from clawmem_core.view import open_view
from clawmem_core.writer import Writer
from tests.core.contract.events import SCOPE, checkpoint, fact, make_store, save

KEY = bytes.fromhex(scope_key(SCOPE))
BEFORE, SINCE = 1_780_000_000.0, "2026-06-01T00:00:00Z"  # before the correction holds, and from when it does


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_superseded_text_is_found_as_of_its_time(tmp_path: Path, times: int) -> None:
    """In the log, after a checkpoint, after another: by one-shots, by arrays and through an open store."""
    path = make_store(tmp_path)
    old = fact("green tea")
    save(path, old)
    with Writer.open(path, 10.0, "ann") as writer:
        replace(writer, SCOPE, old["factId"], {"text": "black coffee", "validFrom": SINCE})
    for _ in range(times):
        checkpoint(path)
    words = "tea coffee"
    earlier, now = EventFilter(as_of=BEFORE), EventFilter(as_of=clock.now())
    expected = {BEFORE: ["green tea"], now.as_of: ["black coffee"]}
    for wanted in (earlier, now):
        with open_view(path) as view:
            readable = read_scope_rows(view, KEY, wanted)
            pages = [search_events(view, readable, KEY, None, words, SearchOptions())]
            for executor in ("numpy", "pure"):
                request = request_of(view, None, words, SearchOptions(), allowed=set(readable.rows), scope=KEY)
                request.executor = executor
                pages.append(search(view, request))
        with MemoryStore.open(path) as store:
            pages.append([found.hit for found in store.scoped(SCOPE).search(None, words, wanted=wanted)])
        assert [expected[wanted.as_of]] * 4 == [[hit.chunk for hit in page] for page in pages]
