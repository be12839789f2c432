"""Times of a source as seconds since the epoch, UTC."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from clawmem_core.door import MILLISECONDS
from clawmem_migrate.mapping import TIME_UNITS
from clawmem_migrate.refusals import Problem
from clawmem_migrate.vectors import storage_class

_NUMBERS = {int, float}
_PLAIN = {"s", "auto"}
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,30})?")


class TimeReader:
    """Reads one column of times.

    `unit`: s, ms, us or ns since the epoch, `text` (RFC 3339, or what SQLite's date functions write; UTC where no zone
    is given), or `auto`: numbers are seconds, text is text. `format`: a strptime pattern for text. `null`: what NULL
    means, None to refuse it.
    """

    def __init__(self, column: str, unit: str = "s", format: str = "", null: float | None = None) -> None:
        self.column, self.unit, self.format, self.null = column, "text" if format else unit, format, null

    def read(self, values: list[Any]) -> list[float] | None:
        """All times of a batch; None where any has a problem."""
        if self.unit in _PLAIN and set(map(type, values)) <= _NUMBERS:
            try:
                found = [float(value) for value in values]
            except OverflowError:
                return None
            good = all(-MILLISECONDS <= value <= MILLISECONDS for value in found)  # false for NaN
            return found if good else None
        read = [self.one(value) for value in values]
        seconds = [value for value in read if not isinstance(value, Problem)]
        return seconds if len(seconds) == len(read) else None

    def one(self, value: Any) -> float | Problem:
        """One time, or what is wrong with it."""
        if value is None:
            return self.null if self.null is not None else self._refuse("is NULL", "give the row a time")
        if type(value) is str and self.unit in ("text", "auto"):
            return self._text(value)
        if type(value) not in _NUMBERS or self.unit == "text":
            wanted = "text" if self.unit == "text" else "a number"
            return self._refuse(f"is {storage_class(value)}, {wanted} is expected", "set `unit` in a --map FILE")
        try:
            seconds = value / TIME_UNITS.get(self.unit, 1.0)
        except OverflowError:
            seconds = math.inf
        if not math.isfinite(seconds):
            return self._refuse("is not finite", "give the row a time")
        if abs(seconds) > MILLISECONDS:
            return self._refuse(f"is {value:g}, no time in seconds", 'milliseconds? set unit = "ms" in a --map FILE')
        return float(seconds)

    def _text(self, value: str) -> float | Problem:
        try:
            found = datetime.strptime(value, self.format) if self.format else datetime.fromisoformat(value)
        except ValueError:
            if self.unit == "auto" and _NUMBER.fullmatch(value):  # a number that the column's affinity made a text
                return self.one(float(value))
            wanted = self.format or "2026-01-31 12:00:00 or RFC 3339"
            return self._refuse(f"is {value[:40]!r}, no time like {wanted}", "set `format` in a --map FILE")
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()

    def _refuse(self, what: str, fix: str) -> Problem:
        return Problem(self.column, what, fix)
