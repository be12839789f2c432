"""Room in the pipes of a stream, so that both ends work at the same time instead of in turns."""

from __future__ import annotations

import fcntl

ROOM = 1 << 20  # bytes; what Linux lets anybody have


def widen(descriptor: int) -> None:
    """Let a pipe hold ROOM bytes. Anything else, and a pipe that may not be widened, stays as it is."""
    command = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux only
    if command is None:
        return
    try:
        fcntl.fcntl(descriptor, command, ROOM)
    except OSError:
        return  # no pipe, or its owner has too many: slower, nothing else
