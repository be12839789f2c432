"""Scope files: the only authority on whose memories a command may touch. HOT."""

from __future__ import annotations

from clawmem_core.contract.scope import scope_of
from clawmem_core.contract.validate import has_control_characters, is_hash
from clawmem_core.errors import InvalidInputError, ScopeError
from clawmem_core.storage import fs
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_SCOPE_FILE = 64 << 10


def read_scope(path: str) -> dict[str, Any]:
    """The five fields in a file: an object that holds them, or what `scope derive` printed if it allows access.

    Raises InvalidInputError, InvalidJsonError, DuplicateKeyError, ScopeError (a field missing, or access denied).
    """
    data = fs.read_all(path, MAX_SCOPE_FILE + 1)
    if data is None:
        raise InvalidInputError(field="--scope", detail=f"there is no file {path}")
    if len(data) > MAX_SCOPE_FILE:
        raise InvalidInputError(field="--scope", detail=f"{path} is longer than {MAX_SCOPE_FILE} bytes")
    found = parse_json(data, refuse_duplicates=True)
    if isinstance(found, dict) and "reason" in found and "scope" in found:
        if found.get("read") is not True or found.get("write") is not True:
            raise ScopeError(detail=f"the scope file denies access: {found['reason']}")
        found = found["scope"]
    if not isinstance(found, dict):
        raise ScopeError(detail="a scope file holds one JSON object with five fields")
    scope = scope_of(found)
    for name in ("agentId", "profileId"):
        if has_control_characters(scope[name]):
            raise ScopeError(detail=f"{name} must not hold control characters")
    if not is_hash(scope["participantScopeHash"]):
        raise ScopeError(detail="participantScopeHash must be 64 lower-case hexadecimal digits")
    return scope
