"""Messages leave at least once, under one key each, with no transaction open while they do."""

import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.core import mail
from django.db import connection

from disputes import failpoints
from disputes.clock import database_now
from disputes.models import Dispute, Notification, Queue
from disputes.outbox import replay
from disputes.transitions.reviewing import acknowledge
from escalation import delivery
from escalation.channels import CHANNELS, Channel, DeliveryFailed, Outgoing
from escalation.delivery import CLAIM_SIZE, LEASE, LONGEST_RETRY, deliver, retry_after
from tests.races.gates import Background
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


class Recorder:
    """A channel that keeps what it sent, and fails in a given way as often as it is told."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.keys: list[str] = []
        self.attempts: list[str] = []
        self.in_transaction: list[bool] = []

    def send(self, message: Outgoing) -> None:
        self.attempts.append(message.idempotency_key)
        self.in_transaction.append(connection.in_atomic_block)
        if self.errors:
            raise self.errors.pop(0)
        self.keys.append(message.idempotency_key)


@pytest.fixture(autouse=True)
def _hooks_end():
    yield
    failpoints.hooks.clear()


def use(monkeypatch: pytest.MonkeyPatch, channel: Channel) -> None:
    monkeypatch.setitem(CHANNELS, "email", channel)


def told(**facts: object) -> Dispute:
    """A dispute whose arrival is told to one reviewer by e-mail."""
    now = database_now()
    return opened(now=now, due_at=now + HOUR, **facts)


def told_to_ada(**facts: object) -> Dispute:
    default_ladder()
    person("ada", "standard")
    return told(**facts)


def only_message() -> Notification:
    return Notification.objects.get()


def retry_now() -> None:
    Notification.objects.filter(status="pending").update(not_before=database_now())


def test_a_message_is_sent_once_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told_to_ada()
    channel = Recorder()
    use(monkeypatch, channel)
    assert deliver() == Counter(sent=1)
    message = only_message()
    assert channel.keys == [message.idempotency_key]
    assert (message.status, message.attempts, message.last_error) == ("sent", 1, "")
    assert message.finished_at is not None
    assert deliver() == Counter()


def test_no_transaction_is_open_while_a_channel_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Django's own view of it nor Postgres' knows of one, and no lock is held."""
    dispute = told_to_ada()
    seen: list[tuple[int, int]] = []

    class Looks(Recorder):
        def send(self, message: Outgoing) -> None:
            super().send(message)
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                (pid,) = cursor.fetchone()
            seen.append(Background(lambda: locks_of(pid, dispute)).result())

    channel = Looks()
    use(monkeypatch, channel)
    deliver()
    assert channel.in_transaction == [False]
    assert seen == [(0, 1)]


def locks_of(pid: int, dispute: Dispute) -> tuple[int, int]:
    """Locks of that backend on our tables; and that the row can be locked at once."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = %s AND relation IN"
            " ('disputes_dispute'::regclass, 'disputes_notification'::regclass)",
            [pid],
        )
        (held,) = cursor.fetchone()
        cursor.execute(
            "SELECT id FROM disputes_dispute WHERE id = %s FOR UPDATE NOWAIT", [dispute.pk]
        )
        return held, len(cursor.fetchall())


def test_a_failed_send_is_tried_again_later_with_the_same_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_to_ada()
    channel = Recorder(DeliveryFailed("busy"), DeliveryFailed("still busy"))
    use(monkeypatch, channel)
    before = database_now()
    assert deliver() == Counter(pending=1)
    message = only_message()
    assert (message.status, message.attempts, message.last_error) == ("pending", 1, "busy")
    assert timedelta(seconds=7) < message.not_before - before < timedelta(seconds=20)
    assert deliver() == Counter(), "not before its time"
    retry_now()
    assert deliver() == Counter(pending=1)
    assert only_message().not_before - before > timedelta(seconds=14)
    retry_now()
    assert deliver() == Counter(sent=1)
    assert (only_message().attempts, only_message().last_error) == (3, "")
    assert len(channel.attempts) == 3
    assert len(set(channel.attempts)) == 1


def test_waits_grow_and_stay_within_an_hour() -> None:
    for attempts, full_s in ((1, 15), (2, 30), (3, 60), (4, 120), (9, 3600), (500, 3600)):
        waits = [retry_after(attempts).total_seconds() for _ in range(50)]
        assert all(full_s / 2 <= wait <= full_s for wait in waits)
        assert max(waits) > min(waits), "without jitter all come back at once"
    assert timedelta(hours=1) == LONGEST_RETRY


def test_after_the_last_attempt_a_message_is_failed_and_can_be_replayed_with_its_key(
    monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    settings.ESCALATION = {"delivery_max_attempts": 2}
    told_to_ada()
    channel = Recorder(DeliveryFailed("one"), DeliveryFailed("two"))
    use(monkeypatch, channel)
    deliver()
    retry_now()
    assert deliver() == Counter(failed=1)
    message = only_message()
    assert (message.status, message.last_error) == ("failed", "two")
    assert message.finished_at is not None
    retry_now()
    assert deliver() == Counter()
    assert replay(now=database_now()) == 1
    assert deliver() == Counter(sent=1)
    assert channel.keys == [message.idempotency_key]
    assert set(channel.attempts) == {message.idempotency_key}


def test_a_permanent_failure_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told_to_ada()
    use(monkeypatch, Recorder(DeliveryFailed("no such address", permanent=True)))
    assert deliver() == Counter(failed=1)
    assert (only_message().attempts, only_message().last_error) == (1, "no such address")


def test_a_defect_of_a_channel_is_put_off_and_the_others_go_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_to_ada()
    told()
    use(monkeypatch, Recorder(ZeroDivisionError("defect")))
    assert deliver() == Counter(pending=1, sent=1)
    (failed,) = Notification.objects.filter(status="pending")
    assert failed.last_error == "ZeroDivisionError('defect')"


def test_a_channel_that_does_not_exist_is_a_permanent_failure() -> None:
    default_ladder(channels=("pigeon",))
    told()
    assert deliver() == Counter(failed=1)
    assert only_message().last_error == "there is no channel 'pigeon'"


def test_a_reviewer_who_left_gets_nothing_and_the_outbox_says_why() -> None:
    told_to_ada()
    Queue.objects.get(slug="standard").reviewers.get().user_set.update(is_active=False)
    assert deliver() == Counter()
    assert (only_message().status, only_message().last_error) == ("cancelled", "no active person")
    assert mail.outbox == []


def test_a_reviewer_without_an_address_is_a_permanent_failure() -> None:
    told_to_ada()
    Queue.objects.get(slug="standard").reviewers.get().user_set.update(email="")
    assert deliver() == Counter(failed=1)


@pytest.mark.parametrize("point", ["deliver.claimed", "deliver.before_send", "deliver.sent"])
def test_a_sender_that_died_is_taken_over_when_its_claim_has_run_out(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    told_to_ada()
    channel = Recorder()
    use(monkeypatch, channel)

    def die() -> None:
        raise SystemExit

    failpoints.hooks[point] = die
    with pytest.raises(SystemExit):
        deliver()
    failpoints.hooks.clear()
    assert only_message().status == "sending"
    assert deliver() == Counter(), "the claim still stands"
    Notification.objects.update(claimed_at=database_now() - LEASE + timedelta(seconds=20))
    assert deliver() == Counter()
    Notification.objects.update(claimed_at=database_now() - LEASE - timedelta(seconds=1))
    assert deliver() == Counter(sent=1)
    assert len(channel.keys) == (2 if point == "deliver.sent" else 1)
    assert len(set(channel.keys)) == 1
    assert only_message().attempts == 2


def test_a_late_failure_does_not_take_back_what_another_sender_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first sender's claim ran out while it waited for the channel; the second sent."""
    told_to_ada()

    class Slow(Recorder):
        def send(self, message: Outgoing) -> None:
            if not self.attempts:
                self.attempts.append(message.idempotency_key)
                Notification.objects.update(claimed_at=database_now() - LEASE - HOUR)
                assert Background(deliver).result() == Counter(sent=1)
                raise DeliveryFailed("timed out")
            super().send(message)

    use(monkeypatch, Slow())
    deliver()
    assert (only_message().status, only_message().attempts) == ("sent", 2)


