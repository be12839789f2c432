"""What the verbs that change a store share: opening it, the signing key, checkpoints that nobody asked for."""

from __future__ import annotations

from contextlib import contextmanager

from clawmem_cli import output
from clawmem_core.errors import KeyFileError, NoStoreError, NotAStoreError
from clawmem_core.storage import fs
from clawmem_core.storage.paths import StorePaths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clawmem_cli.parsing import Arguments
    from clawmem_core.integrity.signing import Signing
    from clawmem_core.store import MemoryStore
    from clawmem_core.writer import Writer


@contextmanager
def open_store(args: Arguments) -> Iterator[MemoryStore]:
    """The store of a command line, locked for writing; what it noticed is told on stderr at the end."""
    from clawmem_core.store import MemoryStore

    with MemoryStore.open(
        args.path,
        lock_timeout=args.lock_timeout,
        signing_key=args.signing_key,
        actor=args.actor,
        insecure_key_file=args.insecure_key_file,
        rotate_key=args.rotate_key,
    ) as store:
        yield store
        tell("store", store.warnings)


@contextmanager
def open_writer(args: Arguments) -> Iterator[Writer]:
    """The writer of a command line's store, for changes of events; afterwards the automatic checkpoint."""
    from clawmem_core.writer import Writer

    with Writer.open(args.path, args.lock_timeout, args.actor) as writer:
        before = writer.pending
        yield writer
        output.reports(writer.reports)
        checkpoint_if_due(args, writer, before)


def store_paths(args: Arguments) -> StorePaths:
    """The names of the store of a command line, for verbs that open its files themselves.

    Raises NoStoreError, NotAStoreError.
    """
    paths = StorePaths(args.path)
    if not fs.exists(paths.real):
        raise NoStoreError(path=paths.given)
    if fs.is_directory(paths.real):
        raise NotAStoreError(path=paths.given, detail="it is a directory")
    return paths


def signing_of(args: Arguments) -> Signing | None:
    """The signing key of a command line, read and checked, or None. Raises KeyFileError."""
    if args.signing_key is None:
        return None
    from clawmem_core.integrity.signing import Signing

    return Signing.from_file(args.signing_key, insecure=args.insecure_key_file, rotate=args.rotate_key)


def checkpoint_if_due(args: Arguments, writer: Writer, before: int) -> None:
    """After an acknowledged save: the automatic checkpoint. A bad key is a warning, as every other failure of it is."""
    try:
        signing = signing_of(args)
    except KeyFileError as problem:
        output.warning(problem.code, problem.message)
        return
    tell("checkpoint", writer.checkpoint_if_due(before, signing)[1])


def tell(code: str, messages: list[str]) -> None:
    """One warning a message."""
    for message in messages:
        output.warning(code, message)
