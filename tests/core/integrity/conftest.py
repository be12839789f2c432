"""A signed store file and its key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from clawmem_core.integrity.keys import SecretKey
from clawmem_core.integrity.signing import Signing
from tests.core.integrity.samples import columns, secret_key, write_store


@pytest.fixture
def key() -> SecretKey:
    """The key that signs."""
    return secret_key()


@pytest.fixture
def store(tmp_path: Path, key: SecretKey) -> str:
    """A signed store file of twenty records."""
    path = str(tmp_path / "m.h5")
    write_store(path, columns(), Signing(key))
    return path


@pytest.fixture
def edit(store: str) -> Callable[[Callable[[h5py.File], None]], None]:
    """Change the store file by h5py."""

    def apply(change: Callable[[h5py.File], None]) -> None:
        with h5py.File(store, "r+", locking=False) as file:
            change(file)

    return apply
