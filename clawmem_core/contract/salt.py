"""The deployment's salt: 32 random bytes that keep participant hashes from being looked up in a dictionary.

Invariants: a salt file is made once, readable by its owner only, and never replaced; its content is 64 hexadecimal
digits, which as text are the salt of `hash_scope`. It lies beside a store or anywhere else, never inside one.
"""

from __future__ import annotations

from typing import Final

from clawmem_core import clock
from clawmem_core.contract.validate import is_hash
from clawmem_core.errors import ExistsError, InvalidInputError, NotFoundError
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile

SALT_BYTES: Final = 32


def init_salt(path: str) -> str:
    """Make a salt file (mode 0600, durable) and return the salt. Raises ExistsError if the name is taken."""
    salt = clock.random_bytes(SALT_BYTES).hex()
    with AtomicFile(path) as file:
        file.write(f"{salt}\n".encode())
        if not file.commit_new():
            raise ExistsError(path=path)
    return salt


def read_salt(path: str) -> str:
    """The salt in a file. Raises NotFoundError, or InvalidInputError for other content or a file open to others."""
    found = fs.stat(path)
    data = fs.read_all(path, 2 * SALT_BYTES + 2)
    if found is None or data is None:
        raise NotFoundError(kind="salt file", id=path)
    if found.st_mode & 0o077:
        raise InvalidInputError(field="salt file", detail=f"{path} is open to others; make it private with chmod 600")
    salt = data.decode("ascii", "replace").removesuffix("\n")
    if not is_hash(salt):
        raise InvalidInputError(field="salt file", detail=f"{path} does not hold 64 hexadecimal digits")
    return salt
