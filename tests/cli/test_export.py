"""clawmem export."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py

from tests.cli.conftest import START, Answer, environment


def test_what_is_exported_can_be_saved_back(
    store: Callable[..., Answer], clawmem: Callable[..., Answer], conforms: Callable[[str, Any], None]
) -> None:
    """Every field and vector, without a warning under --strict-keys."""
    lines = [
        '{"chunk":"naïve \\u2028 \\"quoted\\" \\\\ \\n","embedding":[0.1,-2,3e-5,4],"timestamp":17.1,"key":"k"}',
        '{"chunk":"no vector","source_channel":"","tags":"a, b","source_id":"17","activation":1.5}',
        '{"chunk":"gone","deleted":true}',
    ]
    assert 0 == store("save", "--ndjson", stdin="\n".join(lines)).code
    exported = store("export", "--include-deleted")
    assert 3 == len(exported.lines)
    for line in exported.lines:
        conforms("export", line)
    clawmem("-p", "copy.h5", "create", "--dim", "4")
    back = clawmem("-p", "copy.h5", "save", "--ndjson", "--strict-keys", stdin=exported.out)
    assert (0, []) == (back.code, back.warnings)
    assert exported.out == clawmem("-p", "copy.h5", "export", "--include-deleted").out


def test_a_record_that_save_would_refuse_is_named(store: Callable[..., Answer], tmp_path: Path) -> None:
    """A text that another tool emptied in the HDF5 file: printed as it is, with a warning that names the record."""
    store("save", "--ndjson", stdin='{"chunk":"a"}\n{"chunk":"b"}\n{"chunk":"c"}\n')
    store("flush-wal")
    assert [] == store("export").warnings
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        file["memory/chunks"][1] = b""
    (tmp_path / "m.h5.idx").unlink()
    exported = store("export")
    assert (0, ["a", "", "c"]) == (exported.code, [line["chunk"] for line in exported.lines])
    (warning,) = exported.warnings
    assert ("empty-chunk", True) == (warning["code"], "record 1 " in warning["message"])


def test_texts_that_look_like_the_end_of_a_line_stay_whole(store: Callable[..., Answer]) -> None:
    """Braces, quotes, keys and line feeds in every text; more records than are read at a time."""
    texts = ['},{"index":', '}\n{"index":1', '"},{"index":2,"chunk":"x', "\\", '\\"},{"index":'] * 60
    records = [{"chunk": text, "session_id": text, "tags": text, "source_channel": text} for text in texts]
    store("save", "--ndjson", stdin="".join(json.dumps(record) + "\n" for record in records))
    for _ in range(2):
        found = store("export").lines
        assert list(range(300)) == [line["index"] for line in found]
        assert records == [{name: line[name] for name in records[0]} for line in found]
        store("flush-wal")


def test_options_leave_out_vectors_and_deleted_records(store: Callable[..., Answer]) -> None:
    """--no-embeddings; deleted records only when asked for."""
    store("save", stdin='{"chunk":"x","embedding":[1,2,3,4]}')
    store("save", stdin='{"chunk":"y"}')
    store("delete", "1")
    (line,) = store("export", "--no-embeddings").lines
    assert (0, False) == (line["index"], any(name.startswith("embedding") for name in line))
    assert [None, True] == [line.get("deleted") for line in store("export", "--include-deleted").lines]


def test_a_reader_that_stops_ends_it_quietly(store: Callable[..., Answer], tmp_path: Path) -> None:
    """export | head -1: exit 141, nothing on stderr."""
    text = "more than a pipe holds, even one that was widened; " * 10
    store("save", "--ndjson", stdin=f'{{"chunk":"{text}"}}\n' * 5000)
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", START, "-p", tmp_path / "m.h5", "export"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(writer)
    assert os.read(reader, 10).startswith(b'{"index":0')
    os.close(reader)
    _, said = child.communicate(timeout=60)
    assert (141, b"") == (child.returncode, said)
