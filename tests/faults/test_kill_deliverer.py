"""kill -9 of the process that sends: messages arrive at least once, under one key each."""

import os
from collections import Counter
from datetime import timedelta
from email import message_from_bytes
from email.policy import default as email_policy

import pytest

from disputes.clock import database_now
from disputes.models import Notification
from escalation.delivery import CLAIM_SIZE, LEASE
from tests.faults.harness import Crew, messages, open_due_in
from tests.situations import default_ladder, person

pytestmark = pytest.mark.processes

POINTS = ("deliver.claimed", "deliver.before_send", "deliver.sent")


def test_messages_of_killed_senders_arrive_with_a_repeated_key_at_the_worst(crew: Crew) -> None:
    default_ladder()
    person("ada", "standard")
    total = CLAIM_SIZE * (len(POINTS) + 1)
    now = database_now()
    open_due_in_with_messages(total)
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
    arrived = arrivals(crew)
    keys = Notification.objects.values_list("idempotency_key", flat=True)
    assert set(arrived) == {f"<{key.replace(':', '.')}@escalations>" for key in keys}
    # Only the one that died between sending and saying so could not know.
    assert sorted(arrived.values()) == [1] * (total - 1) + [2]


def open_due_in_with_messages(number: int) -> None:
    """Disputes that stay where they are; each has told its first tier's reviewer."""
    open_due_in(number, seconds=3600, notify=True)
    assert messages("pending") == number


def arrivals(crew: Crew) -> Counter[str]:
    """How often each message arrived, by its Message-ID."""
    found: Counter[str] = Counter()
    for file in crew.mail.iterdir():
        for raw in file.read_bytes().split(b"-" * 79 + b"\n"):
            if raw.strip():
                found[message_from_bytes(raw, policy=email_policy)["Message-ID"].strip()] += 1
    return found
