"""`clawmem hash`: the id of an episode, a fact or a participant scope, and what it is the hash of. Stores nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli import jsonin, output
from clawmem_core.contract.canonical import sha256_hex
from clawmem_core.contract.identities import episode_canonical, fact_canonical, scope_canonical
from clawmem_core.errors import InvalidInputError, UsageError

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Print {"id", "canonical"} of the object on stdin or in --json."""
    if args.kind is None:
        raise UsageError(detail="what is it the hash of?", hint="give --kind episode, fact or scope")
    canonical = _KINDS[args.kind](jsonin.read_object(args.json))
    output.document({"id": sha256_hex(canonical), "canonical": canonical})
    return 0


def _scope(members: dict[str, Any]) -> str:
    """What a participant's hash is the hash of, from {"parts": [text or null, ...], "salt": text}."""
    unknown = members.keys() - {"parts", "salt"}
    if unknown:
        raise InvalidInputError(field=min(unknown), detail="is no part of a scope's hash")
    parts, salt = members.get("parts"), members.get("salt", "")
    if not isinstance(parts, list) or not all(part is None or isinstance(part, str) for part in parts):
        raise InvalidInputError(field="parts", detail="must be an array of texts")
    if not isinstance(salt, str):
        raise InvalidInputError(field="salt", detail="must be a text")
    return scope_canonical(parts, salt)


_KINDS = {"episode": episode_canonical, "fact": fact_canonical, "scope": _scope}
