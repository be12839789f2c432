"""The at-rest matrix: nineteen edits, each by h5py or with the format's knowledge and by bytes, and what finds each.

README.md shows this very table; a row of it without a test, or the other way round, fails here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from clawmem_core.integrity.signing import Signing
from clawmem_core.integrity.verify import verify
from clawmem_core.model import StoreConfig
from clawmem_core.storage.checkpoint import write_new_store
from clawmem_core.storage.paths import StorePaths
from clawmem_core.storage.row_ops import Entity
from tests.core.integrity.samples import columns, secret_key
from tests.core.integrity.tampering import Edit, attribute, both, rearrange, replace, set_row
from tests.core.integrity.test_verify import resealed, save, section

README = Path(__file__).parents[3] / "README.md"
KEY, OTHER = secret_key(), secret_key(2)
COUNT = 12
Tamper = Callable[[StorePaths], None]


def made(path: Path, text: str = "memory number") -> StorePaths:
    """A signed store with everything in it, small enough that its texts stand in the file as they are."""
    content = columns(COUNT)
    content.log_state = b""
    content.chunks.base[:] = [f"{text} {row:02d}".encode() for row in range(COUNT)]
    content.entity_rows = [Entity(0, "Ada", "person", 1), Entity(1, "Engine", "thing")]
    content.events[0].record_id = 1
    paths = StorePaths(path)
    assert isinstance(content.config, StoreConfig)
    write_new_store(paths, content, signing=Signing(KEY))
    return paths


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store, one of before its last checkpoint, and one of another owner of the same key."""
    folder = tmp_path_factory.mktemp("template")
    made(folder / "other.h5", "foreign words")
    paths = made(folder / "m.h5")
    save(paths, range(COUNT, COUNT + 2))
    (folder / "old").mkdir()
    for suffix in ("", ".wal"):
        shutil.copy2(paths.real + suffix, folder / "old")
    save(paths, range(COUNT + 2, COUNT + 3), Signing(KEY), flush=True)
    save(paths, range(COUNT + 3, COUNT + 5))
    (folder / "note").write_text(verify(paths, KEY.public)["note"], encoding="utf-8")
    return folder


@pytest.fixture
def paths(template: Path, tmp_path: Path) -> StorePaths:
    """A copy, times kept."""
    return StorePaths(shutil.copytree(template, tmp_path / "s") / "m.h5")


def by_h5py(*edits: Edit) -> Tamper:
    """Change the store file through h5py."""

    def tamper(paths: StorePaths) -> None:
        with h5py.File(paths.real, "r+", locking=False) as file:
            both(*edits)(file)

    return tamper


def by_bytes(old: bytes, new: bytes, suffix: str = "", *, last: bool = False) -> Tamper:
    """Put other bytes of the same number where these stand first (or last)."""

    def tamper(paths: StorePaths) -> None:
        data = Path(paths.real + suffix).read_bytes()
        at = data.rfind(old) if last else data.find(old)
        assert at >= 0 and len(old) == len(new)
        Path(paths.real + suffix).write_bytes(data[:at] + new + data[at + len(old) :])

    return tamper


def swapped(first: bytes, second: bytes) -> Tamper:
    """Let two strings of one length change places."""

    def tamper(paths: StorePaths) -> None:
        data = Path(paths.real).read_bytes()
        assert first in data and second in data
        data = data.replace(first, b"\0" * len(first)).replace(second, first).replace(b"\0" * len(first), second, 1)
        Path(paths.real).write_bytes(data)

    return tamper


def cut(share: float, suffix: str = "") -> Tamper:
    """Keep the first part of a file."""

    def tamper(paths: StorePaths) -> None:
        data = Path(paths.real + suffix).read_bytes()
        Path(paths.real + suffix).write_bytes(data[: int(len(data) * share)])

    return tamper


