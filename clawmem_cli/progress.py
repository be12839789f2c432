"""Progress of a stream, shown on stderr where that is a terminal and the data goes elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from clawmem_cli import output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")


def tracked(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """The items, with a bar, or a count where the total is unknown, that goes away at the end."""
    if output.quiet or not os.isatty(2) or os.isatty(1):
        return items
    return _shown(items, description, total)


def _shown(items: Iterable[Item], description: str, total: int | None) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=description)
