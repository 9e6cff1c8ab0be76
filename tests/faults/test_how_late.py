"""How late a promotion is once a fault is over: no later than a lock and two polls.

Long, because a busy machine adds to what is measured here. Instants are PostgreSQL's.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from redis import Redis

from disputes.clock import database_now
from disputes.models import AuditEntry
from escalation.conf import conf
from escalation.models import Heartbeat
from escalation.timeline_keys import keys
from tests.faults.harness import Crew, open_due, open_due_in, promotions
from tests.situations import default_ladder

pytestmark = [pytest.mark.processes, pytest.mark.long]

Fault = Callable[[Crew, Redis], tuple[list[UUID], datetime]]


def the_bound() -> timedelta:
    """What docs/guarantees.md says, for the settings of this test."""
    knobs = conf()
    return timedelta(seconds=knobs.lock_ttl_s + 2 * knobs.poll_interval_s * (1 + knobs.jitter))


def started(crew: Crew) -> None:
    crew.poller()
    crew.worker("escalations")
    warm_up = open_due(1)
    crew.wait(lambda: promotions(warm_up) == 1)


def a_work_horse_dies(crew: Crew, redis: Redis) -> tuple[list[UUID], datetime]:
    """It has claimed all of them; the worker lives and forks another one."""
    failpoints, files = crew.mortal_points("drain.claimed")
    crew.poller()
    crew.worker("escalations", FAILPOINTS=failpoints)
    crew.wait(Heartbeat.objects.exists)
    ids = open_due(20)
    crew.wait(lambda: not files[0].exists())
    return ids, database_now()


def redis_is_emptied(crew: Crew, redis: Redis) -> tuple[list[UUID], datetime]:
    started(crew)
    ids = open_due_in(20, seconds=0.5)
    redis.flushdb()
    return ids, database_now()


def redis_never_heard_of_them(crew: Crew, redis: Redis) -> tuple[list[UUID], datetime]:
    started(crew)
    ids = open_due_in(20, seconds=0.5)
    assert redis.zrem(keys().pending, *map(str, ids)) == len(ids)
    return ids, database_now()


def no_worker_is_left(crew: Crew, redis: Redis) -> tuple[list[UUID], datetime]:
    """The poller promotes by itself what is later than a lock lasts."""
    crew.poller()
    crew.wait(Heartbeat.objects.exists)
    return open_due(20), database_now()


@pytest.mark.parametrize(
    "fault", [a_work_horse_dies, redis_is_emptied, redis_never_heard_of_them, no_worker_is_left]
)
def test_no_promotion_is_later_than_a_lock_and_two_polls_after_the_fault(
    crew: Crew, redis_client: Redis, fault: Fault
) -> None:
    default_ladder()
    ids, over_at = fault(crew, redis_client)
    crew.wait(lambda: promotions(ids) == len(ids))
    entries = AuditEntry.objects.filter(dispute__in=ids, action="promoted")
    late = [
        recorded - max(due, over_at)
        for recorded, due in entries.values_list("recorded_at", "from_due_at")
    ]
    assert max(late) <= the_bound(), max(late)
    print(f"{fault.__name__}: {max(late).total_seconds():.2f} s late at most")
