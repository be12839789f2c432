"""The command line of clawmem-migrate. The ancestor's flags keep their names and meanings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from clawmem_core import __version__
from clawmem_core.door import MAX_DIM
from clawmem_core.errors import UsageError
from clawmem_migrate.mapping import SHIPPED

_EPILOG = (
    "The report goes to stdout as one JSON document. Exit codes: 0 ok, 2 usage or rows that cannot be migrated, "
    "3 some rows skipped, 4 not found, 11 locked or changed meanwhile, 13 damaged or different, 14 another kind of "
    "file, 15 exists, 74 I/O, 130 interrupted."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(detail=message, hint="see clawmem-migrate --help")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, checked against each other. Raises UsageError, SystemExit after --help."""
    options = _parser().parse_args(list(words))
    _check(options)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="clawmem-migrate", description="Import a SQLite database, or a store of the Rust tools, into a new store.",
        epilog=_EPILOG, allow_abbrev=False,
    )  # fmt: skip
    what = parser.add_argument_group("what")
    what.add_argument("--sqlite", metavar="FILE", help="the database to read; it is never changed")
    what.add_argument("--clawhdf5", metavar="FILE", help="a store of the Rust tools to read instead")
    what.add_argument("--hdf5", metavar="FILE", help="the store to make")
    what.add_argument("--incremental", action="store_true", help="bring an existing store up to date with its source")
    what.add_argument("--dry-run", action="store_true", help="only count the rows")
    what.add_argument("--check", action="store_true", help="compare an existing store with its source; writes nothing")
    what.add_argument("--inspect", action="store_true", help="print tables and a mapping file to edit")
    source = parser.add_argument_group("how the source is laid out")
    source.add_argument("--mapping", choices=SHIPPED, help="a layout that comes with the tool (default clawhdf5)")
    source.add_argument("--map", metavar="FILE", help="a mapping file (TOML)")
    for kind in ("chunks", "sessions", "entities", "relations"):
        source.add_argument(f"--{kind}-table", metavar="NAME", help=f"the table of the {kind}")
    source.add_argument("--skip-deleted", action="store_true", help="leave deleted rows out")
    source.add_argument("--skip-invalid", action="store_true", help="migrate the good rows and exit 3")
    source.add_argument("--rejects", metavar="FILE", help="write refused rows there, one JSON object a line")
    store = parser.add_argument_group("the new store")
    store.add_argument("--agent-id", metavar="ID", help='default "migrated"; an old store keeps its own')
    store.add_argument("--embedder", metavar="NAME", help='default "unknown"; an old store keeps its own')
    store.add_argument(
        "--embedding-dim", type=int, metavar="N", help="length of the vectors (default: the first row's)"
    )
    store.add_argument("--f32", action="store_true", help="keep float32; needed for values beyond ±65504")
    store.add_argument("--float16", action="store_true", help="accepted and the default")
    store.add_argument("--compression", action="store_true", help="deflate the vectors")
    store.add_argument("--compression-level", type=int, default=4, metavar="N", help="1 to 9 (default 4)")
    run = parser.add_argument_group("the run")
    run.add_argument("--validate-full", action="store_true", help="read every source row again, not 1,000 of them")
    run.add_argument("--signing-key", metavar="FILE", help="with --incremental: key of a signed store")
    run.add_argument("--lock-timeout", type=float, default=10.0, metavar="SECONDS", help="wait for locks (default 10)")
    run.add_argument("--verbose", action="store_true", help="progress on stderr")
    run.add_argument("--quiet", action="store_true", help="no progress, no warnings")
    parser.add_argument("--version", action="version", version=f"clawmem-migrate {__version__}")
    return parser


def _check(options: argparse.Namespace) -> None:
    def refuse(detail: str) -> UsageError:
        return UsageError(detail=detail, hint="see clawmem-migrate --help")

    if options.sqlite is None and options.clawhdf5 is None:
        raise refuse("--sqlite FILE (or --clawhdf5 FILE) is required")
    if options.sqlite is not None and options.clawhdf5 is not None:
        raise refuse("--sqlite and --clawhdf5 exclude each other")
    if options.hdf5 is None and not options.inspect and not options.dry_run:
        raise refuse("--hdf5 FILE is required")
    modes = [name for name in ("inspect", "check", "dry_run", "incremental") if getattr(options, name)]
    if len(modes) > 1 and modes != ["dry_run", "incremental"]:
        raise refuse(f"--{modes[0].replace('_', '-')} and --{modes[1].replace('_', '-')} exclude each other")
    if options.clawhdf5 is not None:
        wrong = [name for name in ("inspect", "check", "incremental", "map", "mapping") if getattr(options, name)]
        if wrong:
            raise refuse(f"--{wrong[0]} is for --sqlite")
    if options.mapping and options.map:
        raise refuse("--mapping and --map exclude each other")
    if options.f32 and options.float16:
        raise refuse("--f32 and --float16 exclude each other")
    if options.embedding_dim is not None and not 1 <= options.embedding_dim <= MAX_DIM:
        raise refuse(f"--embedding-dim must lie between 1 and {MAX_DIM}")
    if not 0 <= options.lock_timeout <= 86_400:
        raise refuse("--lock-timeout must lie between 0 and 86400 seconds")
    for name in ("sqlite", "clawhdf5", "hdf5", "map", "rejects"):
        value = getattr(options, name)
        if value is not None and (not value or "\0" in value):
            raise refuse(f"--{name} is empty or holds a NUL character")
