"""clawmem index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
