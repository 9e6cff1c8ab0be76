"""The drain against real servers: everything due moves once, whatever Redis believes."""

import threading
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError, connection

from disputes import failpoints
from disputes.clock import database_now
from disputes.ladders import lift_pause, pause_ladder
from disputes.models import AuditEntry, Dispute
from disputes.rules import microseconds
from disputes.transitions.deadlines import decide, promote
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.drain import drain, drain_postgres, promote_batch
from escalation.models import Failure
from escalation.redis_client import timeline_client
from escalation.timeline_keys import keys
from tests.situations import HOUR, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


def overdue_dispute(seconds: int = 1) -> Dispute:
    now = database_now()
    return opened(now=now - 3 * HOUR, due_at=now - timedelta(seconds=seconds))


def future_dispute() -> Dispute:
    now = database_now()
    return opened(now=now, due_at=now + HOUR)


def test_a_drain_of_everything_past_due_leaves_none_due():
    default_ladder()
    due = [overdue_dispute(n) for n in range(1, 8)]
    waiting = [future_dispute() for _ in range(3)]

    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=7)

    assert timeline.depth() == 10
    assert {again(d).tier.slug for d in due} == {"senior"}
    assert {again(d).version for d in waiting} == {1}
    assert drain(linger_s=0) == Counter()


def test_the_timeline_holds_exactly_what_postgres_says_after_a_drain():
    default_ladder()
    dispute = overdue_dispute()
    drain(linger_s=0)
    row = again(dispute)
    assert survey.scores([str(row.pk)]) == {str(row.pk): microseconds(row.due_at)}
    assert survey.payload_versions([str(row.pk)]) == {str(row.pk): 2}


def test_the_last_tier_ends_the_climb_and_leaves_the_timeline():
    default_ladder()
    now = database_now()
    dispute = opened(now=now - 3 * HOUR, due_at=now - HOUR, tier="compliance")
    assert drain(linger_s=0) == Counter(TERMINAL_ESCALATION=1)
    row = again(dispute)
    assert (row.status, row.due_at, row.exhausted_at is not None) == ("open", None, True)
    assert timeline.depth() == 0


def test_a_poison_dispute_is_put_off_and_the_others_go_on():
    default_ladder()
    # In the middle of the batch, where only halving finds it.
    poison = overdue_dispute(10)
    others = [overdue_dispute(n) for n in range(1, 21)]

    def choke(dispute, **kwargs):
        if dispute.pk == poison.pk:
            raise ValueError("poison")
        return decide(dispute, **kwargs)

    def promote_or_choke(ids, *, now):
        return promote(ids, now=now, decide_one=choke)

    counts = drain(linger_s=0, promote_ids=promote_or_choke)

    assert counts["PROMOTED_TO_SENIOR"] == 20
    assert {again(d).tier.slug for d in others} == {"senior"}
    failure = Failure.objects.get(pk=poison.pk)
    assert (failure.attempts, failure.parked_at, failure.reason) == (1, None, "ValueError: poison")
    assert again(poison).version == 1

    Failure.objects.filter(pk=poison.pk).update(until=database_now())
    assert drain_postgres() == Counter(PROMOTED_TO_SENIOR=1)
    assert not Failure.objects.exists()


def test_a_dispute_is_parked_after_the_last_attempt_and_tried_again_an_hour_later(settings):
    settings.ESCALATION = {"max_attempts": 2}
    default_ladder()
    poison = overdue_dispute()
    now = database_now()

    def choke(ids, *, now):
        raise ValueError("poison")

    for _ in range(2):
        assert promote_batch([poison.pk], now=now, promote_ids=choke) == {poison.pk: "PARKED"}
    failure = Failure.objects.get(pk=poison.pk)
    assert (failure.attempts, failure.parked_at, failure.until) == (2, now, now + HOUR)
    assert drain(linger_s=0) == Counter(PARKED=1)
    assert survey.scores([str(poison.pk)])[str(poison.pk)] == microseconds(failure.until)


def test_an_unknown_member_and_garbage_leave_the_timeline():
    default_ladder()
    client = timeline_client()
    stranger = str(uuid4())
    client.zadd(keys().pending, {stranger: 1, "garbage": 2})
    counts = drain(linger_s=0)
    assert counts == Counter(STUCK_MEMBER=2)
    assert timeline.depth() == 0


def test_a_timeline_ahead_of_a_restored_postgres_gives_way():
    default_ladder()
    dispute = overdue_dispute()
    entry = timeline.Entry(str(dispute.pk), 1, 9, "compliance", "", "b" * 64)
    assert timeline.schedule([entry]) == 1
    # The sync after the promotion is refused (version 2 against 9); the next look settles it.
    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=1, NOT_DUE=1)
    row = again(dispute)
    assert survey.payload_versions([str(row.pk)]) == {str(row.pk): 2}
    assert survey.scores([str(row.pk)])[str(row.pk)] > 10**15


def test_drains_side_by_side_promote_each_deadline_once():
    default_ladder()
    person("sam", "senior")
    disputes = [overdue_dispute(n) for n in range(1, 41)]
    start = threading.Barrier(4)

    def work():
        start.wait()
        drain(linger_s=0)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drain(linger_s=0)
    promoted = AuditEntry.objects.filter(action="promoted")
    assert promoted.count() == len(disputes)
    assert {again(d).tier.slug for d in disputes} == {"senior"}


def test_a_paused_ladder_stands_still_and_goes_on_when_the_pause_is_lifted():
    ladder = default_ladder()
    dispute = overdue_dispute()
    ladder.paused_at = database_now() - HOUR
    ladder.save()
    drain(linger_s=0)
    assert again(dispute).version == 1
    ladder.paused_at = None
    ladder.save()
    assert drain_postgres() == Counter(PROMOTED_TO_SENIOR=1)


def test_pausing_and_lifting_put_the_whole_ladder_off_the_timeline_and_back():
    default_ladder()
    waiting = future_dispute()
    late = overdue_dispute()
    pause_ladder("default", until=None, reason="holiday", now=database_now())
    assert timeline.depth() == 0
    assert drain(linger_s=0) == drain_postgres() == Counter()
    lift_pause("default")
    assert timeline.depth() == 2
    assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=1)
    assert (again(waiting).version, again(late).version) == (1, 2)


def test_a_pause_with_an_end_moves_the_look_to_that_end():
    default_ladder()
    late = overdue_dispute()
    until = database_now() + HOUR
    pause_ladder("default", until=until, reason="", now=database_now())
    assert survey.scores([str(late.pk)]) == {str(late.pk): microseconds(until)}


def test_a_connection_that_broke_without_a_code_is_nobodys_fault() -> None:
    """A client that reads half an answer has neither a code nor, at once, a closed connection."""
    default_ladder()
    due = overdue_dispute()
    breaks = [OperationalError("consuming input failed: server closed the connection")]

    def hook() -> None:
        if breaks:
            raise breaks.pop()

    failpoints.hooks["promote.selected"] = hook
    try:
        assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=1)
    finally:
        failpoints.hooks.clear()
    assert again(due).tier.slug == "senior"
    assert not Failure.objects.exists()
