"""Nobody waits for somebody else's trouble, nobody is flooded, nobody who left is told anything."""

import threading
import time
from collections import Counter
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.db import connection
from django.utils import timezone

from config.processes import wait_until
from disputes import failpoints, outbox
from disputes.clock import database_now
from disputes.models import Dispute, Notification, Queue
from disputes.transitions.deadlines import promote
from disputes.transitions.reviewing import acknowledge, assign
from escalation import allowance, delivery
from escalation.allowance import WINDOW, take
from escalation.channels import CHANNELS, DeliveryFailed, Outgoing, webhook
from escalation.delivery import CLAIM_SIZE, FOLD_ABOVE, deliver
from escalation.doorbell import MOST_WAITING, waiting
from escalation.models import Allowance, Destination
from tests.escalation.small_servers import answers, http_server
from tests.races.gates import Background
from tests.situations import HOUR, MINUTE, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "a-secret-0123456789"


@pytest.fixture(autouse=True)
def _hooks_end():
    yield
    failpoints.hooks.clear()


def use(settings, **urls: str) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = True
    settings.WEBHOOKS = {name: {"url": url, "secrets": [SECRET]} for name, url in urls.items()}


def told(**facts: object) -> Dispute:
    now = database_now()
    return opened(now=now, due_at=now + HOUR, **facts)


def queue_told_by(*channels: str) -> Queue:
    Queue.objects.filter(slug="standard").update(channels=list(channels))
    return Queue.objects.get(slug="standard")


def by_status(**filters: object) -> Counter[str]:
    return Counter(Notification.objects.filter(**filters).values_list("status", flat=True))


class Recorder:
    """A channel that can only send one message at a time."""

    def __init__(self) -> None:
        self.references: list[str] = []

    def send(self, message: Outgoing) -> None:
        self.references.append(message.reference)


class Folder(Recorder):
    """A channel that can send several at once, as e-mail can."""

    def __init__(self) -> None:
        super().__init__()
        self.digests: list[list[str]] = []

    def send_digest(self, messages: list[Outgoing]) -> None:
        self.digests.append([message.reference for message in messages])


# One destination in trouble, the others not.


def test_bug_61_a_hanging_endpoint_with_500_messages_does_not_delay_a_healthy_one(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "DEADLINE_S", 1.0)
    default_ladder()
    with http_server() as dead, http_server() as healthy:
        dead.behaviours = [dead.hangs]
        use(settings, dead=dead.url, healthy=healthy.url)
        queue_told_by("webhook:dead")
        first = told()
        copy_message(first, times=499)
        queue_told_by("webhook:healthy")
        for _ in range(20):
            told()
        claims: list[None] = []
        failpoints.hooks["deliver.claimed"] = lambda: claims.append(None)
        started_at = time.monotonic()
        counts = deliver()
        assert time.monotonic() - started_at < 10
        assert len(dead.requests) == 1, "one attempt, then it rests"
    assert len(set(healthy.keys())) == len(healthy.requests) == 20
    assert counts == Counter(pending=1, sent=20)
    assert by_status(channel="webhook:healthy") == Counter(sent=20)
    assert by_status(channel="webhook:dead") == Counter(pending=500)
    assert not Notification.objects.filter(
        channel="webhook:dead", not_before__lte=database_now()
    ).exists(), "all of them are put off, so that nobody takes them for stranded"
    assert len(claims) <= 4, "all are put off at once, not a claim at a time"
    untried = Notification.objects.filter(channel="webhook:dead", attempts=0).count()
    assert untried == 499, "being put off is no attempt"
    assert waiting("notifications") <= MOST_WAITING, "and none of it waits in Redis"


