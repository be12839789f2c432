"""Scope: all five fields, fail closed."""

from __future__ import annotations

from typing import Any

import pytest

from clawmem_core.contract import scope
from clawmem_core.contract.canonical import JS_WHITESPACE, UNDEFINED
from clawmem_core.errors import ScopeError, ScopeMismatchError

SCOPE: dict[str, Any] = {
    "agentId": "main",
    "profileId": "default",
    "privacyScope": "private",
    "participantScopeHash": "a" * 64,
    "sandboxEligible": False,
}
OTHERS = {
    "agentId": "other",
    "profileId": "other",
    "privacyScope": "shared",
    "participantScopeHash": "b" * 64,
    "sandboxEligible": True,
}


@pytest.mark.parametrize("name", SCOPE)
@pytest.mark.parametrize("value", [None, UNDEFINED, "", 5, [], "missing"])
def test_every_field_fails_closed(name: str, value: object) -> None:
    """No filter and no key without each of the five, whatever stands in its place."""
    broken = {**SCOPE, name: value}
    if value == "missing":
        del broken[name]
    for function in (scope.assert_memory_scope, scope.build_scope_where, scope.scope_key, scope.scope_of):
        with pytest.raises(ScopeError, match=name):
            function(broken)


@pytest.mark.parametrize("name", ["agentId", "profileId", "participantScopeHash"])
def test_blank_is_missing(name: str) -> None:
    """Only whitespace, in JavaScript's sense, is no value."""
    with pytest.raises(ScopeError, match=name):
        scope.assert_memory_scope({**SCOPE, name: JS_WHITESPACE})


@pytest.mark.parametrize("name", SCOPE)
def test_key_changes_with_each_field(name: str) -> None:
    """Two scopes share a key only if all five fields are equal; other members do not count."""
    assert scope.scope_key(SCOPE) != scope.scope_key({**SCOPE, name: OTHERS[name]})
    assert scope.scope_key(SCOPE) == scope.scope_key({**SCOPE, "extra": 1})


def test_filter_has_the_five_fields_and_the_options() -> None:
    """The filter is exactly the scope, plus what was asked for; extra members cannot override it."""
    assert scope.build_scope_where({**SCOPE, "active": False, "$or": []}) == SCOPE
    where = scope.build_scope_where(SCOPE, exclude_session_id="s", active_only=True)
    assert {**SCOPE, "externalSessionId": {"$ne": "s"}, "active": True} == where


@pytest.mark.parametrize("name", SCOPE)
def test_event_of_another_scope_is_named(name: str) -> None:
    """The first field that differs, or is missing, is named."""
    scope.require_same_scope({**SCOPE, "text": "x"}, SCOPE)
    with pytest.raises(ScopeMismatchError, match=name):
        scope.require_same_scope({**SCOPE, name: OTHERS[name]}, SCOPE)
    with pytest.raises(ScopeMismatchError, match=name):
        scope.require_same_scope({key: value for key, value in SCOPE.items() if key != name}, SCOPE)


def test_zero_is_not_false() -> None:
    """A number that equals the boolean is another scope."""
    with pytest.raises(ScopeMismatchError):
        scope.require_same_scope({**SCOPE, "sandboxEligible": 0}, SCOPE)
