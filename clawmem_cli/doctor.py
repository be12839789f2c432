"""`clawmem doctor`: what is wrong with the store's files, and with --repair, putting it right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_cli.writing import store_paths
from clawmem_core.doctor import examine, repair
from clawmem_core.errors import DamagedError

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print the findings; 0 if there are none (left), 13 otherwise. Without --repair nothing is written."""
    paths = store_paths(args)
    signing = None
    if args.repair and args.signing_key is not None:
        from clawmem_core.integrity.signing import Signing

        signing = Signing.from_file(args.signing_key, insecure=args.insecure_key_file)
    diagnosis = repair(paths, args.lock_timeout, args.actor, signing) if args.repair else examine(paths)
    output.document(diagnosis.document(display_path(args.path)))
    if diagnosis.sound:
        return 0
    codes = ", ".join(dict.fromkeys(finding["code"] for finding in diagnosis.findings))
    lost = all(finding.get("recoverable") is False for finding in diagnosis.findings)
    hint = "some of it cannot be repaired; see the findings" if args.repair or lost else "run `clawmem doctor --repair`"
    raise DamagedError(path=display_path(args.path), detail=codes, hint=hint)