def copy_message(dispute: Dispute, *, times: int) -> None:
    """So many more messages of the same kind, as if each were of another queue."""
    row = Notification.objects.get(dispute=dispute)
    Notification.objects.bulk_create(
        Notification(
            dispute=dispute,
            version=row.version,
            event=row.event,
            tier=row.tier,
            channel=row.channel,
            recipient=f"queue:copy-{number}",
            created_at=row.created_at,
            not_before=row.not_before,
            idempotency_key=f"{row.idempotency_key}-{number}",
        )
        for number in range(times)
    )


def test_f110_bug_61_promotions_go_on_while_a_sender_hangs(settings) -> None:
    """No lock is held while the endpoint says nothing; the sender is still at it afterwards."""
    default_ladder()
    with http_server() as dead:
        dead.behaviours = [dead.hangs]
        use(settings, dead=dead.url)
        queue_told_by("webhook:dead")
        disputes = [told() for _ in range(50)]
        sender = Background(deliver)
        assert wait_until(lambda: bool(dead.requests), timeout_s=10, every_s=0.01)
        promote([dispute.pk for dispute in disputes], now=database_now() + 2 * HOUR)
        assert sender.is_running
        assert set(Dispute.objects.values_list("tier__slug", flat=True)) == {"senior"}
        assert sender.result() == Counter(cancelled=1), "nobody waits for it any more"


def test_a_slow_endpoint_that_works_lets_the_others_go_first_after_its_turn(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "TURN_S", 0.2)
    default_ladder()
    order: list[str] = []

    class Slow(Recorder):
        def send(self, message: Outgoing) -> None:
            order.append("slow")
            threading.Event().wait(0.11)

    class Quick(Recorder):
        def send(self, message: Outgoing) -> None:
            order.append("quick")

    monkeypatch.setitem(CHANNELS, "slow", Slow())
    monkeypatch.setitem(CHANNELS, "log", Quick())
    queue_told_by("slow")
    copy_message(told(), times=9)
    queue_told_by("log")
    copy_message(told(), times=4)
    assert deliver() == Counter(sent=15)
    assert order == ["slow"] * 2 + ["quick"] * 5 + ["slow"] * 8
    assert set(Notification.objects.values_list("attempts", flat=True)) == {1}


def test_rests_grow_with_every_failure_and_a_success_ends_them(settings) -> None:
    default_ladder()
    with http_server(*[answers(500)] * 8, answers(200)) as server:
        use(settings, ops=server.url)
        queue_told_by("webhook:ops")
        rests_s = []
        settings.ESCALATION = {"delivery_max_attempts": 50}
        told()
        for _ in range(8):
            before = database_now()
            assert deliver() == Counter(pending=1)
            rests_s.append((Destination.objects.get().rests_until - before).total_seconds())
            assert deliver() == Counter()
            Notification.objects.update(not_before=before)
            Destination.objects.update(rests_until=before)
        assert [round(rest_s, -0) for rest_s in rests_s] == pytest.approx(
            [5, 10, 20, 40, 80, 160, 300, 300], abs=1
        )
        assert deliver() == Counter(sent=1)
    row = Destination.objects.get()
    assert (row.failures, row.rests_until, row.failing_since, row.reason) == (0, None, None, "")


def test_what_comes_while_an_endpoint_rests_is_put_off_without_an_attempt(settings) -> None:
    default_ladder()
    with http_server(answers(503, "Retry-After: 60"), answers(200)) as server:
        use(settings, ops=server.url)
        queue_told_by("webhook:ops")
        told()
        assert deliver() == Counter(pending=1)
        told()
        assert deliver() == Counter()
        assert len(server.requests) == 1
        rest = Destination.objects.get().rests_until
        late = Notification.objects.order_by("-pk").first()
        assert (late.attempts, late.not_before) == (0, rest)


def test_a_hundred_messages_nobody_wants_do_not_hide_the_one_behind_them() -> None:
    default_ladder()
    queue_told_by("log")
    copy_message(dispute := told(), times=5 * CLAIM_SIZE)
    told()
    now = database_now()
    Notification.objects.filter(dispute=dispute).update(event="proposed")
    assert deliver() == Counter(sent=1)
    assert by_status(dispute=dispute) == Counter(cancelled=5 * CLAIM_SIZE + 1)
    assert outbox.pending_count(now=now) == 0


