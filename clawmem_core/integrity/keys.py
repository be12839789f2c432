"""Ed25519 keys: making, reading and naming them.

Invariants: a secret key is written once, with O_EXCL and mode 0600 whatever the umask, and never overwritten; it is
read only from a regular file of the caller's own that nobody else can open (unless told otherwise) and never printed.
`key_id` is the first 16 hexadecimal digits of SHA-256 over the 32 public bytes. `cryptography` is imported only where a
key is used. Sources: RFC 8032 (Ed25519), RFC 8410 and RFC 5958 (PKCS#8 PEM).
"""

from __future__ import annotations

import os
import stat

from clawmem_core.contract.digest import sha256_hexdigest
from clawmem_core.errors import ExistsError, KeyFileError, PublicKeyError, StorageError
from clawmem_core.storage import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_MAX_FILE: Final = 16_384  # bytes; a PEM of an Ed25519 key has 119
_INSECURE_HINT: Final = "make it yours alone (chmod 600), or go on with --insecure-key-file"


class PublicKey:
    """An Ed25519 public key. `raw`: its 32 bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != 32:
            raise PublicKeyError(detail=f"an Ed25519 public key has 32 bytes, this one has {len(raw)}")
        self.raw = raw

    @property
    def hex(self) -> str:
        """64 lower-case hexadecimal digits."""
        return self.raw.hex()

    @property
    def key_id(self) -> str:
        """First 16 hexadecimal digits of SHA-256 over the key."""
        return sha256_hexdigest(self.raw)[:16]

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` (64 bytes) was made over `message` by the secret half of this key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SecretKey:
    """An Ed25519 secret key, held by `cryptography`; it has no text form."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature over `message`."""
        return self._key.sign(message)


def keygen(path: str) -> PublicKey:
    """Write a new secret key to `path` and return its public half.

    Raises ExistsError if anything is there already, StorageError if it cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = fs.open_new(path)
    if descriptor is None:
        raise ExistsError(path=path)
    try:
        fs.set_mode(descriptor, 0o600)  # a umask may have taken even the owner's bits
        fs.pwrite(descriptor, pem, 0)
        fs.fsync(descriptor)
    except StorageError:
        fs.unlink(path)
        raise
    finally:
        fs.close(descriptor)
    fs.sync_directory(os.path.dirname(path) or ".")
    return PublicKey(key.public_key().public_bytes_raw())


def load_secret(path: str, insecure: bool = False) -> SecretKey:
    """The secret key in a PKCS#8 PEM file. `insecure`: do not mind who owns the file or who else can open it.

    Raises KeyFileError if it is missing, no regular file, open to others, another user's, or holds anything else.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content, info = _read(path)
    if not insecure:
        if stat.S_IMODE(info.st_mode) & 0o077:
            raise KeyFileError(
                path=path, detail=f"mode {stat.S_IMODE(info.st_mode):04o} lets others at it", hint=_INSECURE_HINT
            )
        if info.st_uid != os.geteuid():
            raise KeyFileError(path=path, detail="it belongs to another user", hint=_INSECURE_HINT)
    if b"PRIVATE KEY" not in content:
        public = _public_bytes(content) is not None
        detail = "holds a public key; signing needs the secret one" if public else "holds no PKCS#8 PEM key"
        raise KeyFileError(path=path, detail=detail, hint="make a key with `clawmem keygen --out FILE`")
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise KeyFileError(path=path, detail="is encrypted; keys are kept without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(path=path, detail="holds a damaged or unknown key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(path=path, detail="holds a key of another kind than Ed25519")
    return SecretKey(key)


def public_from_file(path: str, insecure: bool = False) -> PublicKey:
    """The public half of the secret key in a file. Raises KeyFileError as `load_secret` does."""
    return load_secret(path, insecure).public


def load_public(source: str) -> PublicKey:
    """A public key given as 64 hexadecimal digits, or as a file that holds them or a SubjectPublicKeyInfo PEM.

    Raises PublicKeyError for anything else, a secret key included.
    """
    raw = _hex_bytes(source)
    if raw is not None:
        return PublicKey(raw)
    if not source:
        raise PublicKeyError(detail="none was given")
    try:
        content, _ = _read(source)
    except KeyFileError as error:
        raise PublicKeyError(detail=f"neither 64 hexadecimal digits nor a readable file: {source}") from error
    if b"PRIVATE KEY" in content:
        raise PublicKeyError(
            detail=f"{source} holds a secret key", hint="`clawmem keygen --public FILE` prints its public half"
        )
    raw = _public_bytes(content)
    if raw is None:
        raise PublicKeyError(detail=f"{source} holds no Ed25519 public key")
    return PublicKey(raw)


def _hex_bytes(text: str) -> bytes | None:
    text = text.strip()
    if len(text) != 64 or not text.isascii():
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _public_bytes(content: bytes) -> bytes | None:
    """The key in a file's content, or None where it holds no Ed25519 public key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PUBLIC KEY" not in content:
        return _hex_bytes(content.decode("ascii", "replace"))
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else None


def _read(path: str) -> tuple[bytes, os.stat_result]:
    """Content and status of a small regular file. Raises KeyFileError."""
    try:
        # O_NONBLOCK: a FIFO in place of the file must not hang the command
        descriptor = fs.open_file(path, fs.RDONLY | os.O_NONBLOCK)
        try:
            info = fs.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise KeyFileError(path=path, detail="is no regular file")
            content = fs.pread(descriptor, _MAX_FILE + 1, 0)
        finally:
            fs.close(descriptor)
    except StorageError as error:
        raise KeyFileError(path=path, detail=error.fields["detail"]) from None
    except ValueError:  # a NUL character
        raise KeyFileError(path=path, detail="is no file name") from None
    if len(content) > _MAX_FILE:
        raise KeyFileError(path=path, detail=f"is longer than a key ({_MAX_FILE} bytes)")
    return content, info
