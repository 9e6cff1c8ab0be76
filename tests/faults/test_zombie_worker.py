"""A worker that stood still longer than its locks last, and wakes as if nothing had happened."""

import signal

import pytest
from django.db import connection
from pytest_django.fixtures import Settings
from redis import Redis

from disputes import failpoints
from disputes.clock import database_now
from disputes.models import Notification
from disputes.transitions.attempts import IDLE_LIMIT_S
from disputes.transitions.reviewing import acknowledge
from escalation.delivery import deliver
from escalation.drain import drain
from escalation.timeline_keys import keys
from tests.faults.harness import (
    KNOBS,
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    promotions,
    redis_is_in_step,
)
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.processes


# Longer than Postgres lets a transaction stand still, and a poll.
AFTER_THE_IDLE_LIMIT_S = IDLE_LIMIT_S + 60


@pytest.mark.parametrize(
    "point",
    [
        "drain.claimed",
        # With the rows locked and nothing written: nobody else can have them before Postgres
        # ends the session of who stands still.
        pytest.param("promote.selected", marks=pytest.mark.long),
    ],
)
def test_f10_bug_16_a_worker_stopped_for_longer_than_its_locks_changes_nothing_when_it_wakes(
    crew: Crew, redis_client: Redis, point: str
) -> None:
    """Its transaction selects nothing, its writes are fenced, its release is by token."""
    default_ladder()
    person("sam", "senior")
    ids = open_due(10)
    latch = crew.latch()
    zombie = crew.worker("escalations", FAILPOINTS=f"{point}={latch.order}")
    crew.poller()
    crew.wait(latch.somebody_stands_here)
    zombie.signal_all(signal.SIGSTOP)
    crew.worker("escalations")
    crew.wait(lambda: promotions() == len(ids), timeout_s=AFTER_THE_IDLE_LIMIT_S)
    # A third claim, made after the zombie's ran out, holds what the zombie thinks is its own.
    foreign = [f"{keys().lock}{id_}" for id_ in ids]
    for lock in foreign:
        redis_client.set(lock, "foreign", ex=60)
    latch.let_go()
    zombie.signal_all(signal.SIGCONT)
    crew.wait(lambda: zombie.said("escalation.jobs.drain") and zombie.said("Job OK"))
    assert redis_client.mget(foreign) == [b"foreign"] * len(ids)
    assert not zombie.said("escalation.promoted")
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)
    arrived = Notification.objects.filter(event="arrived", tier__slug="senior")
    assert arrived.count() == len(ids)


@pytest.mark.django_db(transaction=True)
def test_bug_16_no_transaction_of_the_clock_or_of_a_person_may_stand_still_for_long(
    settings: Settings,
) -> None:
    """What lets the others go on while somebody is stopped with rows in his hand."""
    settings.ESCALATION = dict(KNOBS)
    default_ladder()
    ada = person("ada", "standard")
    limits: list[str] = []

    def note() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            limits.append(cursor.fetchone()[0])

    open_due(1)
    dispute = opened(now=database_now(), due_at=database_now() + HOUR)
    points = ("promote.selected", "acknowledge.read", "deliver.claiming")
    failpoints.hooks.update(dict.fromkeys(points, note))
    try:
        drain(linger_s=0)
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
        deliver()
    finally:
        for point in points:
            del failpoints.hooks[point]
    assert limits == [f"{IDLE_LIMIT_S}s"] * 3
