"""kill -9 of the process that sends: messages arrive at least once, under one key each."""

import json
import os
from collections import Counter
from datetime import timedelta

import pytest

from disputes.clock import database_now
from disputes.models import Ladder, Notification
from escalation.delivery import CLAIM_SIZE, LEASE
from tests.escalation.small_servers import HttpServer, answers, http_server
from tests.faults.harness import Crew, Member, messages, open_due_in
from tests.situations import default_ladder, person

pytestmark = pytest.mark.processes

POINTS = ("deliver.claimed", "deliver.before_send", "deliver.sent")


def test_f07_messages_of_killed_senders_arrive_with_a_repeated_key_at_the_worst(crew: Crew) -> None:
    default_ladder()
    # As many people as a claim takes messages, so that nobody's are folded into one.
    for number in range(CLAIM_SIZE):
        person(f"reviewer-{number}", "standard")
    total = CLAIM_SIZE * (len(POINTS) + 1)
    now = database_now()
    open_due_in(len(POINTS) + 1, seconds=3600, notify=True)
    assert messages("pending") == total
    failpoints, files = crew.mortal_points(*POINTS)
    worker = crew.worker("notifications", FAILPOINTS=failpoints)
    crew.poller()
    crew.wait(lambda: not any(map(os.path.exists, files)))
    crew.wait(lambda: messages("sent") == CLAIM_SIZE)
    worker.kill()
    assert messages("sending") == CLAIM_SIZE * len(POINTS), "their claims outlive the senders"
    assert messages("pending") == 0
    sending = Notification.objects.filter(status=Notification.Status.SENDING)
    sending.update(claimed_at=now - LEASE - timedelta(seconds=1))
    crew.worker("notifications")
    crew.wait(lambda: messages("sent") == total)
    arrived = Counter(mail["Message-ID"].strip() for mail in crew.mails())
    keys = Notification.objects.values_list("idempotency_key", flat=True)
    assert set(arrived) == {f"<{key.replace(':', '.')}@escalations>" for key in keys}
    # Only the one that died between sending and saying so could not know.
    assert sorted(arrived.values()) == [1] * (total - 1) + [2]


@pytest.mark.parametrize(("point", "requests"), [*zip(POINTS, (1, 1, 2), strict=True)])
def test_bug_32_f118_a_webhook_of_a_killed_sender_arrives_with_a_repeated_key_at_the_worst(
    crew: Crew, point: str, requests: int
) -> None:
    with http_server() as server:
        failpoints, files = crew.mortal_points(point)
        worker = worker_with_endpoint(crew, server, FAILPOINTS=failpoints)
        crew.poller()
        crew.wait(lambda: not any(map(os.path.exists, files)))
        crew.wait(lambda: messages("sending") == 1)
        worker.kill()
        let_the_claim_run_out()
        worker_with_endpoint(crew, server)
        crew.wait(lambda: messages("sent") == 1)
        assert server.keys() == [Notification.objects.get().idempotency_key] * requests


def test_bug_32_a_sender_killed_during_the_request_sends_again_with_the_same_key(
    crew: Crew,
) -> None:
    with http_server() as server:
        server.behaviours = [server.hangs, answers(200)]
        worker = worker_with_endpoint(crew, server)
        crew.poller()
        crew.wait(lambda: len(server.requests) == 1)
        worker.kill()
        assert messages("sending") == 1
        let_the_claim_run_out()
        worker_with_endpoint(crew, server)
        crew.wait(lambda: messages("sent") == 1)
        assert server.keys() == [Notification.objects.get().idempotency_key] * 2


def worker_with_endpoint(crew: Crew, server: HttpServer, **changes: str) -> Member:
    """A sender that knows the endpoint; the first one finds a message to it."""
    if not Ladder.objects.exists():
        default_ladder(channels=["webhook:ops"])
        open_due_in(1, seconds=3600, notify=True)
    endpoints = {"ops": {"url": server.url, "secrets": ["a-secret-0123456789"]}}
    return crew.worker(
        "notifications",
        WEBHOOKS=json.dumps(endpoints),
        WEBHOOKS_ALLOW_LOOPBACK="true",
        **changes,
    )


def let_the_claim_run_out() -> None:
    Notification.objects.filter(status="sending").update(
        claimed_at=database_now() - LEASE - timedelta(seconds=1)
    )
