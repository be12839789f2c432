"""SHA-256 without the cost of importing `hashlib`.

Invariant: the digests are those of FIPS 180-4, whichever implementation the interpreter offers. HOT: a one-shot save
hashes a few hundred bytes, for which the built-in module is as fast as OpenSSL and loads in no time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _implementation() -> Callable[[bytes], Any]:
    for name in ("_sha2", "_sha256"):  # CPython 3.12 and later, CPython 3.11
        try:
            constructor: Callable[[bytes], Any] = __import__(name).sha256
        except ImportError:
            continue
        return constructor
    from hashlib import sha256  # an interpreter built without its own digests

    return sha256


_sha256 = _implementation()


def sha256_digest(data: bytes) -> bytes:
    """The 32 bytes of SHA-256 over `data`."""
    digest: bytes = _sha256(data).digest()
    return digest


def sha256_hexdigest(data: bytes) -> str:
    """SHA-256 over `data` as 64 lower-case hexadecimal digits."""
    return sha256_digest(data).hex()