def added_bytes(paths: StorePaths) -> None:
    """A record's worth of bytes pushed into the middle of the file."""
    data = Path(paths.real).read_bytes()
    Path(paths.real).write_bytes(data[: len(data) // 2] + b"forged record".ljust(64) + data[len(data) // 2 :])


def flipped(place: bytes, dataset: str) -> Tamper:
    """Flip bits of the first value of a dataset that is stored as it is."""

    def tamper(paths: StorePaths) -> None:
        with h5py.File(paths.real, locking=False) as file:
            stored = file[dataset].id
            at = stored.get_chunk_info(0).byte_offset if file[dataset].chunks else stored.get_offset()
        data = bytearray(Path(paths.real).read_bytes())
        data[at] ^= place[0]
        Path(paths.real).write_bytes(data)

    return tamper


def without_record(paths: StorePaths) -> None:
    """Overwrite record 6 with what follows it, the last one staying twice."""
    with h5py.File(paths.real, locking=False) as file:
        dataset = file["memory/ids"]
        at, size = dataset.id.get_offset(), len(dataset) * 8
    data = bytearray(Path(paths.real).read_bytes())
    data[at + 6 * 8 : at + size - 8] = data[at + 7 * 8 : at + size]
    Path(paths.real).write_bytes(data)


def replayed(paths: StorePaths) -> None:
    """Record 3 of another store, validly signed there, leaf hash and all."""
    with h5py.File(Path(paths.directory) / "other.h5", locking=False) as other, h5py.File(
        paths.real, "r+", locking=False
    ) as file:  # fmt: skip
        for name in ("chunks", "embeddings", "norms"):
            values = file["memory"][name][...]
            values[3] = other["memory"][name][3]
            file["memory"][name][...] = values
        leaves = file["integrity/leaves"][...]
        leaves[3] = other["integrity/leaves"][3]
        file["integrity/leaves"][...] = leaves


def other_key(paths: StorePaths) -> None:
    """Another key in the manifest and its signature, consistently."""
    with h5py.File(paths.real, "r+", locking=False) as file:
        manifest = json.loads(file["integrity/manifest"][()].tobytes())
        manifest |= {"public_key": OTHER.public.hex, "key_id": OTHER.public.key_id}
        data = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
        file["integrity/manifest"][...] = np.frombuffer(data, np.uint8)
        file["integrity/signature"][...] = np.frombuffer(OTHER.sign(data), np.uint8)


def other_key_by_bytes(paths: StorePaths) -> None:
    """Another public key where it stands in the file."""
    by_bytes(KEY.public.hex.encode(), OTHER.public.hex.encode())(paths)


def forged_index(paths: StorePaths) -> None:
    """Another text in the index, checksums put right."""
    at = section(paths.index, "text").offset
    resealed(paths.index, lambda data: data.__setitem__(at, ord("M")))


def flipped_index(paths: StorePaths) -> None:
    """Another text in the index."""
    by_bytes(b"memory number 03", b"memory number 30", ".idx")(paths)


def appended(paths: StorePaths) -> None:
    """A well-formed entry."""
    save(paths, range(COUNT + 5, COUNT + 6))


def appended_bytes(paths: StorePaths) -> None:
    """Noise after the last entry."""
    with open(paths.log, "ab") as file:
        file.write(b"one more entry" * 20)


def log_cut_whole(paths: StorePaths) -> None:
    """File and log of before, the log's entries cut off: what the noted checkpoint took in is gone."""
    rolled_back(paths)
    Path(paths.log).write_bytes(Path(paths.log).read_bytes()[:512])


def rolled_back(paths: StorePaths) -> None:
    """An earlier state of file and log, derived files removed."""
    for suffix in (".idx", ".keys"):
        Path(paths.real + suffix).unlink()
    for suffix in ("", ".wal"):
        shutil.copy2(Path(paths.directory) / "old" / f"m.h5{suffix}", paths.directory)


def rolled_back_by_bytes(paths: StorePaths) -> None:
    """The same, written over in place."""
    for suffix in ("", ".wal"):
        Path(paths.real + suffix).write_bytes((Path(paths.directory) / "old" / f"m.h5{suffix}").read_bytes())


STRICT, NOTE = "`--strict`: ", "the note: "

#: edit -> (by h5py or knowing the format, what finds it; by bytes, what finds it)
MATRIX: dict[str, tuple[Tamper, str, Tamper, str]] = {
    "content edit": (
        by_h5py(set_row("chunks", 7, b"memory number 70")), "record-changed",
        by_bytes(b"memory number 07", b"memory number 70"), "record-changed",
    ),
    "metadata edit": (
        by_h5py(set_row("tags", 5, b"tag99")), "record-changed",
        by_bytes(b"tag05", b"tag99"), "record-changed",
    ),
    "embedding edit": (
        by_h5py(set_row("embeddings", 5, [2, 2, 3, 6])), "record-changed",
        flipped(b"\x01", "memory/embeddings"), "record-changed",
    ),
    "tail cut": (by_h5py(rearrange([*range(COUNT + 2)])), "record-missing", cut(0.9), "file-unreadable"),
    "middle delete": (
        by_h5py(rearrange([row for row in range(COUNT + 3) if row != 6])), "record-missing",
        without_record, "record-missing",
    ),
    "reorder": (
        by_h5py(rearrange([0, 2, 1, *range(3, COUNT + 3)])), "record-reordered",
        swapped(b"memory number 01", b"memory number 02"), "record-changed",
    ),
    "forged insert": (
        by_h5py(rearrange([*range(COUNT + 3), 3]), set_row("ids", COUNT + 3, 99)), "record-added",
        added_bytes, "file-damaged",
    ),
    "replay of another store's record": (
        replayed, "leaves-changed", by_bytes(b"memory number 03", b"foreign words 03"), "record-changed",
    ),
    "settings edit": (by_h5py(attribute("agent_id", "evil")), "settings-changed",
                      by_bytes(b"honest", b"h0nest"), "settings-changed"),
    "graph edit": (by_h5py(set_row("entity_names", 0, b"Eve", "knowledge_graph")), "graph-changed",
                   by_bytes(b"Engine", b"engine"), "graph-changed"),
    "event edit": (by_h5py(set_row("statuses", 0, 3, "events")), "events-changed",
                   by_bytes(b"likes tea", b"likes gin", last=True), "events-changed"),
    "audit edit": (by_h5py(replace("audit/lines", np.zeros((1, 72), "u1"))), "audit-changed",
                   by_bytes(b"b" * 72, b"b" * 71 + b"c"), "audit-changed"),
    "signature strip": (by_h5py(replace("integrity", None), attribute("signed", np.int64(0))), "unsigned",
                        flipped(b"\xff", "integrity/signature"), "signature-invalid"),
    "key swap": (other_key, "other-key", other_key_by_bytes, "other-key"),
    "sidecar edit": (forged_index, "index-differs", flipped_index, "index-damaged"),
    "log edit": (by_bytes(b"memory number 16", b"memory number 61", ".wal"), "log-torn",
                 by_bytes(b"memory number 15", b"memory number 51", ".wal"), "log-unsynced-lost"),
    "log append": (appended, STRICT + "log-unsigned", appended_bytes, "log-torn"),
    "log cut": (log_cut_whole, NOTE + "note-rolled-back", cut(0.9, ".wal"), "log-torn"),
    "whole-store rollback": (rolled_back, NOTE + "note-rolled-back",
                             rolled_back_by_bytes, NOTE + "note-rolled-back"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["h5py", "bytes"])
@pytest.mark.parametrize("name", MATRIX)
def test_what_finds_it(paths: StorePaths, name: str, way: str) -> None:
    """Found by what the table says, and by nothing weaker: all but three edits need no option."""
    tamper, finder = MATRIX[name][:2] if way == "h5py" else MATRIX[name][2:]
    tamper(paths)
    plain = verify(paths, KEY.public)
    assert plain["valid"] == finder.startswith((STRICT, NOTE)), plain["findings"]
    note = str(Path(paths.directory) / "note") if finder.startswith(NOTE) else None
    report = verify(paths, KEY.public, strict=finder.startswith(STRICT), note_path=note)
    assert not report["valid"]
    codes = [finding["code"] for finding in report["findings"]]
    assert finder.rpartition(": ")[2] in codes, codes


def test_untouched_copy(paths: StorePaths) -> None:
    """A control copy verifies; so does one that h5py opened for writing and closed."""
    by_h5py()(paths)
    report = verify(paths, KEY.public, note_path=str(Path(paths.directory) / "note"))
    assert (True, 2) == (report["valid"], report["wal_entries_unsigned"])


def cell(finder: str) -> str:
    """What finds an edit, as the table shows it."""
    where, _, code = finder.rpartition(": ")
    return f"{where}: `{code}`" if where else f"`{code}`"


def test_readme_shows_this_table() -> None:
    """Row by row."""
    rows = [f"| {name} | {cell(first)} | {cell(second)} |" for name, (_, first, _, second) in MATRIX.items()]
    shown = README.read_text(encoding="utf-8").partition("<!-- at-rest matrix -->")[2].partition("<!-- end -->")[0]
    assert rows == [line for line in shown.split("\n") if line.startswith("| ")][1:]
