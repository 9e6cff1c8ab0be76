"""A promotion that fails for a reason of its own is put off, longer each time, and never hidden."""

import logging
import threading
from datetime import timedelta

import pytest

from disputes.clock import database_now
from disputes.models import Dispute
from escalation.failures import forget, left_out, put_off
from escalation.models import Failure
from tests.races.gates import Background
from tests.situations import HOUR, default_ladder, opened

pytestmark = pytest.mark.django_db(transaction=True)

CHOKED = ValueError("choked")


@pytest.fixture
def dispute() -> Dispute:
    default_ladder()
    return opened()


def test_each_failure_waits_twice_as_long_until_the_dispute_is_parked(
    dispute: Dispute, settings
) -> None:
    settings.ESCALATION = {"max_attempts": 4}
    now = database_now()
    waits = []
    for _ in range(5):
        failure = put_off(dispute.pk, error=CHOKED, now=now)
        waits.append((failure.until - now, failure.parked_at is not None))
    seconds = [timedelta(seconds=s) for s in (10, 20, 40)]
    assert waits == [*((s, False) for s in seconds), (HOUR, True), (HOUR, True)]


def test_the_first_failure_and_the_first_parking_are_remembered(dispute: Dispute, settings) -> None:
    settings.ESCALATION = {"max_attempts": 2}
    first = database_now()
    for minutes in range(4):
        failure = put_off(dispute.pk, error=CHOKED, now=first + timedelta(minutes=minutes))
    assert failure.first_at == first
    assert failure.last_at == first + timedelta(minutes=3)
    assert failure.parked_at == first + timedelta(minutes=1)


def test_no_pause_is_longer_than_an_hour(dispute: Dispute, settings) -> None:
    settings.ESCALATION = {"max_attempts": 100}
    now = database_now()
    pauses = [put_off(dispute.pk, error=CHOKED, now=now).until - now for _ in range(30)]
    assert max(pauses) == HOUR


@pytest.mark.parametrize("words", ["x" * 5000, "NUL \x00 inside", "ü" * 600])
def test_any_reason_can_be_stored(dispute: Dispute, words: str) -> None:
    put_off(dispute.pk, error=ValueError(words), now=database_now())
    reason = Failure.objects.get().reason
    assert reason.startswith("ValueError: ")
    assert len(reason) <= 500


def test_parking_is_an_error_in_the_log_with_its_reason(
    dispute: Dispute, caplog: pytest.LogCaptureFixture, settings
) -> None:
    settings.ESCALATION = {"max_attempts": 1}
    with caplog.at_level(logging.ERROR):
        put_off(dispute.pk, error=CHOKED, now=database_now())
    (record,) = [r for r in caplog.records if r.message == "escalation.parked"]
    assert (record.dispute_id, record.reason) == (str(dispute.pk), "ValueError: choked")


def test_it_is_left_out_until_the_very_instant(dispute: Dispute) -> None:
    other = opened()
    failure = put_off(dispute.pk, error=CHOKED, now=database_now())
    just_before = failure.until - timedelta(microseconds=1)
    assert left_out([dispute.pk, other.pk], now=just_before) == {dispute.pk}
    assert left_out([dispute.pk, other.pk], now=failure.until) == set()


def test_forgetting_lets_it_be_tried_at_once(dispute: Dispute) -> None:
    put_off(dispute.pk, error=CHOKED, now=database_now())
    assert forget([dispute.pk]) == 1
    assert left_out([dispute.pk], now=database_now()) == set()
    assert forget([dispute.pk]) == 0


def test_workers_that_fail_at_one_instant_are_all_counted(dispute: Dispute, settings) -> None:
    settings.ESCALATION = {"max_attempts": 100}
    start = threading.Barrier(5)

    def fail() -> None:
        start.wait(10)
        put_off(dispute.pk, error=CHOKED, now=database_now())

    for each in [Background(fail) for _ in range(5)]:
        each.result()
    assert Failure.objects.get().attempts == 5
