"""Suggestions for names that do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, existing: Sequence[str]) -> str:
    """The names nearest to one that does not exist, for the end of a message; "" where nothing exists."""
    if not existing:
        return ""
    folded = {other.casefold(): other for other in existing}
    close = [folded[found] for found in get_close_matches(name.casefold(), list(folded), 3, 0.5)]
    if close:
        return f"; nearest: {', '.join(close)}"
    return f"; there is: {', '.join(sorted(existing)[:8])}"
