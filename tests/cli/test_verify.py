"""clawmem verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawmem_cli.options import VERBS
from clawmem_core.integrity import verify
from tests.cli.conftest import Answer


def test_signed_unsigned_and_noted(
    store: Callable[..., Answer], conforms: Callable[[str, Any], None], tmp_path: Path
) -> None:
    """Exit 0 only for what is signed and unchanged; the note is text; without a key exit 12."""
    public = store("keygen", "--out", "k.pem").document["public_key"]
    store("save", stdin='{"chunk":"x"}')
    unsigned = store("verify", "--public-key", public)
    conforms("verify", unsigned.document)
    assert (13, False, "integrity") == (unsigned.code, unsigned.document["valid"], unsigned.error["code"])
    assert 0 == store("flush-wal", "--signing-key", "k.pem").code
    signed = store("verify", "--public-key", public)
    conforms("verify", signed.document)
    assert (0, True) == (signed.code, signed.document["valid"])
    note = store("verify", "--public-key", public, "--emit-checkpoint")
    assert note.out.startswith(b"clawmem/")
    (tmp_path / "note").write_bytes(note.out)
    compared = store("verify", "--public-key", public, "--checkpoint", "note")
    conforms("verify", compared.document)
    assert "same" == compared.document["checkpoint"]["comparison"]
    assert 12 == store("verify").code


def test_help_says_what_full_adds() -> None:
    """Above which size of a store it compares more than a plain verify does."""
    (full,) = (option for option in VERBS["verify"].options if option.flags[0] == "--full")
    assert all(word in full.help for word in ("vectors", "words", f"{verify._SMALL:,}"))
