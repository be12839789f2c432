"""Progress of a stream, shown on stderr where that is a terminal and the data goes elsewhere."""

from __future__ import annotations

import os

from clawmem_cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeVar

    Block = TypeVar("Block", bound=Sequence[object])


def tracked(blocks: Iterable[Block], description: str, total: int | None = None) -> Iterable[Block]:
    """The blocks, with a bar, or a count where the total is unknown, of their items that goes away at the end."""
    if output.quiet or not os.isatty(2) or os.isatty(1):
        return blocks
    return _shown(blocks, description, total)


def _shown(blocks: Iterable[Block], description: str, total: int | None) -> Iterator[Block]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        for block in blocks:
            yield block
            progress.advance(task, len(block))
