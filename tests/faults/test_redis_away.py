"""Redis refuses, hangs or loses answers: people go on working, and no deadline is lost."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse
from redis import Redis
from redis.exceptions import RedisError

from config.processes import wait_until
from disputes.clock import database_now
from disputes.invariants import broken
from disputes.models import Dispute
from disputes.transitions.reviewing import acknowledge
from escalation import timeline
from escalation.drain import drain
from escalation.models import Heartbeat
from escalation.poller import Poller
from escalation.receivers import on_request_finished, on_request_started
from escalation.reconcile import reconcile
from escalation.redis_client import WORKER_TIMEOUT_S
from escalation.timeline_keys import keys
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.faults.proxy import Proxy, Way, proxy_before
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, again, default_ladder, opened, person

pytestmark = pytest.mark.processes

AWAY = [Way.REFUSE, Way.HANG]


@pytest.fixture
def before_redis() -> Iterator[tuple[Proxy, str]]:
    """A proxy before this test's Redis, for the processes that are given its address."""
    with proxy_before(os.environ["REDIS_URL"]) as both:
        yield both


@pytest.fixture
def redis_proxy(settings, before_redis: tuple[Proxy, str]) -> Proxy:
    """Everything of this process that speaks to Redis does so through the proxy."""
    proxy, address = before_redis
    settings.REDIS_URL = settings.TIMELINE_REDIS_URL = address
    cache = settings.CACHES["default"]
    settings.CACHES = {"default": {**cache, "LOCATION": address}}
    return proxy


def open_dispute_now() -> Dispute:
    now = database_now()
    return opened(now=now, due_at=now + HOUR)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", AWAY)
def test_acknowledging_works_within_two_seconds_while_redis_is_away(
    redis_proxy: Proxy, way: Way
) -> None:
    proxy = redis_proxy
    default_ladder()
    ada = person("ada", "standard")
    dispute = open_dispute_now()
    assert timeline.depth() == 1, "the proxy is in the way"
    proxy.set(way)
    on_request_started()
    started = time.monotonic()
    acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    took_s = time.monotonic() - started
    on_request_finished()
    assert took_s < 2
    assert (again(dispute).status, again(dispute).holder) == ("acknowledged", ada)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", AWAY)
def test_the_button_answers_within_two_seconds_while_redis_is_away(
    redis_proxy: Proxy, way: Way
) -> None:
    proxy = redis_proxy
    default_ladder()
    ada = person("ada", "standard")
    dispute = open_dispute_now()
    client = Client()
    client.force_login(ada)
    assert client.get(reverse("dispute", args=[dispute.pk])).status_code == 200
    proxy.set(way)
    started = time.monotonic()
    answer = client.post(
        reverse("act", args=[dispute.pk, "acknowledge"]), {"seen_version": 1, "next": "/queues/"}
    )
    took_s = time.monotonic() - started
    assert answer.status_code in (200, 302), answer.content[:2000]
    assert took_s < 2
    assert (again(dispute).status, again(dispute).holder) == ("acknowledged", ada)


def test_f21_while_redis_refuses_the_poller_promotes_by_itself_and_says_so(
    crew: Crew, before_redis: tuple[Proxy, str]
) -> None:
    proxy, address = before_redis
    default_ladder()
    poller = crew.poller(REDIS_URL=address)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    proxy.set(Way.REFUSE)
    ids = [*open_due(20), *open_due_in(20, seconds=0.5)]
    crew.wait(nothing_is_due)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(Heartbeat.objects.exclude(detail__degraded="").exists)
    beat = Heartbeat.objects.get()
    assert beat.detail["degraded"] == "Redis cannot be reached"
    proxy.set(Way.PASS)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert_each_promoted_once(ids)


