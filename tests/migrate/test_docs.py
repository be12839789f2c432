"""docs/migrate.md says what is so."""

from __future__ import annotations

import re
import struct
from hashlib import sha256
from pathlib import Path

from clawmem_migrate import mapping, options

TEXT = (Path(__file__).resolve().parents[2] / "docs/migrate.md").read_text(encoding="utf-8")


def test_the_canonical_form_as_written(tmp_path, make, migrate):
    """The report's digest, recomputed from the rows by the words of the guide alone."""
    rows = [make.row(7), make.row(300, deleted=1, tags=None), make.row(20)]
    source = make.rows(tmp_path / "a.db", rows)
    report = migrate("--sqlite", source, "--hdf5", tmp_path / "m.h5").report
    hashes = []
    for row in rows:
        vector = struct.pack("<4e", *struct.unpack("<4f", row["embedding"]))
        texts = [str(row["id"]), row["chunk"], row["source_channel"], row["session_id"], row["tags"] or ""]
        parts = [*(text.encode() for text in texts), vector]
        head = struct.pack("<6I", *map(len, parts)) + struct.pack("<dB", row["timestamp"], row["deleted"])
        hashes.append(sha256(head + b"".join(parts)).digest())
    wanted = sha256(b"".join(sorted(hashes))).hexdigest()
    assert wanted == report["source"]["rows_sha256"] == report["store"]["rows_sha256"]


def test_the_mapping_file_of_the_guide_is_valid():
    """Every key in the example is known."""
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    found = mapping.parse("guide", example)
    assert ("f32", True, True) == (found.encoding, found.null_vector, found.tag_list)


def test_the_command_lines_of_the_guide_parse():
    """Every example line."""
    lines = re.findall(r"^    clawmem-migrate (.*)$", TEXT, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        options.parse(re.split(r"\s+[#>]", line)[0].split())
