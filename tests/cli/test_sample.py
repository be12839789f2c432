"""The bundled sample is what docs/sample.md says, and the main job works on it."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import ROOT, Answer

SAMPLE = ROOT / "clawmem_cli/sample"
NOTES = [json.loads(line) for line in (SAMPLE / "notes.ndjson").read_text(encoding="utf-8").splitlines()]


def test_sixty_notes_in_several_sessions_with_real_vectors() -> None:
    """Each of 384 float16 values and of length 1."""
    assert len(NOTES) >= 60
    assert len({note["session_id"] for note in NOTES}) >= 5
    assert len(NOTES) == len({note["chunk"] for note in NOTES})
    for note in NOTES:
        vector = struct.unpack("<384e", base64.b64decode(note["embedding_f16"]))
        assert math.isclose(1.0, math.hypot(*vector), abs_tol=0.01)


def test_questions_find_their_notes(clawmem: Callable[..., Answer], tmp_path: Path) -> None:
    """Saved as one stream, asked as one batch."""
    clawmem("-p", "m.h5", "create")
    saved = clawmem("-p", "m.h5", "save", "--ndjson", "--strict-keys", stdin=(SAMPLE / "notes.ndjson").read_bytes())
    assert (0, len(NOTES)) == (saved.code, len(saved.lines))
    found = clawmem("-p", "m.h5", "search", "--batch", "-k", "3", stdin=(SAMPLE / "queries.ndjson").read_bytes())
    pages = [" ".join(hit["chunk"] for hit in line["hits"]) for line in found.lines]
    for page, word in zip(
        pages, ["dark", "Refunds", "hazelnuts", "disk", "Double", "Utrecht", "Ines", "Tides"], strict=True
    ):
        assert word in page
