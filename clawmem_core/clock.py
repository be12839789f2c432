"""The only place that reads time and randomness, so that tests can hold both still.

Invariant: no other module calls `time.*`, `os.urandom` or `random`. Tests replace the module attributes.
"""

from __future__ import annotations

import os
import time


def now() -> float:
    """Seconds since the epoch, UTC."""
    return time.time()


def now_us() -> int:
    """Whole microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


def monotonic() -> float:
    """Seconds of a clock that never goes back; for deadlines only."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait. Used by lock and reader retries only."""
    time.sleep(seconds)


def random_bytes(count: int) -> bytes:
    """`count` bytes from the operating system's generator."""
    return os.urandom(count)
