"""RFC 3339 times against the standard library and the calendar's corners."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.errors import InvalidTimeError
from clawmem_core.times import format_rfc3339, parse_rfc3339

zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones)


@given(moments)
def test_parse_agrees_with_datetime(moment: datetime) -> None:
    """Any date, zone and microsecond gives the seconds that datetime gives."""
    assert moment.timestamp() == pytest.approx(parse_rfc3339(moment.isoformat()), rel=0, abs=2e-5)


@given(st.integers(-62_167_219_200, 253_402_300_799))
def test_whole_seconds_round_trip(seconds: int) -> None:
    """Every second of the years 0000 to 9999 comes back as it was."""
    assert seconds == parse_rfc3339(format_rfc3339(seconds))


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_format_agrees_with_datetime(moment: datetime) -> None:
    """Printed times are those of datetime, with six decimals or none."""
    aware = moment.replace(tzinfo=UTC)
    assert aware.isoformat().replace("+00:00", "Z") == format_rfc3339(aware.timestamp())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-08-18t09:30:00.25z", 1_787_045_400.25),
        ("2026-08-18 09:30:00+05:30", 1_787_025_600.0),
        ("2026-08-18T23:59:60Z", 1_787_097_600.0),
        ("2026-08-19T01:59:60+02:00", 1_787_097_600.0),
        ("2000-02-29T00:00:00Z", 951_782_400.0),
        ("0000-01-01T00:00:00Z", -62_167_219_200.0),
        ("1970-01-01T00:00:00." + "0" * 40 + "Z", 0.0),
    ],
)
def test_accepted(text: str, seconds: float) -> None:
    """Lower case, a space, offsets, fractions and leap seconds are RFC 3339."""
    assert seconds == parse_rfc3339(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-08-18",
        "2026-08-18T00:00:00",
        "2026-08-18T24:00:00Z",
        "2026-02-30T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-08-18T00:60:00Z",
        "2026-08-18T00:00:60Z",
        "2026-08-18T23:59:61Z",
        "2026-08-18T23:59:60+01:00",
        "2026-08-18T00:00:00.Z",
        "2026-08-18T00:00:00.+01:00",
        "2026-08-18T00:00:00+0530",
        "2026-08-18T00:00:00+24:00",
        "2026-08-18T00:00:00+05:60",
        "2026-08-18T00:00:00Z\n",
        " 2026-08-18T00:00:00Z",
        "2026-08-18\u00a000:00:00Z",
        "２026-08-18T00:00:00Z",
        "2026-08-18T00:00:00ZZ",
        "2026-08-18T00:00:00.1ZZ",
        "2026-08-18T00:00:00." + "1" * 60 + "Z",
        "2026-08-18T00:00:0-Z",
        "+026-08-18T00:00:00Z",
        "2026/08/18T00:00:00Z",
    ],
)
def test_refused(text: str) -> None:
    """No zone, no such day, other digits or anything around it: refused, naming the field."""
    with pytest.raises(InvalidTimeError, match="observedAt: must be an RFC 3339"):
        parse_rfc3339(text, field="observedAt")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -62_167_219_201.0, 253_402_300_800.0])
def test_times_that_have_no_text(seconds: float) -> None:
    """What no four-digit year can say is refused."""
    with pytest.raises(InvalidTimeError):
        format_rfc3339(seconds)


def test_rounding_carries() -> None:
    """A fraction that rounds up to a whole second carries."""
    assert format_rfc3339(59.9999999) == "1970-01-01T00:01:00Z"
    assert format_rfc3339(-0.5) == "1969-12-31T23:59:59.500000Z"


def test_a_number_is_no_text() -> None:
    """A value of another type is refused, not a crash."""
    with pytest.raises(InvalidTimeError):
        parse_rfc3339(5)  # type: ignore[arg-type]
