"""Salt files: random, private, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawmem_core import clock
from clawmem_core.contract import salt
from clawmem_core.errors import ExistsError, InvalidInputError, NotFoundError


def test_made_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 bytes from the system's generator, mode 0600, never replaced, no temporary file left."""
    monkeypatch.setattr(clock, "random_bytes", lambda count: bytes(range(count)))
    path = tmp_path / "salt"
    made = salt.init_salt(str(path))
    assert made == bytes(range(32)).hex() == salt.read_salt(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ExistsError):
        salt.init_salt(str(path))
    assert [path] == list(tmp_path.iterdir())


def test_two_salts_differ(tmp_path: Path) -> None:
    """Each deployment has its own."""
    assert salt.init_salt(str(tmp_path / "a")) != salt.init_salt(str(tmp_path / "b"))


@pytest.mark.parametrize("content", [b"", b"short\n", b"g" * 64, b"a" * 65, b"a" * 64 + b"\n\n", b"\xff" * 64])
def test_other_content(tmp_path: Path, content: bytes) -> None:
    """A file that holds no salt is refused."""
    path = tmp_path / "salt"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InvalidInputError, match="64 hexadecimal"):
        salt.read_salt(str(path))


def test_open_or_missing_file(tmp_path: Path) -> None:
    """A file others can read is refused, a missing one is not found."""
    path = tmp_path / "salt"
    with pytest.raises(NotFoundError):
        salt.read_salt(str(path))
    salt.init_salt(str(path))
    path.chmod(0o640)
    with pytest.raises(InvalidInputError, match="open to others"):
        salt.read_salt(str(path))
