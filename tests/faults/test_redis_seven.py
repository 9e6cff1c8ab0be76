"""Redis 7 beside Valkey: the scripts and the drain do the same on both."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from disputes.clock import database_now
from escalation import timeline, timeline_survey
from escalation.doorbell import ring, waiting
from escalation.drain import drain
from escalation.reconcile import rebuild, reconcile
from reviewqueue.ready import reconcile_duty, take_next
from tests.faults.harness import assert_each_promoted_once, open_due, open_due_in
from tests.faults.servers import OwnRedis, own_postgres, own_redis, redis_7, use_redis
from tests.faults.suite_runs import run_suite
from tests.situations import default_ladder, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

CORE = ("tests/escalation", "tests/reviewqueue")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[OwnRedis]:
    with own_redis(tmp_path_factory.mktemp("seven"), redis_7()) as own:
        yield own


@pytest.fixture
def redis(server: OwnRedis, settings) -> OwnRedis:
    with server.client as client:
        client.flushall()
    use_redis(settings, server.url)
    return server


def test_the_server_is_redis_7(redis: OwnRedis) -> None:
    with redis.client as client:
        told = client.info("server")
    assert told["redis_version"].startswith("7.")
    assert "valkey_version" not in told


def test_claims_writes_fences_and_releases_work_on_redis_7(redis: OwnRedis) -> None:
    (id_,) = map(str, open_due_in_default(1))
    entry = timeline.Entry(id_, 1_000_000, 5, "standard", "1.00", "a" * 64)
    assert timeline.schedule([entry]) == 1
    assert timeline.claim(now_us=1_000_000, limit=10, token="one").ids == (id_,)
    assert timeline.claim(now_us=1_000_000, limit=10, token="two").contended == 1
    assert timeline.release([id_], token="two") == 0
    assert timeline.release([id_], token="one") == 1
    assert timeline.unschedule([(id_, 6)]) == 1
    assert timeline.schedule([entry]) == 0, "the fence is newer"
    assert timeline.schedule([entry], force=True) == 1
    assert timeline_survey.payload_versions([id_]) == {id_: 5}


def open_due_in_default(number: int) -> list:
    default_ladder()
    return open_due_in(number, seconds=3600)


def test_a_drain_a_rebuild_a_taking_and_the_bell_work_on_redis_7(redis: OwnRedis) -> None:
    default_ladder()
    ada = person("ada", "standard")
    ids = open_due(25)
    rebuild()
    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=25)
    with redis.client as client:
        client.flushall()
    assert rebuild() == 25
    assert reconcile().repaired == 0
    assert_each_promoted_once(ids)
    (waiting_one,) = open_due_in(1, seconds=3600)
    reconcile_duty(now=database_now())
    assert take_next(ada, queue_ids=None, now=database_now()).pk == waiting_one
    assert ring("escalations", wanted=2) == 2
    assert waiting("escalations") == 2


@pytest.mark.long
def test_the_suite_passes_on_redis_7(server: OwnRedis, tmp_path) -> None:
    with own_postgres(tmp_path) as own:
        assert " passed" in run_suite(replace(own.addresses, redis_url=server.url), *CORE)