@pytest.mark.parametrize("looks", [5, pytest.param(50, marks=pytest.mark.long)])
def test_f21_bug_19_however_often_redis_refused_the_loops_resume_by_themselves(
    crew: Crew, redis_proxy: Proxy, before_redis: tuple[Proxy, str], client: Client, looks: int
) -> None:
    """Health is red meanwhile; the first look after the refusals finds all as it was before."""
    proxy, address = before_redis
    default_ladder()
    poller = crew.poller(REDIS_URL=address)
    worker = crew.worker("escalations", "notifications", REDIS_URL=address)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    proxy.set(Way.REFUSE)
    # Only reconcile will tell Redis of it.
    open_due_in(1, seconds=3600)

    def refused() -> int:
        return poller.times_said("escalation.redis_away")

    crew.wait(lambda: refused() >= looks, timeout_s=10 * looks)
    health = client.get("/readyz").json()
    assert health["status"] == "degraded"
    assert "Redis cannot be reached: escalations are slower, nothing is lost" in health["degraded"]
    proxy.set(Way.PASS)
    until_now = refused()
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    assert refused() <= until_now + 1, "only a look under way may still find it away"
    crew.wait(redis_is_in_step)
    ids = open_due(5)
    crew.wait(lambda: promotions() == len(ids))
    assert client.get("/readyz").json()["status"] == "ok"
    assert poller.is_running
    # Or it ends so that whatever keeps the processes running starts it again.
    assert worker.is_running or worker.process.returncode, crew.story()
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def test_f21_while_redis_hangs_the_poller_goes_on_promoting_and_stops_when_told(
    crew: Crew, before_redis: tuple[Proxy, str]
) -> None:
    """Whatever the poller stands in when it begins to hang waits for an answer; a look does not."""
    proxy, address = before_redis
    default_ladder()
    poller = crew.poller(REDIS_URL=address)
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    proxy.set(Way.HANG)
    ids = open_due(5)
    crew.wait(lambda: promotions() == len(ids))
    ids += open_due(5)
    crew.wait(lambda: promotions() == len(ids))
    assert poller.terminate() == 0
    assert_each_promoted_once_by_postgres(ids)


@pytest.mark.django_db(transaction=True)
def test_f21_a_look_at_a_hanging_redis_does_not_cost_a_workers_patience(redis_proxy: Proxy) -> None:
    default_ladder()
    poller = Poller(stop=threading.Event(), name="poller@test")
    assert poller.look().degraded == ""
    redis_proxy.set(Way.HANG)
    started = time.monotonic()
    assert poller.look().degraded == "Redis cannot be reached"
    assert time.monotonic() - started < WORKER_TIMEOUT_S


def assert_each_promoted_once_by_postgres(ids: list[UUID]) -> None:
    rows = Dispute.objects.filter(pk__in=ids).values_list("version", "tier__slug")
    assert set(rows) == {(2, "senior")}
    assert promotions() == len(ids)
    assert broken() == []


@pytest.mark.django_db(transaction=True)
def test_a_claim_whose_answer_was_lost_is_repeated_and_gets_the_same_disputes(
    redis_proxy: Proxy, redis_client: Redis
) -> None:
    """The script ran, the client cannot know: asking again under the same token is harmless."""
    proxy = redis_proxy
    default_ladder()
    ids = open_due(10)
    # The script is loaded and a connection is open: nothing but the claim's answer can be lost.
    assert timeline.claim(now_us=0, limit=1, token="warm").ids == ()
    proxy.set(Way.SWALLOW)
    work = Background(lambda: drain(linger_s=0))
    locks = f"{keys().lock}*"
    assert wait_until(lambda: len(list(redis_client.scan_iter(match=locks))) == 10, timeout_s=10)
    proxy.set(Way.PASS)
    assert work.result() == Counter(PROMOTED_TO_SENIOR=10)
    assert list(redis_client.scan_iter(match=locks)) == []
    assert_each_promoted_once(ids)


@pytest.mark.django_db(transaction=True)
def test_redis_going_away_between_commit_and_release_costs_nothing_but_expiring_locks(
    redis_proxy: Proxy, redis_client: Redis
) -> None:
    proxy = redis_proxy
    default_ladder()
    ids = open_due(10)
    with gate_at("promote.committed") as gate:
        work = Background(lambda: drain(linger_s=0))
        gate.wait()
        proxy.set(Way.REFUSE)
        gate.open.set()
        with pytest.raises(RedisError):
            work.result()
    proxy.set(Way.PASS)
    assert len(list(redis_client.scan_iter(match=f"{keys().lock}*"))) == 10
    assert promotions() == len(ids)
    reconcile()
    assert_each_promoted_once(ids)
