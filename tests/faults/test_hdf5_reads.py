"""Reading the HDF5 file where one read fails: an error, never content."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from clawmem_core.errors import StorageError
from clawmem_core.storage import fs
from tests.core.storage import h5


class FailingReads:
    """The real layer, whose read number `at` fails."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(fs.RealLayer, name)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self.count += 1
        if self.count == self.at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(fd, size, offset)


def test_a_failed_read_is_never_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever read of a file fails, StorageError names the file; zeros never stand in for what could not be read."""
    columns = h5.columns_of(70)
    h5.fill_tables(columns)
    path = tmp_path / "a.h5"
    h5.write(path, columns)
    at = reads = 0
    while at <= reads:
        layer = FailingReads(at)
        monkeypatch.setattr(fs, "layer", layer)
        if not at:
            with h5.load(path) as found:
                h5.content(found)
            reads = layer.count
        else:
            with pytest.raises(StorageError, match=r"a\.h5: Input/output error"), h5.load(path) as found:
                h5.content(found)
        at += 1
    assert reads > 100
