"""Objects of a store file that are not ours survive, or are named."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.core.storage import h5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store file with 100 records and something in every table."""
    columns = h5.columns_of(100)
    h5.fill_tables(columns)
    h5.write(tmp_path / "a.h5", columns)
    return tmp_path / "a.h5"


def test_foreign_objects_survive(store: Path, tmp_path: Path) -> None:
    """Groups, datasets, attributes and links that are not ours are in the next file; `_merkle_root` is not."""
    with h5.edited(store) as file:
        file.attrs["root"] = "kept"
        file.create_group("extra/deep").attrs["n"] = np.arange(3)
        file["memory"]["more"] = np.arange(10)
        file["memory/chunks"].attrs["note"] = b"bytes"
        file["meta"].attrs["vlen"] = ["a", "bc"]
        file["meta"].attrs["_merkle_root"] = "stale"
        file["soft"] = h5py.SoftLink("/memory/chunks")
        file["hard"] = file["memory/tags"]
        file["space"] = h5py.Empty("f4")
        file["notes/private"] = "text"
    with h5.load(store) as found:
        assert [] == h5.write(tmp_path / "b.h5", found)
    with h5py.File(tmp_path / "b.h5") as file:
        assert "kept" == file.attrs["root"]
        assert [0, 1, 2] == file["extra/deep"].attrs["n"].tolist()
        assert list(range(10)) == file["memory/more"][...].tolist()
        assert "bytes" == file["memory/chunks"].attrs["note"]
        assert ["a", "bc"] == list(file["meta"].attrs["vlen"])
        assert "_merkle_root" not in file["meta"].attrs
        assert "/memory/chunks" == file.get("soft", getlink=True).path
        assert file["hard"] == file["memory/tags"]
        assert file["space"].shape is None
        assert b"text" == file["notes/private"][()]


def test_references_and_scales_are_warned_about(store: Path, tmp_path: Path) -> None:
    """What HDF5 cannot copy is named."""
    with h5.edited(store) as file:
        file.create_dataset("refs", data=np.array([file["memory"].ref], h5py.ref_dtype))
        file["axis"] = np.arange(100)
        file["axis"].make_scale("row")
        file["values"] = np.arange(100)
        file["values"].dims[0].attach_scale(file["axis"])
        file["meta"].attrs["ref"] = file["memory"].ref
    with h5.load(store) as found:
        warnings = h5.write(tmp_path / "b.h5", found)
    for name in ("/refs", "/axis", "/values", "/meta, attribute ref"):
        assert any(warning.startswith(name) for warning in warnings), name