# Storms.


@pytest.fixture
def ada():
    default_ladder()
    return person("ada", "standard")


def test_f61_no_more_leave_for_one_person_than_a_minute_allows_and_the_rest_waits_in_order(
    ada, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ESCALATION = {"messages_per_minute": 5}
    channel = Recorder()
    monkeypatch.setitem(CHANNELS, "email", channel)
    for number in range(12):
        told(reference=f"R{number:02}")
    for done in (5, 10, 12):
        deliver()
        assert channel.references == [f"R{number:02}" for number in range(done)]
        assert deliver() == Counter()
        a_minute_passes()
    assert by_status() == Counter(sent=12)
    assert set(Notification.objects.values_list("attempts", flat=True)) == {1}


def a_minute_passes() -> None:
    """For the messages and for what the people were allowed."""
    pending = Notification.objects.filter(status="pending")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE escalation_allowance SET used_at ="
            " (SELECT coalesce(array_agg(at - interval '60 s'), '{}') FROM unnest(used_at) AS at)"
        )
    for row in pending:
        assert row.not_before <= database_now() + WINDOW
    for row in pending:
        row.not_before -= WINDOW
        row.save(update_fields=["not_before"])


def test_f61_what_is_above_the_limit_is_put_off_at_once(ada, settings, monkeypatch) -> None:
    settings.ESCALATION = {"messages_per_minute": 1}
    monkeypatch.setitem(CHANNELS, "email", Recorder())
    disputes = [told() for _ in range(4 * CLAIM_SIZE)]
    claims: list[None] = []
    failpoints.hooks["deliver.claimed"] = lambda: claims.append(None)
    assert deliver() == Counter(sent=1)
    assert len(claims) == 2, "one that sent and put off, one that found nothing"
    assert by_status() == Counter(sent=1, pending=len(disputes) - 1)


def test_f61_in_no_sixty_seconds_is_the_limit_exceeded() -> None:
    start = timezone.now()
    granted: list[float] = []
    for second in range(240):
        number, _ = take("user:1", wanted=7, now=start + timedelta(seconds=second))
        granted += [second] * number
    for second in range(240):
        in_window = sum(second <= at < second + 60 for at in granted)
        assert in_window <= 30
    assert len(granted) == 120, "and what the limit allows is not lost"


def test_f61_two_senders_share_one_limit() -> None:
    now = database_now()
    start = threading.Barrier(4)

    def work() -> int:
        start.wait(10)
        return sum(take("user:1", wanted=1, now=now)[0] for _ in range(20))

    senders = [Background(work) for _ in range(4)]
    assert sum(sender.result() for sender in senders) == 30


def test_f61_the_answer_says_when_there_is_room_again() -> None:
    start = timezone.now()
    assert take("user:1", wanted=10, now=start) == (10, start)
    later = start + timedelta(seconds=20)
    assert take("user:1", wanted=40, now=later) == (20, start + WINDOW)
    assert take("user:1", wanted=1, now=later) == (0, start + WINDOW)
    assert take("user:2", wanted=1, now=later)[0] == 1
    assert len(Allowance.objects.get(pk="user:1").used_at) == 30


def test_f61_up_to_ten_come_one_by_one_and_more_come_as_one(ada, monkeypatch) -> None:
    channel = Folder()
    monkeypatch.setitem(CHANNELS, "email", channel)
    for _ in range(FOLD_ABOVE):
        told()
    assert deliver() == Counter(sent=FOLD_ABOVE)
    assert (len(channel.references), channel.digests) == (FOLD_ABOVE, [])
    for number in range(3 * CLAIM_SIZE):
        told(reference=f"R{number:02}")
    assert deliver() == Counter(sent=3 * CLAIM_SIZE)
    assert channel.digests == [[f"R{number:02}" for number in range(3 * CLAIM_SIZE)]]
    assert len(channel.references) == FOLD_ABOVE


