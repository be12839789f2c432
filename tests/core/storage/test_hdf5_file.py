"""HDF5 through our own file object: every failed read or write is seen, no damaged file gives a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import h5py
import numpy as np
import pytest

from clawmem_core.errors import ClawmemError, DamagedError, NotAStoreError, StorageError
from clawmem_core.storage import fs, hdf5_file
from tests.core.storage import h5


def test_written_file_is_plain_hdf5(tmp_path: Path) -> None:
    """What is written through the file object is read by path."""
    h5.write(tmp_path / "a.h5", h5.columns_of(2000))
    with h5py.File(tmp_path / "a.h5", locking=False) as file:
        assert file["memory/chunks"][1999] == b"text 1999"


@pytest.mark.parametrize("name", ["pwrite", "ftruncate"])
@pytest.mark.parametrize("lasting", [False, True])
def test_every_failed_write_is_seen(tmp_path: Path, name: str, lasting: bool) -> None:
    """Whichever single write fails, or from which on all do, the caller gets StorageError naming the file."""
    columns = h5.columns_of(40)
    h5.fill_tables(columns)
    faults = 0
    for at in range(1, 1000):
        with h5.failing((name,), at, lasting) as layer:
            if at > 1 and not faults:
                break
            try:
                h5.write(tmp_path / "a.h5", columns)
            except StorageError as error:
                assert str(tmp_path / "a.h5") == error.fields["path"]
                assert "No space left" in error.message
                faults += 1
                continue
        assert not layer.hit
        break
    assert faults >= (20 if name == "pwrite" else 1)


def test_error_of_the_body_leaves_as_it_is(tmp_path: Path) -> None:
    """An error that is not about the file passes through."""
    fd = fs.open_new(str(tmp_path / "a.h5"))
    assert fd is not None
    with pytest.raises(ZeroDivisionError), hdf5_file.writing(fd, "a.h5"):
        raise ZeroDivisionError
    fs.close(fd)


def test_failed_read_is_seen(tmp_path: Path) -> None:
    """A read error is the system's, not damage."""
    h5.write(tmp_path / "a.h5", h5.columns_of(3))
    with h5.failing(("pread",), 2, lasting=True), pytest.raises(StorageError, match="No space left"):
        h5.load(tmp_path / "a.h5")


@pytest.mark.parametrize("data", [b"", b"x", b"hello world, no HDF5 here", bytes(4096)])
def test_other_files_are_no_store(tmp_path: Path, data: bytes) -> None:
    """A file that is no HDF5 file is named as such."""
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(NotAStoreError, match="no HDF5 file"):
        h5.load(tmp_path / "a.h5")


def test_truncated_file_is_damaged(tmp_path: Path) -> None:
    """Wherever the file is cut behind its signature, that is damage."""
    h5.write(tmp_path / "a.h5", h5.columns_of(3))
    data = (tmp_path / "a.h5").read_bytes()
    for size in [8, 9, 40, 48, 100, *range(200, len(data), 997), len(data) - 1]:
        (tmp_path / "b.h5").write_bytes(data[:size])
        with pytest.raises(DamagedError):
            h5.load(tmp_path / "b.h5")


def test_garbled_file_never_gives_a_traceback(tmp_path: Path) -> None:
    """Flipped bytes give the same content or an error of ours, whatever they hit."""
    columns = h5.columns_of(70)
    h5.fill_tables(columns)
    h5.write(tmp_path / "a.h5", columns)
    data = (tmp_path / "a.h5").read_bytes()
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        garbled = bytearray(data)
        for _ in range(chance.choice((1, 4))):
            garbled[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / "b.h5").write_bytes(garbled)
        try:
            with h5.load(tmp_path / "b.h5") as found:
                h5.content(found)
        except ClawmemError:
            refused += 1
    assert refused > 30


def test_speed_equals_writing_by_path(tmp_path: Path) -> None:
    """The file object costs no more than a few times what a path does, even for many small writes."""
    import time

    def fill(file: h5py.File) -> None:
        for number in range(100):
            file.create_dataset(f"d{number}", data=np.zeros(20_000))

    start = time.perf_counter()
    with h5py.File(tmp_path / "path.h5", "w", libver=hdf5_file.VERSIONS) as file:
        fill(file)
    by_path = time.perf_counter() - start
    fd = fs.open_new(str(tmp_path / "ours.h5"))
    assert fd is not None
    start = time.perf_counter()
    with hdf5_file.writing(fd, "ours.h5") as file:
        fill(file)
    ours = time.perf_counter() - start
    fs.close(fd)
    assert ours < 5 * by_path + 0.05


def test_damaged_heap_does_not_hang(tmp_path: Path) -> None:
    """Free space of no size in the global heap, in which HDF5 would walk for ever, is damage."""
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        for number in range(5):
            file.attrs[f"name {number}"] = "text " * number
    data = bytearray(path.read_bytes())
    at = data.find(hdf5_file.HEAP) + 16
    while data[at : at + 2] != b"\0\0":
        at += 16 + (int.from_bytes(data[at + 8 : at + 16], "little") + 7) // 8 * 8
    data[at + 8 : at + 16] = bytes(8)
    path.write_bytes(data)
    fd = fs.open_file(str(path))
    try:
        with (
            hdf5_file.open_for_reading(fd, str(path)) as file,
            pytest.raises(DamagedError),
            hdf5_file.reading(str(path), "/"),
        ):
            dict(file.attrs)
    finally:
        fs.close(fd)
