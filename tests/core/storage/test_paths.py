"""Names of a store's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawmem_core.errors import UsageError
from clawmem_core.storage.paths import StorePaths, temp_name


def test_sidecars_append_to_the_full_name(tmp_path: Path) -> None:
    """m.h5 and m.hdf5, agent.v1 and agent.h5 share nothing."""
    names = [StorePaths(tmp_path / name) for name in ("m.h5", "m.hdf5", "agent.v1", "agent.h5", "plain")]
    assert str(tmp_path / "m.h5.wal") == names[0].log
    every = [getattr(paths, kind) for paths in names for kind in ("real", "log", "lock", "index", "keys", "ann")]
    assert len(every) == len(set(every))


def test_symlink_is_resolved_once(tmp_path: Path) -> None:
    """Sidecars lie beside the real file."""
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real" / "m.h5", tmp_path / "link.h5")
    paths = StorePaths(tmp_path / "link.h5")
    assert str(tmp_path / "link.h5") == paths.given
    assert str(tmp_path / "real" / "m.h5.wal") == paths.log
    assert (str(tmp_path / "real"), "m.h5") == (paths.directory, paths.name)


def test_bytes_and_odd_names(tmp_path: Path) -> None:
    """Names that are no UTF-8 are names; an empty one or one with NUL is a usage error."""
    odd = os.fsencode(tmp_path) + b"/m\xff\n.h5"
    assert odd + b".lock" == os.fsencode(StorePaths(odd).lock)
    for bad in ("", "a\0b"):
        with pytest.raises(UsageError):
            StorePaths(bad)


def test_made_up_names_are_new(tmp_path: Path) -> None:
    """Temporary and quarantine names never repeat and begin with the file's own."""
    paths = StorePaths(tmp_path / "m.h5")
    names = {temp_name(paths.real) for _ in range(50)} | {paths.quarantine_name() for _ in range(50)}
    assert 100 == len(names)
    assert all(name.startswith(paths.real) for name in names)
    Path(paths.quarantine_name()).touch()
    (tmp_path / "other.h5.wal.corrupt-1-x").touch()
    assert 1 == len(paths.quarantined())
