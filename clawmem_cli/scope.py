"""`clawmem scope`: the deployment's salt, and from what a host knows of a session to the scope of its memories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clawmem_cli import jsonin, output
from clawmem_cli.parsing import display_path
from clawmem_core.contract.derive import derive_scope
from clawmem_core.contract.salt import init_salt, read_salt
from clawmem_core.errors import InvalidInputError, UsageError
from clawmem_core.storage import fs

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments

_MAX_CONTEXT = 1 << 20


def run_init(args: Arguments) -> int:
    """Make a salt file. Raises ExistsError: a salt is never replaced, all scopes would be lost."""
    if args.out is None:
        raise UsageError(detail="no file given for the salt", hint="give --out FILE, outside the store")
    init_salt(os.path.realpath(args.out))
    output.document({"status": "created", "path": display_path(args.out)})
    return 0


def run_derive(args: Arguments) -> int:
    """Print the decision; it is a scope file where it allows access. A denial is an answer, with exit 0."""
    if args.salt is None and not args.no_salt:
        raise UsageError(detail="no salt given", hint="give --salt FILE, made by `clawmem scope init`")
    if args.salt is not None and args.no_salt:
        raise UsageError(detail="--salt and --no-salt exclude each other")
    salt = "" if args.salt is None else read_salt(args.salt)
    context = jsonin.parse_object(_context(args.context)) if args.context else jsonin.read_object(None)
    output.document(derive_scope(context, salt, allow_empty_salt=args.no_salt).document())
    return 0


def _context(path: str) -> bytes:
    data = fs.read_all(path, _MAX_CONTEXT + 1)
    if data is None:
        raise InvalidInputError(field="--context", detail=f"there is no file {display_path(path)}")
    if len(data) > _MAX_CONTEXT:
        raise InvalidInputError(field="--context", detail=f"is longer than {_MAX_CONTEXT} bytes")
    return data
