"""The AgentMemoryEvent v1 contract: canonical JSON, identities, scope, validation, rendering.

The public names load on first use, so that importing one module of the package does not pay for the others.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_core.contract.canonical import (
        UNDEFINED,
        number_to_string,
        sha256_hex,
        stable_stringify,
        to_fixed3,
    )
    from clawmem_core.contract.identities import (
        create_episode_event,
        create_fact_event,
        episode_event_id,
        fact_event_id,
        hash_scope,
    )
    from clawmem_core.contract.render import bounded_text, format_fenced_memories, format_recalled_memories
    from clawmem_core.contract.scope import assert_memory_scope, build_scope_where, scope_key
    from clawmem_core.contract.validate import validate_event
    from clawmem_core.strict_json import parse_json

_HOMES = {
    "UNDEFINED": ".canonical",
    "assert_memory_scope": ".scope",
    "bounded_text": ".render",
    "build_scope_where": ".scope",
    "create_episode_event": ".identities",
    "create_fact_event": ".identities",
    "episode_event_id": ".identities",
    "fact_event_id": ".identities",
    "format_fenced_memories": ".render",
    "format_recalled_memories": ".render",
    "hash_scope": ".identities",
    "number_to_string": ".canonical",
    "parse_json": "..strict_json",
    "scope_key": ".scope",
    "sha256_hex": ".canonical",
    "stable_stringify": ".canonical",
    "to_fixed3": ".canonical",
    "validate_event": ".validate",
}
__all__ = [
    "UNDEFINED",
    "assert_memory_scope",
    "bounded_text",
    "build_scope_where",
    "create_episode_event",
    "create_fact_event",
    "episode_event_id",
    "fact_event_id",
    "format_fenced_memories",
    "format_recalled_memories",
    "hash_scope",
    "number_to_string",
    "parse_json",
    "scope_key",
    "sha256_hex",
    "stable_stringify",
    "to_fixed3",
    "validate_event",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clawmem_core.contract' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name], __name__), name)
