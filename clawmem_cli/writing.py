"""What the verbs that change a store share: opening it with the command line's lock timeout, actor and key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_core.store import MemoryStore

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments
    from clawmem_core.integrity.signing import Signing


def open_store(args: Arguments) -> MemoryStore:
    """The store of a command line, locked for writing; use it as a context manager."""
    return MemoryStore.open(args.path, lock_timeout=args.lock_timeout, signing_key=args.signing_key, actor=args.actor)


def signing_of(args: Arguments) -> Signing | None:
    """The signing key of a command line, read and checked, or None. Raises KeyFileError."""
    if args.signing_key is None:
        return None
    from clawmem_core.integrity.signing import Signing

    return Signing.from_file(args.signing_key, insecure=args.insecure_key_file, rotate=args.rotate_key)
