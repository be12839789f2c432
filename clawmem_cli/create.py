"""`clawmem create`: a new, empty store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawmem_cli import output
from clawmem_cli.parsing import display_path
from clawmem_cli.writing import signing_of, tell
from clawmem_core import door
from clawmem_core.model import StoreConfig
from clawmem_core.storage.checkpoint import create_store
from clawmem_core.storage.paths import StorePaths

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments

#: --tokenizer names the kind; a store records the version it was made with
_TOKENIZERS = {"english": "english-1", "plain": "plain-1"}


def run(args: Arguments) -> int:
    """Make the store. Raises ExistsError where a store or a log already lies."""
    config = StoreConfig(
        agent_id=args.agent_id,
        dim=args.dim,
        wal_enabled=args.wal,
        float16=not args.f32,
        quantized_index=not args.f32_index,
        embedder=args.embedder,
        tokenizer=_TOKENIZERS[args.tokenizer],
        compression=args.compression,
    )
    warnings = create_store(StorePaths(args.path), door.config(config), signing=signing_of(args))
    output.document(
        {
            "status": "created",
            "path": display_path(args.path),
            "agent_id": args.agent_id,
            "embedding_dim": args.dim,
            "wal_enabled": args.wal,
            "count": 0,
        }
    )
    tell("create", warnings)
    return 0