def test_f61_the_last_mail_that_a_minute_allows_carries_all_that_wait(
    ada, settings, monkeypatch
) -> None:
    settings.ESCALATION = {"messages_per_minute": 3}
    channel = Folder()
    monkeypatch.setitem(CHANNELS, "email", channel)
    for number in range(6):
        told(reference=f"R{number}")
    assert deliver() == Counter(sent=6)
    assert (channel.references, channel.digests) == (["R0", "R1"], [["R2", "R3", "R4", "R5"]])
    told(reference="R6")
    assert deliver() == Counter()
    a_minute_passes()
    assert deliver() == Counter(sent=1)
    assert channel.references == ["R0", "R1", "R6"]


def test_bug_33_hundreds_of_messages_at_once_are_a_few_mails(ada) -> None:
    for _ in range(300):
        told()
    bea = person("bea", "standard")
    told(reference="for both")
    assert deliver() == Counter(sent=302)
    to = Counter(address for sent in mail.outbox for address in sent.to)
    assert to["ada@example.com"] <= 5
    assert to[bea.email] == 1
    text = "\n".join(sent.body for sent in mail.outbox if sent.to == ["ada@example.com"])
    for reference in Dispute.objects.values_list("reference", flat=True):
        assert text.count(f"arrived in your queue: {reference}\n") == 1
    assert by_status() == Counter(sent=302)


def test_a_digest_that_fails_leaves_every_message_its_own_attempt_and_key(ada, monkeypatch) -> None:
    class Fails(Folder):
        def send_digest(self, messages: list[Outgoing]) -> None:
            super().send_digest(messages)
            raise DeliveryFailed("busy")

    monkeypatch.setitem(CHANNELS, "email", Fails())
    for _ in range(15):
        told()
    assert deliver() == Counter(pending=15)
    rows = Notification.objects.all()
    assert {(row.attempts, row.last_error) for row in rows} == {(1, "busy")}
    Notification.objects.update(not_before=database_now())
    works = Folder()
    monkeypatch.setitem(CHANNELS, "email", works)
    assert deliver() == Counter(sent=15)
    assert len(works.digests) == 1


def test_what_is_acknowledged_before_the_digest_leaves_is_not_in_it(ada, monkeypatch) -> None:
    channel = Folder()
    monkeypatch.setitem(CHANNELS, "email", channel)
    disputes = [told(reference=f"R{number:02}") for number in range(12)]
    failpoints.hooks["deliver.claimed"] = lambda: (
        failpoints.hooks.clear(),
        acknowledge(disputes[4].pk, actor=ada, seen_version=1, now=database_now()),
    )
    assert deliver() == Counter(sent=11, cancelled=1)
    assert channel.digests == [[f"R{number:02}" for number in range(12) if number != 4]]


def test_f87_bug_26_an_acknowledgement_cancels_every_message_that_has_not_begun_to_leave(
    ada, settings
) -> None:
    """Three people, two channels, one row in back-off after a 500."""
    person("bea", "standard")
    person("col", "standard")
    with http_server(answers(500)) as server:
        use(settings, ops=server.url)
        queue_told_by("webhook:ops", "email")
        dispute = told()

        def acknowledge_while_one_is_on_its_way() -> None:
            failpoints.hooks.clear()
            backing_off = Notification.objects.filter(attempts=1, status="pending")
            assert backing_off.count() == 1
            acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
            assert by_status(event="arrived")["pending"] == 0, "in its own transaction"

        failpoints.hooks["deliver.sent"] = acknowledge_while_one_is_on_its_way
        deliver()
        assert by_status(event="arrived") == Counter(sent=1, cancelled=3)
        for _ in range(10):
            Notification.objects.filter(status="pending").update(not_before=database_now())
            Destination.objects.update(rests_until=None)
            deliver()
        assert len(server.requests) == 1
    assert len(mail.outbox) == 1
    assert by_status(event="arrived") == Counter(sent=1, cancelled=3)


