"""Redis answers, but refuses to write: full, or a replica since a failover. Deadlines pass on time.

Promise: people and the clock go on from Postgres, nobody spins, and all heals without a hand.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from redis import Redis
from redis.exceptions import OutOfMemoryError, ResponseError

from config.processes import wait_until
from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute
from disputes.transitions.reviewing import acknowledge
from escalation import timeline_survey
from escalation.drain import drain
from escalation.models import Heartbeat
from escalation.reconcile import rebuild
from reviewqueue import ready_set
from reviewqueue.ready import reconcile_duty
from tests.faults.harness import (
    Crew,
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
        reverse("act", args=[held, "acknowledge"]),
        {"seen_version": 1, "next": "/queues/"},
        follow=True,
    )
    assert answer.status_code == 200
    assert Dispute.objects.get(pk=held).holder == ada
    ids = open_due(30)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(Heartbeat.objects.exclude(detail__degraded="").exists)
    let_grow(redis)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert_each_promoted_once_among(ids, held)


def assert_each_promoted_once_among(ids, held) -> None:
    """The usual proof; the one that a person took is not among the promoted."""
    assert not AuditEntry.objects.filter(dispute=held, action="promoted").exists()
    assert_each_promoted_once(ids)


@contextmanager
def password_changed(client: Redis) -> Iterator[None]:
    old = client.config_get("requirepass")["requirepass"]
    client.config_set("requirepass", "another")
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_kill_filter(_type="pubsub")
    yield
    client.config_set("requirepass", old)


@contextmanager
def rights_taken_away(client: Redis) -> Iterator[None]:
    client.execute_command("ACL SETUSER default -zadd -eval -evalsha -script -subscribe -lpush")
    yield
    client.execute_command("ACL SETUSER default +@all")


@contextmanager
def too_many_clients(client: Redis) -> Iterator[None]:
    client.config_set("maxclients", 1)
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_kill_filter(_type="pubsub")
    yield
    client.config_set("maxclients", 1000)


@contextmanager
def cannot_save(client: Redis) -> Iterator[None]:
    """By default a server that cannot save refuses to write; a folder stands in its way here."""
    in_the_way = (
        Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    )
    in_the_way.unlink(missing_ok=True)
    in_the_way.mkdir()
    client.config_set("save", "3600 1")
    client.bgsave()
    assert wait_until(
        lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", timeout_s=20
    )
    yield
    client.config_set("save", "")
    in_the_way.rmdir()


@contextmanager
def busy_with_a_script(client: Redis) -> Iterator[None]:
    client.config_set("lua-time-limit", 50)
    running = Background(lambda: client.eval("while true do end", 0))
    assert wait_until(lambda: answers_busy(client), timeout_s=20)
    yield
    client.script_kill()
    with pytest.raises(ResponseError, match="killed"):
        running.result()


def answers_busy(client: Redis) -> bool:
    try:
        client.get("whatever")
    except ResponseError as error:
        return "busy" in str(error).lower()
    return False


@pytest.mark.parametrize(
    "refusing",
    [password_changed, rights_taken_away, too_many_clients, cannot_save, busy_with_a_script],
)
def test_while_redis_refuses_in_its_own_ways_people_and_the_clock_go_on(
    crew: Crew, redis: OwnRedis, refusing: Callable[[Redis], AbstractContextManager[None]]
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    poller = crew.poller(REDIS_URL=redis.url)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    (held,) = open_due_in(1, seconds=3600)
    browser = Client()
    browser.force_login(ada)
    with Redis.from_url(redis.url, decode_responses=True) as client, refusing(client):
        answer = browser.post(
            reverse("act", args=[held, "acknowledge"]), {"seen_version": 1, "next": "/queues/"}
        )
        assert answer.status_code == 302
        ids = open_due(30)
        crew.wait(lambda: promotions() == len(ids))
        crew.wait(Heartbeat.objects.exclude(detail__degraded="").exists)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert Dispute.objects.get(pk=held).holder == ada
    assert_each_promoted_once_among(ids, held)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["drain.claimed", "promote.before_commit", "announce.committed"])
def test_f24_bug_20_full_at_this_point_of_a_drain_leaves_old_scores_and_nothing_is_promoted_twice(
    redis: OwnRedis, point: str
) -> None:
    """The batch commits; its new deadlines and places stay unwritten until there is room again.

    What moves from one set to another is in the old one until it is in the new one.
    """
    default_ladder()
    ids = open_due(20)
    rebuild()
    before = timeline_survey.scores([str(id_) for id_ in ids])
    with gate_at(point) as gate:
        work = Background(lambda: drain(linger_s=0))
        gate.wait()
        fill_up(redis)
        gate.open.set()
        with pytest.raises(OutOfMemoryError):
            work.result()
    assert promotions() == len(ids)
    assert timeline_survey.scores([str(id_) for id_ in ids]) == before, "late, not lost"
    assert waiting_in(redis) == (set(map(str, ids)), set())
    let_grow(redis)
    drain(linger_s=0)
    reconcile_duty(now=database_now())
    assert waiting_in(redis) == (set(), set(map(str, ids)))
    assert_each_promoted_once(ids)


def waiting_in(server: OwnRedis) -> tuple[set[str], set[str]]:
    """The members of the ready queues of the first and of the second tier."""
    with server.client as client:
        first, second = (
            set(client.zrange(f"{ready_set.keys().queue}default:{slug}", 0, -1))
            for slug in ("standard", "senior")
        )
    return first, second


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
        looks = poller.times_said("escalation.redis_away")
        beats = set()
        crew.wait(lambda: beats.add(Heartbeat.objects.get().at) or len(beats) > 4)
        assert poller.times_said("escalation.redis_away") - looks <= 4 * len(beats), "it spins"
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
