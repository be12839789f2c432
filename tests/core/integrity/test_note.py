"""Notes: one form, signed, bounded; and what they say of a store."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.errors import NoteError
from clawmem_core.integrity import manifest, note
from clawmem_core.integrity.merkle import as_array
from tests.core.integrity.samples import secret_key

KEY = secret_key()
SAMPLE = note.Note("5a" * 16, 7, 20, b"r" * 32, b"c" * 32, b"a" * 32)


def test_form_is_that_of_signed_notes() -> None:
    """Six lines, a blank one, a signature line with key hash and signature."""
    lines = note.make(SAMPLE, KEY).decode().split("\n")
    origin = f"clawmem/{'5a' * 16}"
    assert [origin, "7", "20", b64encode(b"r" * 32).decode(), b64encode(b"c" * 32).decode()] == lines[:5]
    assert ["", ""] == [lines[6], lines[8]]
    dash, name, encoded = lines[7].split(" ")
    assert ("\u2014", origin) == (dash, name)
    signature = b64decode(encoded)
    assert sha256(origin.encode() + b"\n\x01" + KEY.public.raw).digest()[:4] == signature[:4]
    assert KEY.public.verifies(signature[4:], SAMPLE.text().encode())


def test_reads_back() -> None:
    """What was made is what is parsed."""
    assert SAMPLE == note.parse(note.make(SAMPLE, KEY), KEY.public, "n")


def test_passes_over_other_signatures() -> None:
    """A cosigner's line before ours is not minded."""
    made = note.make(SAMPLE, KEY).decode()
    head, _, line = made.partition("\n\n")
    other = note.make(SAMPLE, secret_key(2)).decode().partition("\n\n")[2]
    assert SAMPLE == note.parse(f"{head}\n\n{other}{line}".encode(), KEY.public, "n")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_other_text_is_refused(data: st.DataObject) -> None:
    """A changed byte anywhere, or another key, is an error and never a crash."""
    made = bytearray(note.make(SAMPLE, KEY))
    signed = made.index(b"\n\n") + 1
    at = data.draw(st.integers(0, signed - 1))
    made[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NoteError):
        note.parse(bytes(made), KEY.public, "n")


@pytest.mark.parametrize(
    "data",
    [b"", b"no note\n", b"\xff\xfe", b"clawmem/\n\n", b"x" * 5000, note.make(SAMPLE, secret_key(2)),
     note.make(SAMPLE, KEY).replace(b"\n7\n", b"\n07\n"), note.make(SAMPLE, KEY)[:-40],
     note.make(SAMPLE, KEY).replace(b"\n7\n", "\n٧\n".encode())],
)  # fmt: skip
def test_nonsense_is_refused(data: bytes) -> None:
    """Empty, binary, too long, signed by another key, other digits."""
    with pytest.raises(NoteError):
        note.parse(data, KEY.public, "n")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    """Parsing random bytes raises nothing else."""
    with pytest.raises(NoteError):
        note.parse(data, KEY.public, "n")


def history(*hashes: bytes) -> tuple[manifest.Manifest, manifest.Seal]:
    """The manifest and seal of a store with these manifests, the last one made for the occasion."""
    last = b"manifest " + hashes[-1]
    nothing = np.zeros((0, 32), np.uint8)
    seal = manifest.Seal(last, b"", b"", as_array(hashes[:-1]), np.zeros(0, np.int64), nothing)
    made = manifest.Manifest(
        store_id="5a" * 16, checkpoint_id="", generation=0, number=len(hashes), rows=0, records=0,
        record_root="00" * 32, leaves="", ids="", settings={}, tables={}, columns={},
        audit_head="00" * 32, audit_lines=0, previous="", chain="", public_key="", key_id="", signed_at=0,
    )  # fmt: skip
    return made, seal


def of(made: manifest.Manifest, seal: manifest.Seal) -> note.Note:
    """The note of a history."""
    return note.of_manifest(made, manifest.chain_value(seal.hashes()))


def test_compare() -> None:
    """Same, extended, rewritten, rolled back, another store."""
    one = history(b"1" * 32)
    first = sha256(one[1].manifest).digest()
    two = history(first, b"2" * 32)
    other = history(first, b"3" * 32)
    third = history(first, sha256(two[1].manifest).digest(), b"4" * 32)
    assert "same" == note.compare(of(*one), *one)
    assert "same" == note.compare(of(*two), *two)
    assert "extended" == note.compare(of(*one), *two)
    assert "extended" == note.compare(of(*two), *third)
    assert "rolled-back" == note.compare(of(*two), *one)
    assert "rewritten" == note.compare(of(*two), *other)
    assert "rewritten" == note.compare(of(*other), *third)
    foreign = note.Note("66" * 16, 1, 0, b"r" * 32, b"c" * 32, b"a" * 32)
    assert "other-store" == note.compare(foreign, *one)