def test_what_the_dispute_no_longer_wants_is_cancelled_right_before_sending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Claimed, then acknowledged, then about to be sent."""
    dispute = told_to_ada()
    ada = person("eve", "standard")
    channel = Recorder()
    use(monkeypatch, channel)
    failpoints.hooks["deliver.claimed"] = lambda: (
        failpoints.hooks.clear(),
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now()),
    )
    counts = deliver()
    assert channel.attempts == []
    assert counts["cancelled"] == 1
    assert Notification.objects.get(event="arrived").status == "cancelled"


def test_many_messages_and_several_senders_send_each_once(
    monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    settings.ESCALATION = {"messages_per_minute": 600}
    told_to_ada()
    for _ in range(3 * CLAIM_SIZE - 1):
        told()
    channel = Recorder()
    use(monkeypatch, channel)
    start = threading.Barrier(3)

    def work() -> Counter[str]:
        start.wait(10)
        return deliver()

    senders = [Background(work) for _ in range(3)]
    total = sum((sender.result() for sender in senders), Counter())
    assert total == Counter(sent=3 * CLAIM_SIZE)
    assert len(set(channel.keys)) == len(channel.keys) == 3 * CLAIM_SIZE


def test_few_are_claimed_at_a_time_so_that_an_acknowledgement_finds_most_still_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_to_ada()
    for _ in range(CLAIM_SIZE + 4):
        told()
    use(monkeypatch, Recorder())
    most: list[int] = []
    failpoints.hooks["deliver.before_send"] = lambda: most.append(
        Notification.objects.filter(status="sending").count()
    )
    deliver()
    assert max(most) == CLAIM_SIZE


def test_a_stop_and_a_budget_end_the_work_between_two_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_to_ada()
    use(monkeypatch, Recorder())
    stop = threading.Event()
    stop.set()
    assert deliver(stop=stop) == Counter()
    assert deliver(budget_s=0) == Counter()
    assert deliver() == Counter(sent=1)


def test_what_is_sent_is_read_from_the_dispute_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispute = told_to_ada(reference="D-7")
    sent: list[Outgoing] = []

    class Keeps(Recorder):
        def send(self, message: Outgoing) -> None:
            sent.append(message)

    use(monkeypatch, Keeps())
    deliver()
    (message,) = sent
    assert (message.reference, message.money, message.version) == ("D-7", "129.00 USD", 1)
    assert (message.ladder, message.tier, message.due_at) == (
        "default",
        "Standard",
        dispute.due_at,
    )
    assert message.link == f"http://testserver/disputes/{dispute.pk}/"
    assert message.idempotency_key.startswith(dispute.audit_head[:32])


def test_the_lease_outlasts_a_claim_whose_every_send_times_out(settings) -> None:
    assert delivery.LEASE.total_seconds() > 2 * CLAIM_SIZE * settings.EMAIL_TIMEOUT
