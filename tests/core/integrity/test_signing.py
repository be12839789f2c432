"""Signing: never blindly, only with the right key, and as cheaply as what changed allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawmem_core.errors import IntegrityError, KeyFileError, WrongKeyError
from clawmem_core.integrity import content, manifest
from clawmem_core.integrity.check import check_file
from clawmem_core.integrity.content import Findings
from clawmem_core.integrity.keys import PublicKey, SecretKey, keygen
from clawmem_core.integrity.signing import Signing
from clawmem_core.storage.columns import Columns, norms_of
from clawmem_core.storage.paths import StorePaths
from tests.core.integrity.samples import columns, secret_key, write_store
from tests.core.integrity.tampering import EDITS, set_row


def before(signing: Signing, path: str, signed: bool = True) -> None:
    """What a checkpoint does first."""
    with h5py.File(path, locking=False) as file:
        signing.before(file, path, signed=signed)


def findings(path: str, key: PublicKey) -> list[str]:
    """Codes of everything found in a store file."""
    found = Findings()
    with h5py.File(path, locking=False) as file:
        check_file(file, key, found)
    return [item["code"] for item in found.items]


def changed(made: Columns, id: int, text: str) -> Columns:
    """The next checkpoint's content: another text for one record, and another random checkpoint id."""
    made.chunks.base[id] = text.encode()
    made.checkpoint_id = bytes(np.random.default_rng(len(text)).integers(0, 256, 16, np.uint8))
    return made


def test_an_unsigned_store_starts_to_be_signed(tmp_path: Path, key: SecretKey) -> None:
    """Number 1, nothing before it."""
    plain, sealed = str(tmp_path / "p.h5"), str(tmp_path / "s.h5")
    content_ = columns()
    content_.signed = False
    write_store(plain, content_, None)
    signing = Signing(key)
    before(signing, plain, signed=False)
    assert signing.starts
    write_store(sealed, columns(), signing)
    assert [] == findings(sealed, key.public)


def test_a_stripped_store_is_not_signed_again(store: str, key: SecretKey) -> None:
    """Settings or log say that it was signed: no fresh start."""
    with h5py.File(store, "r+", locking=False) as file:
        del file["integrity"]
    with pytest.raises(IntegrityError, match="signature is gone"):
        before(Signing(key), store)


@pytest.mark.parametrize("name", [name for name in EDITS if name != "signature stripped"])
def test_an_edited_store_is_not_signed_again(store: str, key: SecretKey, name: str) -> None:
    """Whatever was edited, nothing is laundered."""
    with h5py.File(store, "r+", locking=False) as file:
        EDITS[name][0](file)
    with pytest.raises(IntegrityError):
        before(Signing(key), store)


def test_wrong_key(store: str, key: SecretKey) -> None:
    """Another key is refused unless keys are to be changed, which the chain records."""
    other = secret_key(2)
    with pytest.raises(WrongKeyError):
        before(Signing(other), store)
    signing = Signing(other, rotate=True)
    assert int(key.public.key_id, 16) == signing.rotation(StorePaths(store))
    before(signing, store)
    assert (True, key.public.key_id) == (signing.rotates, signing.previous_key_id)
    write_store(store, columns(), signing)
    assert [] == findings(store, other.public)
    assert "other-key" in findings(store, key.public)
    assert 0 == signing.rotation(StorePaths(store))


def test_rotation_verifies_what_was_there(store: str) -> None:
    """Changing keys is no way to launder an edit that is not signed by anybody."""
    with h5py.File(store, "r+", locking=False) as file:
        set_row("chunks", 3, b"edited")(file)
    with pytest.raises(IntegrityError):
        before(Signing(secret_key(2), rotate=True), store)


