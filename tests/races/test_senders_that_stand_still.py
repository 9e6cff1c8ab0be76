"""A sender stands still at a bad moment: neither the clock nor a person waits for it.

Promise: what it holds is not sent when it goes on, and nothing that an acknowledgement made
unwanted waits to be sent.
"""

from collections import Counter

import pytest

from disputes import outbox
from disputes.clock import database_now
from disputes.invariants import broken
from disputes.models import Notification
from disputes.transitions.reviewing import acknowledge
from escalation.channels import CHANNELS, Outgoing
from escalation.delivery import LEASE, deliver
from escalation.drain import drain
from tests.faults.harness import open_due, promotions
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


class Recorder:
    """A channel that takes everything and remembers it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(self, message: Outgoing) -> None:
        self.sent.append((message.dispute_id, message.event))


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    channel = Recorder()
    monkeypatch.setitem(CHANNELS, "email", channel)
    return channel


def test_a_sender_that_stands_in_its_claim_holds_up_neither_the_clock_nor_a_person(
    mail: Recorder,
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    now = database_now()
    taken = opened(now=now, due_at=now + HOUR)
    ids = open_due(10, notify=True)
    with gate_at("deliver.claiming") as gate:
        sender = Background(deliver)
        gate.wait()
        assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=len(ids))
        holder = acknowledge(taken.pk, actor=ada, seen_version=1, now=database_now()).holder
        gate.open.set()
        sender.result()
    assert holder == ada
    assert promotions() == len(ids)
    # Nothing was cancelled by the change itself; the sender looked again before each.
    assert {event for _, event in mail.sent} <= {"acknowledged"}
    arrivals = Notification.objects.filter(event="arrived", tier__slug="standard")
    assert set(arrivals.values_list("status", flat=True)) == {"cancelled"}
    assert broken() == []


def test_what_is_handed_back_after_an_acknowledgement_is_cancelled(mail: Recorder) -> None:
    """As a sender does with what a person's minute has no room for."""
    default_ladder()
    ada = person("ada", "standard")
    now = database_now()
    dispute = opened(now=now, due_at=now + HOUR)
    claimed = outbox.claim_messages(now=database_now(), limit=10, lease=LEASE)
    assert [message.event for message in claimed] == ["arrived"]
    acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    outbox.hand_back(claimed, now=database_now(), not_before=database_now() + HOUR)
    assert Notification.objects.get(event="arrived").status == "cancelled"
    assert broken() == []
