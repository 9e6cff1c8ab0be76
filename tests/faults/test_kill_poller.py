"""Pollers that die, stop, multiply or find nobody to work: the deadlines do not care."""

import signal
import time

import pytest
from django.test import Client
from redis import Redis

from disputes.clock import database_now
from escalation.doorbell import MOST_WAITING, waiting
from escalation.drain import overdue
from escalation.models import Heartbeat
from escalation.timeline_survey import is_built
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.situations import default_ladder

pytestmark = pytest.mark.processes


def test_f02_f03_a_poller_killed_before_and_after_it_rings_leaves_its_work_to_the_next(
    crew: Crew, redis_client: Redis
) -> None:
    default_ladder()
    crew.worker("escalations")
    crew.wait(lambda: bool(redis_client.smembers("rq:workers")))
    ids = []
    deaths = (("poller.before_ring", 5), ("poller.after_ring", 7), ("poller.looked", 3))
    for point, number in deaths:
        ids += open_due(number)
        poller = crew.poller(FAILPOINTS=f"{point}=kill")
        crew.wait(lambda poller=poller: not poller.is_running)
        assert poller.process.returncode == -signal.SIGKILL
        if point == "poller.before_ring":
            assert promotions() == 0, "nobody was rung, so nobody may have worked"
    crew.poller()
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


@pytest.mark.parametrize("point", ["rebuild.slice", "reconcile.postgres_slice"])
def test_no_deadline_and_no_stop_waits_for_a_rebuild_or_a_reconcile(
    crew: Crew, redis_client: Redis, point: str
) -> None:
    """With very many disputes either takes minutes; here it stands as long as the test lasts."""
    default_ladder()
    crew.worker("escalations")
    open_due_in(1, seconds=3600)
    redis_client.flushdb()
    latch = crew.latch()
    poller = crew.poller(FAILPOINTS=f"{point}={latch.order}")
    crew.wait(latch.somebody_stands_here)
    crew.wait(Heartbeat.objects.exists)
    beaten = Heartbeat.objects.get(kind="poller").at
    ids = open_due_in(10, seconds=1)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(lambda: Heartbeat.objects.get(kind="poller").at > beaten)
    assert poller.terminate() == 0, crew.story()
    latch.let_go()
    crew.poller()
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


@pytest.mark.parametrize("busy", [False, True])
def test_f09_a_poller_told_to_stop_ends_within_two_seconds_and_says_that_all_is_well(
    crew: Crew, busy: bool
) -> None:
    default_ladder()
    open_due(50) if busy else open_due_in(1, seconds=3600)
    poller = crew.poller()
    crew.wait(Heartbeat.objects.filter(kind="poller").exists)
    started = time.monotonic()
    assert poller.terminate() == 0, crew.story()
    assert time.monotonic() - started < 2


def test_while_the_workers_are_away_few_jobs_wait_and_on_their_return_all_is_promoted(
    crew: Crew,
) -> None:
    default_ladder()
    ids = open_due(60)
    pollers = [crew.poller(ESCALATION='{"poll_interval_s": 1, "batch_size": 1}') for _ in range(2)]
    most = 0

    def beaten_often() -> bool:
        """Each poller has looked for several sweeps."""
        nonlocal most
        most = max(most, waiting("escalations"))
        beats = Heartbeat.objects.filter(kind="poller").values_list("at", flat=True)
        seen.update(beats)
        return len(seen) >= 6

    seen: set[object] = set()
    crew.wait(beaten_often)
    assert most == MOST_WAITING
    assert promotions() == 0
    for poller in pollers:
        assert poller.is_running, crew.story()
    crew.worker("escalations")
    crew.wait(nothing_is_due)
    crew.wait(lambda: waiting("escalations") == 0)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def test_f11_with_no_poller_left_readyz_says_so_and_a_later_poller_does_all_of_it(
    crew: Crew, client: Client, redis_client: Redis
) -> None:
    default_ladder()
    crew.worker("escalations")
    crew.wait(lambda: bool(redis_client.smembers("rq:workers")))
    first = crew.poller()
    crew.wait(lambda: client.get("/readyz").json()["status"] == "ok")
    first.kill()
    crew.wait(lambda: waiting("escalations") == 0)
    ids = open_due(10, seconds_ago=60) + open_due_in(10, seconds=1)

    def is_told() -> bool:
        told = " ".join(client.get("/readyz").json()["degraded"])
        return "no poller is running: escalations wait" in told and "s late" in told

    crew.wait(is_told)
    crew.wait(lambda: overdue(now=database_now()).count() == len(ids))
    assert promotions() == 0, "a worker that nobody rings does nothing"
    crew.poller()
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    crew.wait(lambda: client.get("/readyz").json()["status"] == "ok")
    assert_each_promoted_once(ids)


def test_f12_ten_pollers_and_three_workers_move_five_hundred_deadlines_once_each(
    crew: Crew,
) -> None:
    default_ladder()
    for _ in range(10):
        crew.poller()
    for _ in range(3):
        crew.worker("escalations", ESCALATION='{"batch_size": 20, "drain_linger_s": 0}')
    crew.wait(lambda: Heartbeat.objects.filter(kind="poller").count() == 10, timeout_s=60)
    ids = [*open_due(250), *open_due_in(250, seconds=1)]
    crew.wait(lambda: promotions() >= len(ids))
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def test_all_of_redis_lost_while_everything_runs_loses_and_doubles_nothing(
    crew: Crew, redis_client: Redis
) -> None:
    """Lost again and again while deadlines pass: locks, jobs, timeline, epoch, all of it."""
    default_ladder()
    crew.poller()
    crew.worker("escalations", ESCALATION='{"batch_size": 10, "drain_linger_s": 0}')
    crew.wait(is_built)
    ids = [id_ for second in range(1, 5) for id_ in open_due_in(40, seconds=second)]
    for share in (1, 80, 120):
        crew.wait(lambda share=share: promotions() >= share)
        redis_client.flushdb()
    crew.wait(lambda: promotions() >= len(ids))
    crew.wait(is_built)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)
