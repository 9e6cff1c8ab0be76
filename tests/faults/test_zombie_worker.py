"""A worker that stood still longer than its locks last, and wakes as if nothing had happened."""

import signal

import pytest
from redis import Redis

from disputes.models import Notification
from escalation.timeline_keys import keys
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    promotions,
    redis_is_in_step,
)
from tests.situations import default_ladder, person

pytestmark = pytest.mark.processes


def test_f10_a_worker_stopped_for_longer_than_its_locks_changes_nothing_when_it_wakes(
    crew: Crew, redis_client: Redis
) -> None:
    """Its transaction selects nothing, its writes are fenced, its release is by token."""
    default_ladder()
    person("sam", "senior")
    ids = open_due(10)
    latch = crew.latch()
    zombie = crew.worker("escalations", FAILPOINTS=f"drain.claimed={latch.order}")
    crew.poller()
    crew.wait(latch.somebody_stands_here)
    zombie.signal_all(signal.SIGSTOP)
    crew.worker("escalations")
    crew.wait(lambda: promotions() == len(ids))
    # A third claim, made after the zombie's ran out, holds what the zombie thinks is its own.
    foreign = [f"{keys().lock}{id_}" for id_ in ids]
    for lock in foreign:
        redis_client.set(lock, "foreign", ex=60)
    latch.let_go()
    zombie.signal_all(signal.SIGCONT)
    crew.wait(lambda: zombie.said("escalation.jobs.drain") and zombie.said("Job OK"))
    assert redis_client.mget(foreign) == [b"foreign"] * len(ids)
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)
    arrived = Notification.objects.filter(event="arrived", tier__slug="senior")
    assert arrived.count() == len(ids)
