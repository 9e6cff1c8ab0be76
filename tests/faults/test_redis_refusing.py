"""Redis answers, but refuses to write: full, or a replica since a failover. Deadlines pass on time.

Promise: people and the clock go on from Postgres, nobody spins, and all heals without a hand.
"""

from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import reverse
from redis.exceptions import OutOfMemoryError

from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute
from disputes.transitions.reviewing import acknowledge
from escalation import timeline_survey
from escalation.drain import drain
from escalation.models import Heartbeat
from escalation.reconcile import rebuild
from tests.faults.harness import (
    Crew,
    Member,
    assert_each_promoted_once,
    open_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.faults.servers import OwnRedis, own_redis, use_redis
from tests.races.gates import Background, gate_at
from tests.situations import default_ladder, person

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[list[OwnRedis]]:
    """The one that the product uses, and one to be a replica of."""
    folders = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("other")
    with own_redis(folders[0]) as ours, own_redis(folders[1]) as other:
        yield [ours, other]


@pytest.fixture
def redis(servers: list[OwnRedis], settings) -> Iterator[OwnRedis]:
    """The product's own server: empty, willing."""
    server = servers[0]
    use_redis(settings, server.url)
    with server.client as client:
        client.flushall()
        yield server
        client.config_set("maxmemory", 0)
        client.replicaof("NO", "ONE")


def fill_up(server: OwnRedis) -> None:
    """From now on every write that needs memory is refused."""
    with server.client as client:
        client.config_set("maxmemory", 1)


def let_grow(server: OwnRedis) -> None:
    with server.client as client:
        client.config_set("maxmemory", 0)


def test_f24_bug_21_with_redis_full_people_acknowledge_and_the_clock_goes_on_by_postgres(
    crew: Crew, redis: OwnRedis
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    poller = crew.poller(REDIS_URL=redis.url)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    (held,) = open_due_in(1, seconds=3600)
    fill_up(redis)
    client = Client()
    client.force_login(ada)
    answer = client.post(
        reverse("act", args=[held, "acknowledge"]), {"seen_version": 1, "next": "/queues/"}
    )
    assert answer.status_code == 302
    assert Dispute.objects.get(pk=held).holder == ada
    ids = open_due(30)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(Heartbeat.objects.exclude(detail__degraded="").exists)
    let_grow(redis)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert_each_promoted_once_among(ids, held)


def times_said(member: Member, words: str) -> int:
    return member.log.read_text(errors="replace").count(words)


def assert_each_promoted_once_among(ids, held) -> None:
    """The usual proof; the one that a person took is not among the promoted."""
    assert not AuditEntry.objects.filter(dispute=held, action="promoted").exists()
    assert_each_promoted_once(ids)


@pytest.mark.django_db(transaction=True)
def test_f24_full_in_the_middle_of_a_drain_leaves_old_scores_and_nothing_is_promoted_twice(
    redis: OwnRedis,
) -> None:
    """The batch commits; its new deadlines stay unwritten until there is room again."""
    default_ladder()
    ids = open_due(20)
    rebuild()
    before = timeline_survey.scores([str(id_) for id_ in ids])
    with gate_at("drain.claimed") as gate:
        work = Background(lambda: drain(linger_s=0))
        gate.wait()
        fill_up(redis)
        gate.open.set()
        with pytest.raises(OutOfMemoryError):
            work.result()
    assert promotions() == len(ids)
    assert timeline_survey.scores([str(id_) for id_ in ids]) == before, "late, not lost"
    let_grow(redis)
    drain(linger_s=0)
    assert_each_promoted_once(ids)


def test_f27_on_a_read_only_replica_the_poller_promotes_by_itself_and_does_not_spin(
    crew: Crew, redis: OwnRedis, servers: list[OwnRedis]
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    poller = crew.poller(REDIS_URL=redis.url)
    worker = crew.worker("escalations", REDIS_URL=redis.url)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    (held,) = open_due_in(1, seconds=3600)
    other = servers[1]
    with redis.client as client:
        client.replicaof("127.0.0.1", other.child.port)
        crew.wait(lambda: client.info("replication")["role"] == "slave")
        ids = open_due(30)
        acknowledge(held, actor=ada, seen_version=1, now=database_now())
        crew.wait(lambda: promotions() == len(ids))
        crew.wait(Heartbeat.objects.exclude(detail__degraded="").exists)
        looks = times_said(poller, "escalation.redis_away")
        beats = set()
        crew.wait(lambda: beats.add(Heartbeat.objects.get().at) or len(beats) > 4)
        assert times_said(poller, "escalation.redis_away") - looks <= 4 * len(beats), "it spins"
        client.replicaof("NO", "ONE")
    if not worker.is_running:
        # Whatever keeps the processes running starts it again; here the test does.
        crew.worker("escalations", REDIS_URL=redis.url)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    ids += open_due(10)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert_each_promoted_once_among(ids, held)
