"""`clawmem keygen`: make a signing key, or print the public half of one. The secret is never printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_core.errors import UsageError
from clawmem_core.integrity import keys

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print {"status", "path", "public_key", "key_id"}. Raises ExistsError, KeyFileError, StorageError."""
    if (args.out is None) == (args.public is None):
        raise UsageError(detail="give either --out FILE for a new key or --public FILE for the public half of one")
    if args.out is not None:
        status, path, key = "created", args.out, keys.keygen(args.out)
    else:
        status, path, key = "read", args.public, keys.public_from_file(args.public, args.insecure_key_file)
    output.document({"status": status, "path": display_path(path), "public_key": key.hex, "key_id": key.key_id})
    return 0
