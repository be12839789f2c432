"""The engine: stores, search, hashing contract, signing. Nothing here prints.

The public names load on first use, so that `import clawmem_core` costs nothing and a one-shot command pays only for
what it needs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_core.errors import ClawmemError
    from clawmem_core.model import MemoryEntry, Record, SearchHit, SearchOptions, StoreConfig
    from clawmem_core.store import MemoryStore

__version__ = "0.1.0"

_HOMES = {
    "ClawmemError": "errors",
    "MemoryEntry": "model",
    "Record": "model",
    "SearchHit": "model",
    "SearchOptions": "model",
    "StoreConfig": "model",
    "MemoryStore": "store",
}
__all__ = ["ClawmemError", "MemoryEntry", "MemoryStore", "Record", "SearchHit", "SearchOptions", "StoreConfig"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clawmem_core' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"clawmem_core.{_HOMES[name]}"), name)