def test_chain_of_manifests(store: str, key: SecretKey) -> None:
    """Each checkpoint adds the hash of the one before; the number counts."""
    signing = Signing(key)
    seals = []
    for text in ("a", "bb", "ccc"):
        before(signing, store)
        write_store(store, changed(columns(), 3, text), signing, {3})
        with h5py.File(store, locking=False) as file:
            seal = manifest.read(file, Findings())
        assert seal is not None
        assert [] == findings(store, key.public)
        seals.append(seal)
    assert [2, 3, 4] == [manifest.decode(seal.manifest).number for seal in seals]
    assert seals[0].hashes() == seals[2].hashes()[:2]
    assert manifest.decode(seals[2].manifest).previous == seals[1].hashes()[-1].hex()


def test_unchanged_records_are_not_read_again(
    store: str, key: SecretKey, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A second checkpoint of one process reads the texts of what changed only."""
    made = columns(3000)
    path = str(tmp_path / "big.h5")
    signing = Signing(key)
    write_store(path, made, signing)
    before(signing, path)
    read: set[tuple[int, int]] = set()
    whole = content.StoredColumn.read

    def texts(self: content.StoredColumn, start: int, stop: int, findings: Findings) -> Any:
        if self.path in ("/memory/chunks", "/memory/tags", "/memory/embeddings"):
            read.add((start, stop))
        return whole(self, start, stop, findings)

    monkeypatch.setattr(content.StoredColumn, "read", texts)
    before(signing, path)
    assert set() == read
    write_store(path, changed(made, 2000, "changed"), signing, {2000})
    assert {(2000, 2001)} == read
    assert [] == findings(path, key.public)


def test_a_change_that_is_not_announced_is_not_signed(store: str, key: SecretKey) -> None:
    """A text that changed behind the signer's back makes a seal that does not hold."""
    signing = Signing(key)
    before(signing, store)
    write_store(store, changed(columns(), 3, "edited"), signing, set())
    assert "record-changed" in findings(store, key.public)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_taking_over_hashes_gives_what_hashing_gives(tmp_path: Path, data: st.DataObject) -> None:
    """Records added, replaced, deleted, boosted or dropped: the same manifest as from nothing."""
    key = secret_key()
    path = str(tmp_path / "m.h5")
    signing = Signing(key)
    write_store(path, columns(100), signing)
    before(signing, path)
    after = columns(data.draw(st.integers(100, 130)))
    after.embeddings.base[:100] = columns(100).embeddings.base
    replaced = data.draw(st.sets(st.integers(0, 99), max_size=5))
    for id in replaced:
        after.chunks.base[id] = b"replaced"
        after.embeddings.base[id] = 2
    after.norms = norms_of(after.embeddings.base)
    for id in data.draw(st.sets(st.integers(0, 99), max_size=5)):
        after.tombstones[id] ^= 1
    for id in data.draw(st.sets(st.integers(0, 99), max_size=5)):
        after.activation[id] = 3.0
    kept = np.setdiff1d(np.arange(len(after.ids)), sorted(data.draw(st.sets(st.integers(20, 99), max_size=5))))
    for column in (after.chunks, after.source_channel, after.session_ids, after.tags, after.keys, after.source_ids):
        column.base, column.kept = column.base[kept], len(kept)
    after.embeddings.base, after.embeddings.kept = after.embeddings.base[kept], len(kept)
    for name in ("ids", "timestamps", "tombstones", "norms", "activation"):
        setattr(after, name, getattr(after, name)[kept])
    write_store(path, after, signing, replaced)
    assert [] == findings(path, key.public)


def test_key_files_are_checked(tmp_path: Path) -> None:
    """From a file, with the checks of keys.py."""
    public = keygen(str(tmp_path / "k.pem"))
    assert public.key_id == Signing.from_file(str(tmp_path / "k.pem")).key_id
    (tmp_path / "k.pem").chmod(0o644)
    with pytest.raises(KeyFileError):
        Signing.from_file(str(tmp_path / "k.pem"))
    assert public.key_id == Signing.from_file(str(tmp_path / "k.pem"), insecure=True).key_id
