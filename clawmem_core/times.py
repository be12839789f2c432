"""RFC 3339 times to seconds since the epoch and back.

Invariants: a text time always carries a zone; seconds are UTC, float64, without leap seconds (23:59:60 is the second
after 23:59:59, as POSIX counts); the calendar is proleptic Gregorian, years 0000 to 9999. HOT: no `datetime`.
Sources: RFC 3339 § 5.6 (the separator may be `T`, `t` or a space, the zone `Z`, `z` or an offset with a colon),
H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", days_from_civil and civil_from_days.
"""

from __future__ import annotations

from clawmem_core.errors import InvalidTimeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_MAX_LENGTH: Final = 64
_DAY: Final = 86_400
_DAYS_BEFORE_EPOCH: Final = 719_468  # from 0000-03-01 to 1970-01-01
_EARLIEST: Final = -62_167_219_200  # 0000-01-01T00:00:00Z
_END: Final = 253_402_300_800  # 10000-01-01T00:00:00Z
_MONTH_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_rfc3339(text: str, *, field: str = "time") -> float:
    """Seconds since the epoch of an RFC 3339 date-time; `field` names the value in the error.

    Raises InvalidTimeError for anything else: a missing zone, 24:00, 30 February, a leap second that is not the last
    second of a UTC day.
    """
    if not isinstance(text, str) or not 20 <= len(text) <= _MAX_LENGTH:
        raise _refused(field)
    if text[4] != "-" or text[7] != "-" or text[10] not in "Tt " or text[13] != ":" or text[16] != ":":
        raise _refused(field)
    year, month, day = _digits(text[:4], field), _digits(text[5:7], field), _digits(text[8:10], field)
    hour, minute, second = _digits(text[11:13], field), _digits(text[14:16], field), _digits(text[17:19], field)
    fraction, offset = _fraction_and_offset(text[19:], field)
    if not (1 <= month <= 12 and 1 <= day <= _days_in_month(year, month) and hour <= 23 and minute <= 59):
        raise _refused(field)
    whole = (_days_from_civil(year, month, day) * 24 + hour) * 3600 + minute * 60 + second - offset
    if second > 60 or (second == 60 and whole % _DAY != 0):
        raise _refused(field)
    return whole + fraction


def format_rfc3339(seconds: float) -> str:
    """The time as RFC 3339 in UTC with `Z`; six decimals when it is no whole second, rounded to the microsecond.

    Raises InvalidTimeError when it is not finite or outside the years 0000 to 9999.
    """
    if not _EARLIEST <= seconds < _END:
        raise InvalidTimeError(field="time", detail="outside the years 0000 to 9999")
    whole = int(seconds // 1)
    micros = round((seconds - whole) * 1_000_000)
    if micros == 1_000_000:
        whole, micros = whole + 1, 0
    days, rest = divmod(whole, _DAY)
    year, month, day = _civil_from_days(days)
    tail = f".{micros:06d}Z" if micros else "Z"
    return f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}{tail}"


def _refused(field: str) -> InvalidTimeError:
    return InvalidTimeError(field=field, detail="must be an RFC 3339 time with a zone, such as 2026-08-18T09:30:00Z")


def _digits(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _refused(field)
    return int(text)


def _fraction_and_offset(rest: str, field: str) -> tuple[float, int]:
    """The fraction of a second and the zone's offset in seconds, from what follows hh:mm:ss."""
    fraction = 0.0
    if rest[0] == ".":
        decimals = rest[1:].rstrip("Zz") if rest[-1] in "Zz" else rest[1:-6]
        if not decimals:
            raise _refused(field)
        _digits(decimals, field)
        fraction = float(f"0.{decimals}")
        rest = rest[1 + len(decimals) :]
    if rest in ("Z", "z"):
        return fraction, 0
    if len(rest) != 6 or rest[0] not in "+-" or rest[3] != ":":
        raise _refused(field)
    hours, minutes = _digits(rest[1:3], field), _digits(rest[4:6], field)
    if hours > 23 or minutes > 59:
        raise _refused(field)
    offset = hours * 3600 + minutes * 60
    return fraction, -offset if rest[0] == "-" else offset


def _days_in_month(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _MONTH_LENGTHS[month - 1]


def _days_from_civil(year: int, month: int, day: int) -> int:
    shifted = year - (month <= 2)  # years that begin on 1 March put the leap day last
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _DAYS_BEFORE_EPOCH


def _civil_from_days(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + _DAYS_BEFORE_EPOCH, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day
