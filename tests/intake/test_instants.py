"""Owns the proof that times of records are instants in UTC or refused."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disputes.intake.errors import Unreadable
from disputes.intake.instants import (
    TimeRules,
    end_of_day,
    parse_date,
    parse_epoch_deadline_s,
    parse_epoch_s,
    parse_instant,
    start_of_day,
)
from tests.intake.samples import NOW, UTC_RULES

BERLIN = TimeRules.for_zone("Europe/Berlin", now=NOW)
NEW_YORK = TimeRules.for_zone("America/New_York", now=NOW)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-05-20T23:59:59Z", datetime(2026, 5, 20, 23, 59, 59, tzinfo=UTC)),
        ("2026-05-20T23:59:59+02:00", datetime(2026, 5, 20, 21, 59, 59, tzinfo=UTC)),
        ("2026-05-20 23:59:59 -0430", datetime(2026, 5, 21, 4, 29, 59, tzinfo=UTC)),
        ("2026-05-20T10:00+01", datetime(2026, 5, 20, 9, 0, tzinfo=UTC)),
        ("2026-05-20T10:00:00.1234567Z", datetime(2026, 5, 20, 10, 0, 0, 123456, tzinfo=UTC)),
        ("2026-05-20T10:00:00.999999999Z", datetime(2026, 5, 20, 10, 0, 0, 999999, tzinfo=UTC)),
        ("2026-05-20T10:00:00.5Z", datetime(2026, 5, 20, 10, 0, 0, 500000, tzinfo=UTC)),
    ],
)
def test_an_aware_time_becomes_an_instant_in_utc(text, instant):
    parsed = parse_instant(text, rules=UTC_RULES)
    assert parsed == instant
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-20T24:00:00Z", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "yesterday", "",
        "2026-05-20T10:60:00Z", "2026-05-20T10:00:60Z", "0001-01-01T00:00:00Z", "1779271199",
        "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-18:00", "0001-01-01T00:00:00+18:00",
        "1999-12-31T23:59:59Z", "2036-12-31T00:00:00Z", "1779271199000", "٢٠٢٦-05-20T10:00:00Z",
        "2026-05-20T10:00:00+19:00", "2026-05-20T10:00:00+10:75", "2026-5-2T10:00:00Z",
        "2000-01-01T00:00:00+01:00",
    ],
)  # fmt: skip
def test_f54_an_impossible_or_implausible_time_is_refused(text):
    with pytest.raises(Unreadable):
        parse_instant(text, rules=UTC_RULES)


def test_a_time_without_zone_is_refused_unless_the_zone_of_the_file_is_stated():
    with pytest.raises(Unreadable, match="no time zone"):
        parse_instant("2026-05-20T12:00:00", rules=UTC_RULES)
    assert parse_instant("2026-05-20T12:00:00", rules=BERLIN).hour == 10


def test_a_wall_clock_time_that_was_skipped_is_refused():
    with pytest.raises(Unreadable, match="does not exist"):
        parse_instant("2026-03-29T02:30:00", rules=BERLIN)


def test_a_wall_clock_time_that_came_twice_is_the_earlier_one():
    assert parse_instant("2025-10-26T02:30:00", rules=BERLIN).hour == 0


def test_a_bare_date_ends_and_starts_in_the_zone_of_the_file():
    day = date(2026, 3, 8)
    assert end_of_day(day, rules=UTC_RULES) == datetime(2026, 3, 8, 23, 59, 59, tzinfo=UTC)
    assert end_of_day(day, rules=NEW_YORK) == datetime(2026, 3, 9, 3, 59, 59, tzinfo=UTC)
    assert start_of_day(day, rules=NEW_YORK) == datetime(2026, 3, 8, 5, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-05-01", date(2026, 5, 1)),
        ("9/24/19", date(2019, 9, 24)),
        ("09/04/2019", date(2019, 9, 4)),
        ("2/29/20", date(2020, 2, 29)),
    ],
)
def test_bare_dates_are_iso_or_american(text, day):
    assert parse_date(text, rules=UTC_RULES) == day


@pytest.mark.parametrize(
    "text",
    ["24/9/19", "2/29/19", "9/24/1919", "9/24/99", "2026-02-30", "0001-01-01", "", "9-24-19"],
)
def test_impossible_dates_are_refused(text):
    with pytest.raises(Unreadable):
        parse_date(text, rules=UTC_RULES)


def test_epoch_seconds_are_instants():
    assert parse_epoch_s(1626566399, rules=UTC_RULES) == datetime(
        2021, 7, 17, 23, 59, 59, tzinfo=UTC
    )
    assert parse_epoch_s(1234567890, rules=UTC_RULES).year == 2009


@pytest.mark.parametrize(
    "value", [1626566399000, 0, -1, 10**30, "1626566399", 1.5, True, None, 946684799]
)
def test_milliseconds_and_other_implausible_numbers_are_refused(value):
    with pytest.raises(Unreadable):
        parse_epoch_s(value, rules=UTC_RULES)


def test_null_and_zero_mean_that_there_is_no_deadline():
    assert parse_epoch_deadline_s(None, rules=UTC_RULES) is None
    assert parse_epoch_deadline_s(0, rules=UTC_RULES) is None
    with pytest.raises(Unreadable):
        parse_epoch_deadline_s(False, rules=UTC_RULES)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "America", "\x00", "x" * 500])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(Unreadable, match="unknown time zone"):
        TimeRules.for_zone(zone, now=NOW)


PLAUSIBLE = st.datetimes(datetime(2000, 1, 2), datetime(2036, 5, 30), timezones=st.just(UTC))


@given(PLAUSIBLE, st.integers(-18 * 60, 18 * 60))
def test_an_instant_survives_being_written_in_any_offset(instant, offset_minutes):
    local = instant.astimezone(timezone(timedelta(minutes=offset_minutes)))
    assert parse_instant(local.isoformat(), rules=UTC_RULES) == instant


@given(st.text(max_size=40) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+Z-]{0,20}"))
def test_no_text_makes_anything_but_an_instant_or_a_refusal(text):
    for rules in (UTC_RULES, BERLIN):
        try:
            instant = parse_instant(text, rules=rules)
        except Unreadable:
            continue
        assert instant.tzinfo is UTC
        assert 2000 <= instant.year <= 2036


@given(st.integers() | st.floats() | st.text() | st.none())
def test_no_number_makes_anything_but_an_instant_or_a_refusal(value):
    try:
        assert 2000 <= parse_epoch_s(value, rules=UTC_RULES).year <= 2036
    except Unreadable:
        pass
