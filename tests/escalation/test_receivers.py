"""After a commit, Redis hears of it at once; before it and after a rollback, never."""

import logging
import socket
import time
from collections.abc import Iterator

import pytest
from django.core.signals import request_finished, request_started
from django.db import transaction
from redis import Redis

from disputes.clock import database_now
from disputes.models import Dispute
from disputes.rules import microseconds
from disputes.signals import announce, disputes_changed
from escalation import timeline_survey as survey
from escalation.doorbell import waiting
from escalation.receivers import on_request_finished, on_request_started
from escalation.redis_client import client_for_here, timeline_client
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def dispute(redis_client: Redis) -> Dispute:
    """Known to Postgres only."""
    default_ladder()
    now = database_now()
    made = opened(now=now, due_at=now + HOUR)
    redis_client.flushdb()
    return made


def keys_there(redis_client: Redis) -> list[bytes]:
    return sorted(redis_client.scan_iter())


def announce_and_roll_back(dispute: Dispute) -> None:
    with transaction.atomic():
        announce([dispute.pk], messages=True)
        transaction.set_rollback(True)


def test_nothing_is_written_before_the_commit_and_everything_after_it(
    dispute: Dispute, redis_client: Redis
) -> None:
    with transaction.atomic():
        announce([dispute.pk], messages=True)
        assert keys_there(redis_client) == []
    assert survey.scores([str(dispute.pk)]) == {str(dispute.pk): microseconds(dispute.due_at)}
    assert waiting("notifications") == 1


def test_nothing_is_written_after_a_rollback(dispute: Dispute, redis_client: Redis) -> None:
    announce_and_roll_back(dispute)
    assert keys_there(redis_client) == []


def test_f72_nothing_is_written_after_an_inner_rollback(
    dispute: Dispute, redis_client: Redis
) -> None:
    with transaction.atomic():
        announce_and_roll_back(dispute)
    assert keys_there(redis_client) == []


def test_many_changes_in_a_moment_ring_for_few_deliveries(redis_client: Redis) -> None:
    default_ladder()
    person("ada", "standard")
    now = database_now()
    for _ in range(10):
        opened(now=now, due_at=now + HOUR)
    assert waiting("notifications") == 1


def test_a_receiver_that_breaks_does_not_keep_the_others_from_hearing(dispute: Dispute) -> None:
    def broken(**kwargs: object) -> None:
        raise ZeroDivisionError

    receivers = disputes_changed.receivers
    disputes_changed.connect(broken, weak=False, dispatch_uid="broken")
    # First in line, so that it could be in the way.
    receivers.insert(0, receivers.pop())
    disputes_changed.sender_receivers_cache.clear()
    try:
        announce([dispute.pk], messages=False)
    finally:
        disputes_changed.disconnect(dispatch_uid="broken")
    assert survey.scores([str(dispute.pk)]) != {}


@pytest.fixture
def in_a_request() -> Iterator[None]:
    """As while Django answers a request in this thread."""
    on_request_started()
    yield
    on_request_finished()


@pytest.fixture
def hanging_redis() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.usefixtures("in_a_request")
def test_in_a_request_a_hanging_redis_costs_a_change_less_than_a_second(
    dispute: Dispute, hanging_redis: str, settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TIMELINE_REDIS_URL = settings.REDIS_URL = hanging_redis
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        announce([dispute.pk], messages=True)
    assert time.monotonic() - started < 1
    assert {"escalation.sync_failed", "escalation.ring_failed"} <= set(caplog.messages)


def test_a_refusing_redis_fails_no_change(
    dispute: Dispute, settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TIMELINE_REDIS_URL = settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with caplog.at_level(logging.WARNING):
        announce([dispute.pk], messages=True)
    assert {"escalation.sync_failed", "escalation.ring_failed"} <= set(caplog.messages)


def test_a_thread_is_impatient_only_while_it_answers_a_request() -> None:
    assert client_for_here() is timeline_client("batch")
    request_started.send(sender=None)
    assert client_for_here() is timeline_client("request")
    request_finished.send(sender=None)
    assert client_for_here() is timeline_client("batch")
