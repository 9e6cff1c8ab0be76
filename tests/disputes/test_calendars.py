"""From a span to a deadline: exact elapsed time, clipped before what is lost, never past."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disputes.calendars import (
    SHORTEST_FRESH_SPAN,
    external_target,
    given_deadline,
    plain_deadline,
    span_deadline,
)

NOON = datetime(2026, 6, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = 24 * HOUR
HOURS = st.integers(-1000, 1000).map(lambda hours: hours * HOUR)


def deadline(*, start=NOON, span=2 * HOUR, external=None, margin=DAY, now=NOON):
    return span_deadline(start=start, span=span, external_due_at=external, margin=margin, now=now)


def test_a_span_is_elapsed_time():
    made = deadline()
    assert (made.due_at, made.flags, made.explanation["rule"]) == (NOON + 2 * HOUR, (), "span")


@pytest.mark.parametrize("day", [(2026, 3, 28), (2026, 10, 24)])
def test_f53_bug_49_a_day_over_a_change_of_clocks_is_86400_seconds(day):
    start = datetime(*day, 12, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)
    made = deadline(start=start, span=DAY, now=start)
    assert (made.due_at - start).total_seconds() == 86_400


def test_it_is_clipped_to_the_margin_before_the_external_deadline():
    made = deadline(span=30 * DAY, external=NOON + 10 * DAY)
    assert made.due_at == NOON + 9 * DAY
    assert made.explanation["external_due_at"] == "2026-07-06T12:00:00Z"


@pytest.mark.parametrize(
    ("remaining", "target"),
    [(72 * HOUR, 48 * HOUR), (50 * HOUR, 45 * HOUR), (5 * HOUR, 4 * HOUR), (HOUR, 0 * HOUR)],
)
def test_the_margin_shrinks_with_what_remains(remaining, target):
    assert external_target(NOON + remaining, margin=DAY, now=NOON) == NOON + target


@pytest.mark.parametrize(
    ("span", "external", "due", "flags"),
    [
        (2 * HOUR, NOON + HOUR, NOON + 2 * HOUR, ("late_on_arrival",)),
        (30 * DAY, NOON + HOUR, NOON + SHORTEST_FRESH_SPAN, ("late_on_arrival",)),
        (30 * DAY, NOON, NOON + SHORTEST_FRESH_SPAN, ("external_deadline_past",)),
    ],
)
def test_what_cannot_be_kept_any_more_becomes_a_short_fresh_span(span, external, due, flags):
    made = deadline(span=span, external=external)
    assert (made.due_at, made.flags, made.explanation["rule"]) == (due, flags, "fresh")


@given(start=HOURS, span=st.integers(1, 5000), external=st.none() | HOURS)
def test_it_is_never_past_and_never_later_than_the_span_or_the_fresh_one(start, span, external):
    span = span * HOUR
    lost = None if external is None else NOON + external
    made = deadline(start=NOON + start, span=span, external=lost)
    assert NOON < made.due_at <= max(NOON + start + span, NOON + min(span, SHORTEST_FRESH_SPAN))
    assert bool(made.flags) == (made.explanation["rule"] == "fresh")


def test_a_given_deadline_is_taken_as_it_is_even_when_past():
    assert given_deadline(NOON - DAY).due_at == NOON - DAY


def test_the_end_of_a_hold_is_start_plus_span():
    made = plain_deadline("hold", start=NOON, span=HOUR)
    assert made.due_at == NOON + HOUR
    assert made.explanation == {"rule": "hold", "span_s": 3600, "start": "2026-06-26T12:00:00Z"}
