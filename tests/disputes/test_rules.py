"""What a passed deadline means, and when to look: pure decisions."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disputes.rules import (
    UNIX_EPOCH,
    Step,
    decide_passed_deadline,
    look_at,
    microseconds,
    promoted_to,
)

NOON = datetime(2026, 6, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
INSTANTS = st.datetimes(datetime(1990, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("status", "position", "step", "to"),
    [
        ("open", 1, Step.NEXT_TIER, 2),
        ("open", 2, Step.NEXT_TIER, 3),
        ("open", 3, Step.EXHAUST, 3),
        ("acknowledged", 1, Step.END_HOLD, 1),
        ("paused", 2, Step.END_PAUSE, 2),
        ("proposed", 3, Step.END_PROPOSAL, 3),
    ],
)
def test_a_passed_deadline_means_one_thing_by_status(status, position, step, to):
    decision = decide_passed_deadline(status=status, position=position, tiers=3)
    assert (decision.step, decision.position) == (step, to)


def test_a_resolved_dispute_has_no_deadline_to_pass():
    with pytest.raises(ValueError, match="resolved"):
        decide_passed_deadline(status="resolved", position=1, tiers=3)


def test_the_clock_looks_at_the_latest_of_deadline_parking_and_pause():
    assert look_at(None, NOON, NOON) is None
    assert look_at(NOON, None, None) == microseconds(NOON)
    assert look_at(NOON, NOON + HOUR, None) == microseconds(NOON + HOUR)
    assert look_at(NOON, NOON + HOUR, NOON + 2 * HOUR) == microseconds(NOON + 2 * HOUR)
    assert look_at(NOON, NOON - HOUR, NOON - HOUR) == microseconds(NOON)


@given(INSTANTS)
def test_microseconds_are_exact(instant):
    assert UNIX_EPOCH + timedelta(microseconds=microseconds(instant)) == instant
    assert microseconds(instant + timedelta(microseconds=1)) == microseconds(instant) + 1


def test_the_outcome_names_the_tier():
    assert promoted_to("second-line") == "PROMOTED_TO_SECOND_LINE"
