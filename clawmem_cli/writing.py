"""What the verbs that change a store share: opening it with the command line's lock timeout, actor and key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_core.store import MemoryStore

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def open_store(args: Arguments) -> MemoryStore:
    """The store of a command line, locked for writing; use it as a context manager."""
    return MemoryStore.open(args.path, lock_timeout=args.lock_timeout, signing_key=args.signing_key, actor=args.actor)
