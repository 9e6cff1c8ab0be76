"""Clocks of other products that went wrong, each made to happen here: who is due, and when."""

import logging
from collections import Counter
from datetime import timedelta
from threading import Event
from uuid import uuid4

import psycopg
import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import Client

from disputes.audit import verify
from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute, Notification, Queue
from disputes.rules import microseconds
from disputes.transitions.deadlines import decide, promote
from disputes.transitions.facts import SourceFacts, apply_facts
from disputes.transitions.opening import open_in_transaction
from disputes.transitions.resolving import resolve
from disputes.transitions.reviewing import acknowledge
from escalation import timeline
from escalation.drain import drain, drain_postgres, overdue
from escalation.models import Failure
from escalation.poller import Poller
from escalation.reconcile import rebuild
from escalation.redis_client import timeline_client
from escalation.timeline_keys import keys
from escalation.timeline_survey import scores
from reviewqueue import ready, ready_rounds
from reviewqueue.models import ApiToken
from reviewqueue.redis_client import ready_client
from reviewqueue.tokens import issue
from tests.faults.database_clock import DatabaseClock
from tests.faults.harness import assert_sound, open_due, promotions
from tests.races.gates import Background, Gate
from tests.situations import HOUR, MINUTE, SYSTEM, again, default_ladder, new, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
DAY = timedelta(days=1)


def test_bug_31_a_tier_whose_reviewers_all_left_is_noted_and_operators_hear_of_it(
    caplog: pytest.LogCaptureFixture, client: Client
) -> None:
    """It is promoted and waits there for the tier's span, as the operations guide says."""
    default_ladder()
    for name, queue in (("ada", "standard"), ("sam", "senior"), ("cho", "compliance")):
        person(name, queue)
    operator = person("olga", rights=("operate",))
    ids = open_due(2)
    Queue.objects.get(slug="senior").reviewers.get().user_set.update(is_active=False)

    with caplog.at_level(logging.ERROR):
        assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=2)

    for entry in AuditEntry.objects.filter(dispute__in=ids, version=2):
        assert (entry.reason, entry.to_due_at) == ("NO_REVIEWERS", entry.at + 2 * HOUR)
    assert not Notification.objects.filter(version=2).exists()
    (told,) = [r for r in caplog.records if r.message == "escalation.no_reviewers"]
    assert (told.disputes, told.tiers) == (2, ["senior"])
    client.force_login(operator)
    assert client.get("/queues/").content.count(b"nobody") == 1
    assert_sound()


def test_bug_34_the_oldest_always_fails_and_the_twenty_behind_it_move_in_the_first_run(
    clock: DatabaseClock, client: Client, settings
) -> None:
    settings.ESCALATION = {"max_attempts": 5}
    default_ladder()
    (oldest,) = open_due(1, seconds_ago=60)
    others = open_due(20)

    def choke(dispute: Dispute, **read: object):
        if dispute.pk == oldest:
            raise ValueError("poison")
        return decide(dispute, **read)

    def run() -> Counter[str]:
        return drain(linger_s=0, promote_ids=lambda b, now: promote(b, now=now, decide_one=choke))

    clock.stop_at(now := database_now())
    assert run() == Counter(PROMOTED_TO_SENIOR=20, PARKED=1)
    assert promotions(others) == 20
    waits_s = []
    while not (failure := Failure.objects.get()).parked_at:
        waits_s.append((failure.until - now).total_seconds())
        clock.stop_at(failure.until - MICROSECOND)
        assert run() == Counter(), "not before its time"
        clock.stop_at(now := failure.until)
        assert run() == Counter(PARKED=1)
    assert waits_s == [10, 20, 40, 80]
    assert (failure.attempts, failure.until - now) == (5, HOUR)
    assert (failure.pk, failure.reason) == (oldest, "ValueError: poison")
    said = client.get("/readyz").json()
    assert "parked disputes that need an operator: 1" in said["degraded"]
    assert said["parked"] == 1
    assert Dispute.objects.get(pk=oldest).version == 1


def test_bug_35_without_a_deadline_or_with_one_ahead_nobody_is_promoted() -> None:
    """Not even where Redis says that they are long due."""
    default_ladder(sla=3 * DAY)
    now = database_now()
    exhausted = opened(now=now - 10 * DAY, tier="compliance", due_at=now - DAY)
    promote([exhausted.pk], now=now)
    young = opened(now=now - SECOND)
    waiting = opened(now=now - 10 * DAY, status="paused")
    assert young.due_at == now - SECOND + 3 * DAY, "intake itself sets the deadline"
    all_of_them = [exhausted, young, waiting]
    assert [again(dispute).due_at for dispute in all_of_them] == [None, young.due_at, None]
    before = list(Dispute.objects.order_by("pk").values())
    rebuild()

    call_command("run_poller", "--once")
    timeline_client().zadd(keys().pending, {str(dispute.pk): 1 for dispute in all_of_them})
    call_command("run_poller", "--once")
    counts = drain(linger_s=0) + drain_postgres()

    assert counts.keys() <= {"NOT_DUE", "NO_LONGER_OPEN", "STUCK_MEMBER"}
    assert counts.total() == 3, "Redis proposed each of them"
    assert list(Dispute.objects.order_by("pk").values()) == before
    assert promotions() == 0
    assert_sound()


