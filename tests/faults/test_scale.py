"""Very many at once: after an outage, at one instant, behind a stuck head, with poison inside."""

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.db.models import F, Max, Q

from config.processes import session_members
from disputes.clock import database_now
from disputes.invariants import broken
from disputes.models import AuditEntry, Dispute, Notification
from disputes.rules import microseconds
from disputes.transitions.deadlines import promote
from disputes.transitions.opening import open_disputes
from disputes.transitions.reviewing import acknowledge
from escalation import timeline
from escalation.drain import drain
from escalation.models import Failure, Heartbeat
from escalation.reconcile import compare, rebuild
from tests.faults.database_clock import DatabaseClock
from tests.faults.harness import (
    KNOBS,
    Crew,
    Member,
    assert_each_promoted_once,
    assert_sound,
    messages,
    open_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.situations import HOUR, SYSTEM, default_ladder, new, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

OUTAGE = 100_000
PORTION = 2_000
MOST_MEMORY_MB = 400
MAILS_A_MINUTE = 5
LONG_S = 1_200


def open_many(number: int, *, due_at: datetime) -> None:
    """So many disputes with one deadline, a portion at a time."""
    for begun in range(0, number, PORTION):
        batch = [new(due_at=due_at) for _ in range(min(PORTION, number - begun))]
        open_disputes(batch, actor=SYSTEM, now=due_at - 3 * HOUR, notify=False)


def peak_memory_mb(member: Member) -> float:
    """The most that any living process of the member's session ever used."""
    peaks = [0.0]
    for pid in session_members(member.process.pid):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        peaks += [int(line.split()[1]) / 1024 for line in status.splitlines() if "VmHWM" in line]
    return max(peaks)


def assert_all_promoted_once(number: int) -> None:
    """By counts alone: there are too many to name."""
    promoted = AuditEntry.objects.filter(action=AuditEntry.Action.PROMOTED)
    assert promoted.count() == promoted.values("dispute").distinct().count() == number
    assert Dispute.objects.filter(version=2, tier__slug="senior").count() == number
    assert not promoted.filter(recorded_at__lt=F("from_due_at")).exists()
    assert not Failure.objects.exists()
    assert broken() == []
    assert compare().is_clean


@pytest.mark.long
def test_f60_bug_33_a_hundred_thousand_overdue_are_promoted_once_while_people_work(
    crew: Crew,
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    open_many(OUTAGE, due_at=database_now() - HOUR)
    waiting = open_due_in(200, seconds=7200)
    rebuild()
    members = [crew.poller(), *(crew.worker("escalations") for _ in range(2))]
    took_s: list[float] = []
    peaks: list[float] = []

    def all_promoted() -> bool:
        if len(took_s) < len(waiting):
            began = time.monotonic()
            acknowledge(waiting[len(took_s)], actor=ada, seen_version=1, now=database_now())
            took_s.append(time.monotonic() - began)
        peaks.append(max(map(peak_memory_mb, members)))
        return promotions() >= OUTAGE

    crew.wait(all_promoted, timeout_s=LONG_S)
    assert len(took_s) > 10, "it was over before people could be in its way"
    assert statistics.quantiles(took_s, n=20)[-1] < 1
    assert max(peaks) < MOST_MEMORY_MB
    assert all(member.is_running for member in members)
    crew.wait(redis_is_in_step, timeout_s=LONG_S)
    assert_all_promoted_once(OUTAGE)


def test_bug_33_a_thousand_overdue_by_three_tiers_climb_one_tier_and_flood_nobody(
    crew: Crew, crews_clock: DatabaseClock
) -> None:
    """The next span counts from the promotion. The clock stands, so that a minute is a minute."""
    default_ladder()
    ada = person("ada", "standard")
    for name in ("sam", "sue"):
        person(name, "senior")
    crews_clock.stop_at(now := database_now())
    ids = open_due(1_000, seconds_ago=7 * 3600)
    rebuild()
    knobs = json.dumps({**KNOBS, "messages_per_minute": MAILS_A_MINUTE, "batch_size": 10})
    queues = ("escalations", "escalations", "notifications")
    members = [crew.poller(ESCALATION=knobs)]
    members += [crew.worker(queue, ESCALATION=knobs) for queue in queues]

    took_s: list[float] = []

    def wave_is_over() -> bool:
        """Somebody takes a dispute at every look."""
        if len(took_s) < 100:
            began = time.monotonic()
            acknowledge(ids[-1 - len(took_s)], actor=ada, seen_version=1, now=now)
            took_s.append(time.monotonic() - began)
        return not Dispute.objects.filter(status="open", due_at__lte=now).exists()

    crew.wait(wave_is_over, timeout_s=120)
    assert len(took_s) > 3, "it was over before people could be in its way"
    assert statistics.quantiles(took_s, n=10)[-1] < 1
    assert max(map(peak_memory_mb, members)) < MOST_MEMORY_MB
    rows = Dispute.objects.filter(pk__in=ids[: -len(took_s)])
    assert set(rows.values_list("status", "version", "tier__slug", "due_at")) == {
        ("open", 2, "senior", now + 2 * HOUR)
    }
    promoted = AuditEntry.objects.filter(action=AuditEntry.Action.PROMOTED)
    assert promoted.count() == promoted.values("dispute").distinct().count()

    minutes: list[Counter[str]] = []
    while not minutes or messages("pending"):
        crew.wait(lambda: not can_leave_now(), timeout_s=120)
        minutes.append(Counter(mail["To"] for mail in crew.mails()) - sum(minutes, Counter()))
        crews_clock.move(timedelta(seconds=62))
    assert len(minutes) > 1, "the limit was never reached"
    assert max(max(minute.values()) for minute in minutes) <= MAILS_A_MINUTE
    told = Counter(
        (mail["To"], reference)
        for mail in crew.mails()
        for reference in re.findall("arrived in your queue: (.+)", mail.get_content())
    )
    assert set(told.values()) == {1}
    assert len(told) == messages("sent") >= 2 * rows.count()
    crew.wait(redis_is_in_step)
    assert_sound()


def can_leave_now() -> bool:
    """Whether a message is being sent or could be, by the clock of the database."""
    pending = Q(status="pending", not_before__lte=database_now())
    return Notification.objects.filter(pending | Q(status="sending")).exists()


@pytest.mark.long
def test_three_thousand_due_at_one_instant_are_promoted_once_each_and_none_early(
    crew: Crew,
) -> None:
    default_ladder()
    crew.poller()
    for _ in range(2):
        crew.worker("escalations")
    crew.wait(Heartbeat.objects.exists)
    instant = database_now() + 20 * (HOUR / 3600)
    open_many(3_000, due_at=instant)
    assert database_now() < instant, "they were to be there before the instant"
    crew.wait(lambda: promotions() >= 3_000, timeout_s=120)
    crew.wait(redis_is_in_step)
    last = AuditEntry.objects.filter(action="promoted").aggregate(last=Max("recorded_at"))["last"]
    assert (last - instant).total_seconds() < 30
    assert_all_promoted_once(3_000)


@pytest.mark.long
def test_ten_thousand_parked_or_locked_before_them_do_not_hold_the_others_up(settings) -> None:
    settings.ESCALATION = {**KNOBS, "lock_ttl_s": 120}
    default_ladder()
    now = database_now()
    open_many(10_000, due_at=now - HOUR)
    head = list(Dispute.objects.order_by("due_at", "pk").values_list("pk", flat=True))
    behind = open_due(50)
    rebuild()
    put_off(head[5_000:], now=now)
    cursor = None
    for number in range(20):
        held = timeline.claim(
            now_us=microseconds(now), limit=250, token=f"other-{number}", cursor=cursor
        )
        assert len(held.ids) == 250
        cursor = held.cursor
    for _ in range(3):
        # Every call has a budget: what is parked costs it a look, once.
        drain(linger_s=0)
    assert promotions(behind) == len(behind)
    assert promotions() == len(behind)


def put_off(ids: Sequence[UUID], *, now: datetime) -> None:
    """As after failures; Redis has not heard of it."""
    Failure.objects.bulk_create(
        Failure(pk=id_, until=now + HOUR, reason="test", first_at=now, last_at=now) for id_ in ids
    )


def test_f63_bug_34_one_poison_dispute_in_every_batch_stops_nobody_but_itself(settings) -> None:
    settings.ESCALATION = {**KNOBS, "batch_size": 20}
    default_ladder()
    ids = open_due(300)
    rebuild()
    order = sorted(ids, key=lambda id_: (Dispute.objects.get(pk=id_).due_at, str(id_)))
    poison = set(order[7::20])
    assert len(poison) == 15

    def fails_for_some(batch: Sequence[UUID], *, now: datetime) -> dict[UUID, str]:
        if poison.intersection(batch):
            raise ValueError("poison")
        return promote(batch, now=now)

    counts = drain(linger_s=0, promote_ids=fails_for_some)
    assert counts["PROMOTED_TO_SENIOR"] == 285
    assert set(Failure.objects.values_list("pk", flat=True)) == poison
    assert drain(linger_s=0, promote_ids=fails_for_some) == Counter(), "put off is not tried"
    Failure.objects.all().delete()
    rebuild()
    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=15)
    assert_each_promoted_once(ids)