# People who left.


def test_who_left_the_queue_after_the_message_was_queued_does_not_get_it(ada) -> None:
    person("bea", "standard")
    told()
    Group.objects.get(name="default-standard").user_set.remove(ada)
    assert deliver() == Counter(sent=1)
    assert [sent.to for sent in mail.outbox] == [["bea@example.com"]]
    (row,) = Notification.objects.filter(recipient=f"user:{ada.pk}")
    assert (row.status, row.last_error) == ("cancelled", "the person left the queue")


def test_who_left_between_claim_and_send_does_not_get_it_either(ada) -> None:
    told()
    failpoints.hooks["deliver.claimed"] = lambda: Group.objects.get(
        name="default-standard"
    ).user_set.remove(ada)
    assert deliver() == Counter(cancelled=1)
    assert mail.outbox == []


def test_who_left_the_queue_still_hears_about_a_dispute_that_was_given_to_them(ada) -> None:
    boss = person("boss", "standard", rights=("assign",))
    dispute = told()
    assign(dispute.pk, to=ada, actor=boss, seen_version=1, now=database_now(), reason="yours")
    Group.objects.get(name="default-standard").user_set.remove(ada)
    assert deliver() == Counter(sent=1)
    (sent,) = mail.outbox
    assert sent.to == ["ada@example.com"]
    assert "ssigned to you" in sent.subject


def test_who_was_deactivated_gets_nothing_even_about_a_dispute_given_to_them(ada) -> None:
    boss = person("boss", "standard", rights=("assign",))
    dispute = told()
    assign(dispute.pk, to=ada, actor=boss, seen_version=1, now=database_now(), reason="yours")
    ada.is_active = False
    ada.save()
    assert deliver() == Counter()
    assert by_status(recipient=f"user:{ada.pk}") == Counter(cancelled=2)
    assert mail.outbox == []


def test_members_of_the_tier_left_behind_are_not_taken_for_members_of_the_next(ada) -> None:
    """Promoted: the message is for the next queue, whose member Ada is not."""
    eve = person("eve", "senior")
    dispute = told()
    promote([dispute.pk], now=database_now() + 2 * HOUR)
    Notification.objects.filter(status="pending").update(not_before=database_now())
    assert deliver() == Counter(sent=1)
    assert [sent.to for sent in mail.outbox] == [[eve.email]]
    assert by_status(recipient=f"user:{ada.pk}") == Counter(cancelled=1)


def test_allowances_are_taken_without_an_open_transaction(ada, monkeypatch) -> None:
    open_blocks = []
    real = allowance.take

    def looks(*args: object, **kwargs: object):
        open_blocks.append(connection.in_atomic_block)
        return real(*args, **kwargs)

    monkeypatch.setattr(allowance, "take", looks)
    told()
    assert deliver() == Counter(sent=1)
    assert open_blocks == [False]


# A large outbox.


def test_f119_claiming_stays_quick_behind_very_many_sent_messages(ada) -> None:
    dispute = told()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO disputes_notification (dispute_id, version, event, tier_id, channel,"
            " recipient, status, attempts, created_at, not_before, finished_at, last_error,"
            " idempotency_key) SELECT dispute_id, version, event, tier_id, channel,"
            " 'copy:' || n, 'sent', 1, created_at, not_before, created_at, '', 'copy:' || n"
            " FROM disputes_notification, generate_series(1, 100000) n WHERE dispute_id = %s",
            [dispute.pk],
        )
    now = database_now()
    rows = Notification.objects.filter(status="pending", not_before__lte=now)
    plan = rows.order_by("not_before", "id")[:CLAIM_SIZE].explain()
    assert "notification_pending" in plan
    assert "Seq Scan" not in plan
    assert outbox.claim_messages(now=now, limit=CLAIM_SIZE, lease=10 * MINUTE)
