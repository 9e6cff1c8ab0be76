"""Somebody holds rows of the clock's own bookkeeping: no deadline and no message waits for them.

A process that stopped in mid-work, or a person at a console in a transaction that was left open.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from disputes.clock import database_now
from disputes.models import Notification
from escalation import allowance
from escalation.channels import CHANNELS, Outgoing
from escalation.delivery import deliver
from escalation.drain import drain
from escalation.failures import put_off
from escalation.models import DutyTurn, Failure, Heartbeat
from escalation.poller import Poller
from tests.faults.harness import open_due, promotions
from tests.situations import HOUR, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def held(owner: psycopg.Connection, table: str, where: str = "true") -> Iterator[None]:
    """The rows are locked, and whoever locked them stands still."""
    with owner.transaction():
        rows = sql.SQL("SELECT FROM {} WHERE " + where + " FOR UPDATE")  # noqa: S608
        assert owner.execute(rows.format(sql.Identifier(table))).rowcount > 0
        yield


@pytest.fixture
def mailed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Recipients of what left."""
    left: list[str] = []

    class Recorder:
        def send(self, message: Outgoing) -> None:
            left.append(message.recipient)

    monkeypatch.setitem(CHANNELS, "email", Recorder())
    return left


@pytest.mark.parametrize("table", ["escalation_heartbeat", "escalation_dutyturn"])
def test_a_poller_looks_on_without_its_heartbeat_or_turn(
    owner_connection: psycopg.Connection, table: str
) -> None:
    default_ladder()
    poller = Poller(stop=threading.Event(), name="poller@test")
    poller.look()
    assert Heartbeat.objects.exists()
    assert DutyTurn.objects.exists()
    DutyTurn.objects.update(next_at=database_now() - HOUR)
    open_due(3)
    poller = Poller(stop=threading.Event(), name="poller@test")
    with held(owner_connection, table):
        assert poller.look().due == 3


def test_a_failure_that_is_over_and_held_by_somebody_stops_no_promotion(
    owner_connection: psycopg.Connection,
) -> None:
    default_ladder()
    ids = open_due(5)
    put_off(ids[0], error=ValueError("once"), now=database_now() - HOUR)
    with held(owner_connection, "escalation_failure"):
        assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=5)
    assert promotions() == 5
    assert Failure.objects.filter(until__gt=database_now()).count() == 0


def test_one_persons_minute_that_somebody_holds_stops_nobody_elses_mail(
    owner_connection: psycopg.Connection, mailed: list[str]
) -> None:
    default_ladder()
    ada, ben = person("ada", "standard"), person("ben", "standard")
    now = database_now()
    allowance.take(f"user:{ada.pk}", wanted=0, now=now)
    opened(now=now, due_at=now + HOUR)
    with held(owner_connection, "escalation_allowance"):
        deliver()
    assert mailed == [f"user:{ben.pk}"]
    waits = Notification.objects.get(recipient=f"user:{ada.pk}")
    assert (waits.status, waits.attempts) == ("pending", 0)
    assert waits.not_before < database_now() + timedelta(seconds=10)


def test_a_message_that_cannot_be_marked_does_not_stop_the_others(
    owner_connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has left; the claim runs out, and it leaves again under the same key."""
    default_ladder()
    person("ada", "standard")
    now = database_now()
    disputes = [opened(now=now, due_at=now + HOUR) for _ in range(3)]
    first = str(disputes[0].pk)
    locks = held(owner_connection, "disputes_notification", f"dispute_id = '{first}'")
    sent: list[str] = []

    class Holding:
        def send(self, message: Outgoing) -> None:
            if message.dispute_id == first:
                locks.__enter__()
            sent.append(message.dispute_id)

    monkeypatch.setitem(CHANNELS, "email", Holding())
    try:
        deliver()
    finally:
        locks.__exit__(None, None, None)
    assert len(sent) == 3
    states = dict(Notification.objects.values_list("dispute", "status"))
    assert states == {
        d.pk: "sending" if str(d.pk) == first else "sent" for d in map(again, disputes)
    }
