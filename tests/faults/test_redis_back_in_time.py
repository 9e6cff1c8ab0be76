"""Redis comes back empty or as it once was: Postgres decides; nothing is lost or doubled."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from redis.exceptions import RedisError

from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute
from disputes.transitions.reviewing import acknowledge
from escalation import timeline
from escalation.drain import drain
from escalation.poller import Poller
from escalation.reconcile import compare, rebuild, reconcile
from reviewqueue.ready import reconcile_duty, take_next
from tests.faults.harness import (
    KNOBS,
    assert_each_promoted_once,
    assert_sound,
    open_due,
    open_due_in,
    promotions,
)
from tests.faults.servers import OwnRedis, own_redis, use_redis
from tests.races.gates import Background, gate_at
from tests.situations import default_ladder, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[OwnRedis]:
    with own_redis(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
def redis(server: OwnRedis, settings) -> OwnRedis:
    """This file's own server, empty, used by the product."""
    with server.client as client:
        client.flushall()
    use_redis(settings, server.url)
    settings.ESCALATION = dict(KNOBS)
    return server


def queues_are_in_step() -> bool:
    """Rounds over the review queues until one finds nothing to repair."""
    return any(reconcile_duty(now=database_now()) == 0 for _ in range(5))


@pytest.mark.parametrize("lost", ["the last second", "a day"])
def test_f22_an_old_snapshot_of_redis_takes_nothing_back_and_repeats_nothing(
    redis: OwnRedis, lost: str
) -> None:
    """Zombies, old scores and old versions return; entries and removals since then are missing."""
    default_ladder()
    ada = person("ada", "standard")
    due, waiting, taken = open_due(15), open_due_in(10, seconds=3600), open_due_in(10, seconds=3600)
    rebuild()
    queues_are_in_step()
    snapshot = redis.save_snapshot()
    drain(linger_s=0)
    for id_ in taken:
        acknowledge(id_, actor=ada, seen_version=1, now=database_now())
    later = open_due(20)
    if lost == "a day":
        # Everything moves on and something new takes every place: nothing is as it was saved.
        drain(linger_s=0)
        later += [id_ for _ in range(5) for id_ in open_due(10)]
        drain(linger_s=0)
        later += open_due(10)
    told = AuditEntry.objects.count()
    redis.restart(snapshot=snapshot)
    assert timeline.depth() == len(due) + len(waiting) + len(taken)
    assert not compare().is_clean, "an old snapshot that is no different proves nothing"
    # What Redis proposes wrongly is seen through; what it does not know is handed over.
    drain(linger_s=0)
    Poller(threading.Event()).look()
    drain(linger_s=0)
    reconcile()
    drain(linger_s=0)
    assert promotions() == len(due) + len(later)
    assert AuditEntry.objects.count() == told + (10 if lost == "a day" else 20)
    rows = Dispute.objects.filter(pk__in=[*due, *later]).values_list("version", "tier__slug")
    assert set(rows) == {(2, "senior")}
    assert set(Dispute.objects.filter(pk__in=taken).values_list("version", "status")) == {
        (2, "acknowledged")
    }
    assert set(Dispute.objects.filter(pk__in=waiting).values_list("version", "status")) == {
        (1, "open")
    }
    assert_sound()
    assert queues_are_in_step()
    assert reconcile().repaired == 0


@pytest.mark.parametrize(
    "point",
    ["drain.claimed", "promote.selected", "promote.committed", "drain.promoted", "drain.synced"],
)
def test_f20_redis_restarted_empty_while_a_drain_stands_here_costs_and_doubles_nothing(
    redis: OwnRedis, point: str
) -> None:
    default_ladder()
    ids = open_due(30)
    rebuild()
    with gate_at(point) as gate:
        work = Background(lambda: drain(linger_s=0))
        gate.wait()
        redis.restart()
        gate.open.set()
        with suppress(RedisError):
            work.result()
    assert promotions() in (0, len(ids))
    # The first look finds that the timeline is gone, builds it again, and work goes on.
    Poller(threading.Event()).look()
    drain(linger_s=0)
    assert compare().is_clean
    assert_each_promoted_once(ids)
    assert queues_are_in_step()


def test_f20_redis_restarted_empty_under_a_reservation_costs_nobody_his_dispute(
    redis: OwnRedis,
) -> None:
    default_ladder()
    ada, ben = person("ada", "standard"), person("ben", "standard")
    first, second = open_due_in(2, seconds=3600)
    assert queues_are_in_step()
    with gate_at("acknowledge.read") as gate:
        work = Background(lambda: take_next(ada, queue_ids=None, now=database_now()))
        gate.wait()
        redis.restart()
        # The set is gone, and with it every reservation: Postgres' version guard is what is left.
        taken_by_ben = take_next(ben, queue_ids=None, now=database_now())
        gate.open.set()
        taken_by_ada = work.result()
    assert {taken_by_ada.pk, taken_by_ben.pk} == {first, second}
    assert_sound()
