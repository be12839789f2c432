"""`clawmem verify`: is everything as it was signed, and does it continue the checkpoint noted elsewhere?"""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_cli.writing import store_paths
from clawmem_core.errors import IntegrityError
from clawmem_core.integrity.keys import load_public
from clawmem_core.integrity.verify import verify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print the report, or with --emit-checkpoint the note of a store that is valid; exit 13 where it is not."""
    key = load_public(args.public_key or "")
    report = verify(
        store_paths(args), key, note_path=args.checkpoint, strict=args.strict, full=args.full
    )  # fmt: skip
    if not args.emit_checkpoint:
        output.document({**report, "path": display_path(args.path)})
    elif report["valid"]:
        output.write(report["note"].encode())
    if report["valid"]:
        return 0
    codes = ", ".join(dict.fromkeys(finding["code"] for finding in report["findings"]))
    raise IntegrityError(
        path=display_path(args.path), detail=f"does not verify: {codes}", hint="see the report's findings"
    )
