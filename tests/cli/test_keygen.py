"""clawmem keygen."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Answer


def test_a_key_is_made_once_and_its_public_half_read_back(
    clawmem: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path
) -> None:
    """0600, never overwritten."""
    made = clawmem("keygen", "--out", "k.pem")
    conforms("keygen", made.document)
    assert 0o600 == stat.S_IMODE((tmp_path / "k.pem").stat().st_mode)
    before = (tmp_path / "k.pem").read_bytes()
    assert 15 == clawmem("keygen", "--out", "k.pem").code
    assert before == (tmp_path / "k.pem").read_bytes()
    read = clawmem("keygen", "--public", "k.pem")
    conforms("keygen", read.document)
    assert made.document["public_key"] == read.document["public_key"]


def test_a_key_others_can_read_is_refused(clawmem: Callable[..., Answer], tmp_path: Path) -> None:
    """Unless told otherwise; either --out or --public, not both."""
    clawmem("keygen", "--out", "k.pem")
    (tmp_path / "k.pem").chmod(0o644)
    assert 12 == clawmem("keygen", "--public", "k.pem").code
    assert 0 == clawmem("keygen", "--public", "k.pem", "--insecure-key-file").code
    assert 2 == clawmem("keygen").code
    assert 2 == clawmem("keygen", "--out", "a", "--public", "k.pem").code
