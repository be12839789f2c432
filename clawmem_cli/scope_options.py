"""Whether a command line asks for events: cheap, so that one that does not never pays for them. HOT."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments

ONLY_OF_EVENTS = ("label", "exclude_session", "min_trust", "min_confidence", "as_of", "known_at")


def asks_for_events(args: Arguments) -> bool:
    """Whether any option about events was given."""
    return (
        args.scope is not None
        or getattr(args, "all_scopes", False)
        or not getattr(args, "facts", True)
        or any(getattr(args, name, None) not in (None, ()) for name in ONLY_OF_EVENTS)
    )
