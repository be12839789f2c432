"""Keys: written once and safely, read only when safe, named by their hash."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from clawmem_core.errors import ExistsError, KeyFileError, PublicKeyError, StorageError
from clawmem_core.integrity import keys


def put(path: Path, content: bytes, mode: int = 0o600) -> str:
    """A file with content and mode."""
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    """A key made by keygen."""
    path = str(tmp_path / "a.pem")
    keys.keygen(path)
    return path


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_mode_is_0600_under_any_umask(tmp_path: Path, umask: int) -> None:
    """Neither an open nor a closed umask changes the mode."""
    path = tmp_path / "k.pem"
    before = os.umask(umask)
    try:
        keys.keygen(str(path))
    finally:
        os.umask(before)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_is_pkcs8_and_reads_back(key_file: str) -> None:
    """The file is a PKCS#8 PEM; signing and verifying fit together."""
    assert Path(key_file).read_text().startswith("-----BEGIN PRIVATE KEY-----")
    secret = keys.load_secret(key_file)
    assert secret.public.verifies(secret.sign(b"text"), b"text")
    assert not secret.public.verifies(secret.sign(b"text"), b"texT")
    assert secret.public.hex == keys.public_from_file(key_file).hex


def test_key_id_is_the_start_of_the_hash(key_file: str) -> None:
    """First 16 hexadecimal digits of SHA-256 over the public key."""
    public = keys.public_from_file(key_file)
    assert hashlib.sha256(public.raw).hexdigest()[:16] == public.key_id


def test_never_overwrites(key_file: str) -> None:
    """A second keygen is refused and the first key stays."""
    before = Path(key_file).read_bytes()
    with pytest.raises(ExistsError):
        keys.keygen(key_file)
    assert before == Path(key_file).read_bytes()


def test_never_follows_a_link(tmp_path: Path) -> None:
    """A dangling symlink counts as something that is there."""
    (tmp_path / "k.pem").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ExistsError):
        keys.keygen(str(tmp_path / "k.pem"))
    assert not (tmp_path / "elsewhere").exists()


def test_missing_folder(tmp_path: Path) -> None:
    """An unwritable place is an I/O error."""
    with pytest.raises(StorageError):
        keys.keygen(str(tmp_path / "no" / "k.pem"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_refuses_a_key_others_can_open(key_file: str, mode: int) -> None:
    """Any bit for group or others is refused, unless told to go on."""
    Path(key_file).chmod(mode)
    with pytest.raises(KeyFileError) as caught:
        keys.load_secret(key_file)
    assert "--insecure-key-file" in caught.value.hint
    keys.load_secret(key_file, insecure=True)


def test_refuses_another_users_key(key_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of another owner is refused, unless told to go on."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KeyFileError, match="another user"):
        keys.load_secret(key_file)
    keys.load_secret(key_file, insecure=True)


def encrypted() -> bytes:
    """A PEM with a password."""
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )


def elliptic() -> bytes:
    """A key of another kind."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem() -> bytes:
    """A SubjectPublicKeyInfo PEM."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: b"", "no PKCS#8"),
        (lambda: b"ab" * 32, "public key"),
        (public_pem, "public key"),
        (lambda: b"-----BEGIN PRIVATE KEY-----\nbm8=\n-----END PRIVATE KEY-----\n", "damaged"),
        (encrypted, "encrypted"),
        (elliptic, "another kind"),
        (lambda: b"x" * 20_000, "longer"),
        (lambda: bytes(range(256)), "no PKCS#8"),
    ],
)
def test_refuses_what_is_no_secret_key(tmp_path: Path, make: Callable[[], bytes], says: str) -> None:
    """Everything else is told apart in one sentence."""
    with pytest.raises(KeyFileError, match=says):
        keys.load_secret(put(tmp_path / "k", make()))


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    """A missing file, a folder, a pipe: an error, and no hanging."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", "."):
        with pytest.raises(KeyFileError):
            keys.load_secret(str(tmp_path / name))


def test_public_key_in_every_form(tmp_path: Path, key_file: str) -> None:
    """Hexadecimal in either case, a file with it, a PEM file."""
    public = keys.public_from_file(key_file)
    pem = ed25519.Ed25519PublicKey.from_public_bytes(public.raw).public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    in_files = put(tmp_path / "hex", public.hex.encode() + b"\n"), put(tmp_path / "pem", pem)
    forms = (public.hex, public.hex.upper(), *in_files)
    assert [public.raw] * 4 == [keys.load_public(form).raw for form in forms]


@pytest.mark.parametrize("source", ["", "zz" * 32, "ab" * 16, "ab" * 33, "é" * 64, "no/such/file", "a\0b"])
def test_refuses_what_is_no_public_key(source: str) -> None:
    """Garbage, a short key, a missing file."""
    with pytest.raises(PublicKeyError):
        keys.load_public(source)


def test_refuses_a_secret_key_as_public(tmp_path: Path, key_file: str) -> None:
    """A secret key has no business on a verifying host; garbage in a file is no key."""
    with pytest.raises(PublicKeyError, match="secret"):
        keys.load_public(key_file)
    with pytest.raises(PublicKeyError):
        keys.load_public(put(tmp_path / "k", b"\xff" * 64))
