"""The scope of a memory: who may read it. Five fields, compared by equality, all of them, always.

Invariants: fails closed. A scope with a field missing, blank or of another type is refused, so that a filter can never
turn broader by losing a member on the way; values are compared verbatim, there is no order between them. HOT.
"""

from __future__ import annotations

from clawmem_core.contract.canonical import canonical_text, js_trim, sha256_hex
from clawmem_core.errors import ScopeError, ScopeMismatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from clawmem_core.contract.canonical import Undefined

SCOPE_FIELDS: Final = ("agentId", "profileId", "privacyScope", "participantScopeHash", "sandboxEligible")
PRIVACY_SCOPES: Final = ("private", "shared")


def assert_memory_scope(scope: Mapping[str, Any]) -> None:
    """Raise ScopeError unless all five scope fields are there and usable; extra members are ignored.

    The three text fields must not be blank after JavaScript's trim. The ancestor stops there; here privacyScope must
    also be `private` or `shared` and sandboxEligible a boolean, since either one missing widens a query.
    """
    for name in ("agentId", "profileId", "participantScopeHash"):
        value = scope.get(name)
        if not isinstance(value, str) or not js_trim(value):
            raise ScopeError(detail=f"{name} is required for a scoped memory operation")
    if scope.get("privacyScope") not in PRIVACY_SCOPES:
        raise ScopeError(detail="privacyScope is required for a scoped memory operation: private or shared")
    if not isinstance(scope.get("sandboxEligible"), bool):
        raise ScopeError(detail="sandboxEligible is required for a scoped memory operation: true or false")


def scope_of(members: Mapping[str, Any]) -> dict[str, Any]:
    """The five scope fields of an event or scope file, values untouched. Raises ScopeError as `assert_memory_scope`."""
    assert_memory_scope(members)
    return {name: members[name] for name in SCOPE_FIELDS}


def build_scope_where(
    scope: Mapping[str, Any],
    *,
    exclude_session_id: str | Undefined | None = None,
    active_only: bool | Undefined | None = False,
) -> dict[str, Any]:
    """The filter of a scoped read: the five fields, the session to leave out if one is given, `active` if asked.

    Raises ScopeError as `assert_memory_scope`.
    """
    where = scope_of(scope)
    if exclude_session_id:
        where["externalSessionId"] = {"$ne": exclude_session_id}
    if active_only:
        where["active"] = True
    return where


def scope_key(scope: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of the five fields, 64 hex digits: equal exactly when all five are.

    Raises ScopeError as `assert_memory_scope`.
    """
    return sha256_hex(canonical_text(scope_of(scope)))


def require_same_scope(event: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
    """Raise ScopeMismatchError, naming the first field, if the event claims another scope than the one in force."""
    assert_memory_scope(scope)
    for name in SCOPE_FIELDS:
        if type(event.get(name)) is not type(scope[name]) or event[name] != scope[name]:
            raise ScopeMismatchError(member=name)