def test_bug_38_what_is_over_is_neither_promoted_nor_listed_nor_told(
    clock: DatabaseClock, client: Client
) -> None:
    """Resolved, closed by its source, and gone from the database, each a second before its time."""
    default_ladder()
    ada = person("ada", "standard")
    ready_rounds.rebuild(client=ready_client("worker"))
    clock.stop_at(now := database_now())
    resolved, closed, alive = (opened(now=now, due_at=now + SECOND) for _ in range(3))
    gone = str(uuid4())
    timeline.schedule([timeline.Entry(gone, microseconds(alive.due_at), 1, "standard", "", "a")])

    acknowledge(resolved.pk, actor=ada, seen_version=1, now=now)
    resolve(resolved.pk, outcome="defended", actor=ada, reason="seen", now=now)
    over = SourceFacts(source_hash="b" * 64, state="closed", result="won")
    apply_facts(closed.pk, over, actor=SYSTEM, now=now)

    ended = [resolved.pk, closed.pk]
    assert {again(d).due_at for d in (resolved, closed)} == {None}
    assert scores([str(pk) for pk in ended]) == {}
    assert not Notification.objects.filter(dispute__in=ended, status="pending").exists()
    clock.stop_at(now + 2 * SECOND)
    assert list(overdue(now=database_now())) == [alive]
    assert ready.depth(Queue.objects.get(slug="standard")) == 1
    client.force_login(ada)
    listed = client.get("/queues/default/standard/").content.decode()
    assert [d.reference in listed for d in (resolved, closed, alive)] == [False, False, True]
    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=1, STUCK_MEMBER=1)
    assert Poller(Event()).look().due == 0
    assert set(Dispute.objects.filter(pk__in=ended).values_list("status", "tier__slug")) == {
        ("resolved", "standard")
    }
    assert timeline.depth() == 1
    assert_sound()


def test_bug_46_an_intake_that_commits_late_is_due_by_its_receipt(clock: DatabaseClock) -> None:
    default_ladder(sla=MINUTE)
    gate = Gate()
    clock.stop_at(receipt := database_now())

    def slow_intake():
        with transaction.atomic(durable=True):
            made = open_in_transaction([new()], actor=SYSTEM, now=receipt, notify=False)
            gate()
            return made[0].id

    intake = Background(slow_intake)
    gate.wait()
    clock.stop_at(receipt + 10 * SECOND)
    quick = opened(now=database_now())
    assert timeline.depth() == 1, "nobody hears of what is not committed"
    gate.open.set()
    slow = Dispute.objects.get(pk=intake.result())

    assert slow.due_at == receipt + MINUTE
    assert scores([str(slow.pk)]) == {str(slow.pk): microseconds(receipt + MINUTE)}
    clock.stop_at(slow.due_at - MICROSECOND)
    assert drain(linger_s=0) == Counter()
    clock.stop_at(slow.due_at)
    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=1)
    assert (again(slow).tier.slug, again(quick).tier.slug) == ("senior", "standard")


def test_bug_46_the_log_is_in_order_of_versions_whatever_its_timestamps_say(
    owner_connection: psycopg.Connection,
) -> None:
    """As if the first entry had been the last to be stored, and by a clock an hour ahead."""
    default_ladder()
    ada = person("ada", "standard")
    dispute = opened(now=(now := database_now()), due_at=now + 3 * HOUR)
    acknowledge(dispute.pk, actor=ada, seen_version=1, now=now - HOUR)
    with owner_connection.transaction():
        owner_connection.execute("ALTER TABLE disputes_auditentry DISABLE TRIGGER USER")
        owner_connection.execute(
            "UPDATE disputes_auditentry SET recorded_at = recorded_at + interval '1 hour'"
            " WHERE version = 1"
        )
        owner_connection.execute("ALTER TABLE disputes_auditentry ENABLE TRIGGER USER")

    _, secret = issue(ada, name="test", scopes=ApiToken.Scope.values)
    program = Client(headers={"authorization": f"Bearer {secret}"})
    answer = program.get(f"/api/v1/disputes/{dispute.pk}/audit").json()
    assert [entry["version"] for entry in answer["entries"]] == [1, 2]
    assert list(verify()) == [None]
