"""Health as a load balancer and an operator see it."""

from datetime import timedelta

import pytest

from disputes.clock import database_now
from escalation.loop import beat
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

DEAD_REDIS = "redis://127.0.0.1:1/0"


def test_healthz_asks_nobody(client, django_assert_num_queries, settings):
    settings.TIMELINE_REDIS_URL = DEAD_REDIS
    with django_assert_num_queries(0):
        assert client.get("/healthz").content == b"ok\n"


def test_readyz_is_ok_while_a_poller_lives_and_nothing_is_late(client):
    beat("poller@here", kind="poller", now=database_now(), detail={})
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_f11_without_poller_and_redis_people_go_on_and_are_told(client, settings):
    settings.TIMELINE_REDIS_URL = DEAD_REDIS
    beat("poller@here", kind="poller", now=database_now() - HOUR, detail={})
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["degraded"] == [
        "Redis cannot be reached: escalations are slower, nothing is lost",
        "no poller is running: escalations wait",
    ]


def test_lateness_is_said_in_seconds(client):
    default_ladder()
    now = database_now()
    beat("poller@here", kind="poller", now=now, detail={})
    opened(now=now - HOUR, due_at=now - timedelta(minutes=5))
    found = client.get("/readyz").json()
    assert 300 <= found["late_s"] < 330
    assert found["degraded"] == [f"escalations are {int(found['late_s'])} s late"]


def test_a_deadline_that_came_back_with_the_end_of_a_hold_is_late_from_then_on(client):
    default_ladder()
    now = database_now()
    beat("poller@here", kind="poller", now=now, detail={})
    opened(now=now, due_at=now - timedelta(minutes=5))
    found = client.get("/readyz").json()
    assert found["late_s"] < 60
    assert found["degraded"] == []


def test_messages_that_nobody_sends_are_said(client):
    default_ladder()
    person("ada", "standard")
    now = database_now()
    beat("poller@here", kind="poller", now=now, detail={})
    opened(now=now - timedelta(minutes=2), due_at=now + HOUR)
    assert client.get("/readyz").json()["degraded"] == ["messages have waited for more than 60 s"]
