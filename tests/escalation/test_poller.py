"""When the poller looks, whom it rings, and what it hands over that Redis never heard of."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import InterfaceError, OperationalError
from redis import Redis

from config.processes import wait_until
from disputes import failpoints
from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute, Notification
from disputes.rules import microseconds
from escalation import poller as poller_module
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.doorbell import MOST_WAITING, waiting
from escalation.drain import drain
from escalation.failures import put_off
from escalation.models import DutyTurn, Heartbeat
from escalation.poller import LEAD_S, Poller, hand_over_unknown, pause_s, run_due_duties, take_turn
from escalation.redis_client import timeline_client
from escalation.timeline_keys import keys
from tests.races.gates import Background
from tests.situations import HOUR, MINUTE, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

TIMEOUT_S = 10


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def poller(stop: threading.Event, settings) -> Poller:
    settings.ESCALATION = {"jitter": 0, "poll_interval_s": 5}
    default_ladder()
    return Poller(stop=stop, name="poller@test")


def due_in(seconds: float, **facts: object) -> Dispute:
    now = database_now()
    return opened(now=now - 3 * HOUR, due_at=now + timedelta(seconds=seconds), **facts)


def unknown_to_redis(dispute: Dispute) -> Dispute:
    """As if the write after the commit had been lost."""
    timeline.unschedule([(str(dispute.pk), dispute.version)])
    timeline_client().delete(f"{keys().fence}{dispute.pk}")
    return dispute


def test_with_nothing_to_wait_for_it_rests_one_interval(poller: Poller) -> None:
    found = poller.look()
    assert (found.due, found.rung, found.handed_over, found.rest_s) == (0, 0, 0, 5.0)


def test_rests_stray_by_the_jitter_and_no_further(poller: Poller, settings) -> None:
    settings.ESCALATION = {"jitter": 0.5, "poll_interval_s": 4}
    rests = [poller.look().rest_s for _ in range(60)]
    assert all(2 <= rest_s <= 6 for rest_s in rests)
    assert max(rests) - min(rests) > 1


def test_it_rests_until_shortly_before_the_earliest_deadline(poller: Poller) -> None:
    due_in(3)
    due_in(2)
    found = poller.look()
    assert (found.due, found.rung) == (0, 0)
    assert 1 < found.rest_s < 2 - LEAD_S


def test_a_deadline_far_away_does_not_shorten_the_rest(poller: Poller) -> None:
    due_in(3600)
    assert poller.look().rest_s == 5.0


def test_shortly_before_a_deadline_a_worker_is_rung_so_that_it_waits_for_the_instant(
    poller: Poller,
) -> None:
    due_in(LEAD_S / 2)
    found = poller.look()
    assert (found.due, found.rung, waiting("escalations")) == (1, 1, 1)


@pytest.mark.parametrize(("due", "batch_size", "rung"), [(1, 1, 1), (3, 1, 3), (30, 10, 3)])
def test_it_rings_one_worker_for_each_batch(
    poller: Poller, settings, due: int, batch_size: int, rung: int
) -> None:
    settings.ESCALATION = {"batch_size": batch_size}
    for _ in range(due):
        due_in(-1)
    assert (poller.look().rung, waiting("escalations")) == (rung, rung)


def test_ten_looks_at_the_same_deadlines_ring_no_more_than_a_few(poller: Poller, settings) -> None:
    settings.ESCALATION = {"batch_size": 1}
    for _ in range(12):
        due_in(-1)
    for _ in range(10):
        assert poller.look().due == 12
    assert waiting("escalations") == MOST_WAITING


def test_ten_pollers_that_look_at_one_instant_ring_one_worker(poller: Poller, stop) -> None:
    due_in(-0.5)
    start = threading.Barrier(10)

    def look() -> int:
        start.wait(TIMEOUT_S)
        return Poller(stop=stop).look().rung

    looks = [Background(look) for _ in range(10)]
    assert sum(each.result() for each in looks) == 1
    assert waiting("escalations") == 1


def test_while_nobody_works_it_looks_less_and_less_often(poller: Poller) -> None:
    due_in(-0.5)
    rests = [poller.look().rest_s for _ in range(10)]
    assert rests == sorted(rests)
    assert rests[0] == pytest.approx(0.02)
    assert rests[-1] == pytest.approx(1.0)
    drain(linger_s=0)
    assert poller.look().rest_s == 5.0


def test_members_that_a_worker_holds_are_not_rung_for_again(poller: Poller) -> None:
    due_in(-0.5)
    timeline.claim(now_us=microseconds(database_now()), limit=10, token="a worker")
    assert (poller.look().rung, waiting("escalations")) == (0, 0)


def test_an_overdue_dispute_that_redis_never_heard_of_is_handed_over_and_promoted(
    poller: Poller,
) -> None:
    survey.set_epoch()
    lost, known = unknown_to_redis(due_in(-2)), due_in(-3)
    found = poller.look()
    assert found.handed_over == 1
    assert waiting("escalations") >= 1
    drain(linger_s=0)
    assert {again(lost).tier.slug, again(known).tier.slug} == {"senior"}


def test_a_row_that_redis_believes_to_be_due_later_is_handed_over_too(poller: Poller) -> None:
    survey.set_epoch()
    late = due_in(-2)
    timeline_client().zadd(keys().pending, {str(late.pk): microseconds(database_now() + HOUR)})
    assert poller.look().handed_over == 1
    assert survey.scores([str(late.pk)]) == {str(late.pk): microseconds(late.due_at)}


def test_a_lost_row_behind_many_known_ones_is_found_all_the_same(
    poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "PAGE", 3)
    for seconds in range(20, 30):
        due_in(-seconds)
    unknown_to_redis(due_in(-5))
    assert hand_over_unknown(now=database_now()) == 1


def test_within_the_first_second_nothing_is_handed_over(poller: Poller) -> None:
    survey.set_epoch()
    unknown_to_redis(due_in(-0.3))
    assert poller.look().handed_over == 0


def test_put_off_disputes_and_paused_ladders_are_left_out(poller: Poller) -> None:
    survey.set_epoch()
    now = database_now()
    put_off(due_in(-20).pk, error=ValueError("poison"), now=now)
    stopped = default_ladder(slug="stopped")
    paused = due_in(-20, ladder="stopped")
    stopped.paused_at = now - MINUTE
    stopped.save()
    for dispute in Dispute.objects.all():
        unknown_to_redis(dispute)
    assert poller.look().handed_over == 0
    stopped.paused_at = None
    stopped.save()
    assert hand_over_unknown(now=database_now()) == 1
    assert survey.scores([str(paused.pk)]) != {}


def test_a_timeline_that_was_lost_is_rebuilt_at_the_next_sweep(
    poller: Poller, redis_client: Redis
) -> None:
    dispute = due_in(3600)
    redis_client.flushdb()
    poller.look()
    assert survey.is_built()
    assert survey.scores([str(dispute.pk)]) == {str(dispute.pk): microseconds(dispute.due_at)}


def test_each_sweep_leaves_a_heartbeat_by_the_clock_of_postgres(poller: Poller) -> None:
    before = database_now()
    poller.look()
    beat = Heartbeat.objects.get(name="poller@test")
    assert before <= beat.at <= database_now()
    assert beat.detail == {"due": 0, "handed_over": 0, "degraded": ""}


def test_messages_that_nobody_rang_for_are_rung_for(poller: Poller, redis_client: Redis) -> None:
    person("ada", "standard")
    due_in(3600)
    redis_client.flushdb()
    Notification.objects.update(not_before=database_now() - MINUTE)
    poller.look()
    assert waiting("notifications") == 1


def test_a_resting_poller_wakes_when_an_earlier_deadline_arrives(
    poller: Poller, stop: threading.Event, settings
) -> None:
    settings.ESCALATION = {"jitter": 0, "poll_interval_s": 60, "reconcile_interval_s": 60}
    running = Background(poller.run)
    try:
        until(lambda: Heartbeat.objects.exists() and subscribers() == 1)
        due_in(-0.1)
        until(lambda: waiting("escalations") == 1)
    finally:
        stop.set()
    running.result()


def subscribers() -> int:
    return timeline_client().pubsub_numsub(keys().wake)[0][1]


def until(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, timeout_s=TIMEOUT_S, every_s=0.01), "waited in vain"


@pytest.mark.parametrize("place", ["poller.before_ring", "poller.after_ring", "poller.looked"])
def test_no_trouble_at_any_place_ends_the_loop(
    poller: Poller, stop: threading.Event, settings, place: str
) -> None:
    """Whatever fails is logged and the next look comes."""
    settings.ESCALATION = {"jitter": 0, "poll_interval_s": 1}
    troubles = [ValueError("a defect"), InterfaceError("gone"), OperationalError("gone")]

    def hook() -> None:
        if troubles:
            raise troubles.pop()
        failpoints.hooks.pop(place, None)

    due_in(-1)
    failpoints.hooks[place] = hook
    running = Background(poller.run)
    try:
        until(lambda: place not in failpoints.hooks)
    finally:
        stop.set()
        running.result()
        failpoints.hooks.clear()


def test_one_process_an_interval_gets_the_turn_of_a_duty() -> None:
    now = database_now()
    assert [take_turn("count", now=now, interval_s=60) for _ in range(3)] == [True, False, False]
    assert not take_turn("count", now=now + timedelta(seconds=59), interval_s=60)
    assert take_turn("count", now=now + timedelta(seconds=60), interval_s=60)


def test_pollers_that_ask_at_one_instant_share_one_turn() -> None:
    now = database_now()
    start = threading.Barrier(6)

    def ask() -> bool:
        start.wait(TIMEOUT_S)
        return take_turn("count", now=now, interval_s=60)

    assert sum(each.result() for each in [Background(ask) for _ in range(6)]) == 1
    later = now + MINUTE
    start.reset()

    def ask_later() -> bool:
        start.wait(TIMEOUT_S)
        return take_turn("count", now=later, interval_s=60)

    assert sum(each.result() for each in [Background(ask_later) for _ in range(6)]) == 1


def test_reconcile_is_a_duty_and_repairs(poller: Poller) -> None:
    dispute = unknown_to_redis(due_in(3600))
    run_due_duties(now=database_now())
    assert survey.scores([str(dispute.pk)]) != {}
    assert DutyTurn.objects.get(name="escalation.reconcile").last_result["missing"] == 1


def refuse(*, now: object) -> None:
    raise OSError("a duty that fails")


calls: list[object] = []


def remember(*, now: object) -> None:
    calls.append(now)


def test_a_duty_that_fails_does_not_keep_the_others_from_running(settings) -> None:
    here = "tests.escalation.test_poller"
    settings.ESCALATION = {"duties": [f"{here}.refuse", f"{here}.remember"]}
    calls.clear()
    now = database_now()
    run_due_duties(now=now)
    assert calls == [now]
    assert not AuditEntry.objects.exists()


def test_a_head_of_locked_members_longer_than_the_look_does_not_silence_the_bell(redis_client):
    default_ladder()
    now = database_now()
    locked = [str(uuid4()) for _ in range(sum(timeline.EARLIEST_PAGES))]
    entries = [timeline.Entry(id_, n, 1, "standard", "", "a" * 64) for n, id_ in enumerate(locked)]
    timeline.schedule(entries)
    redis_client.mset({keys().lock + id_: "somebody" for id_ in locked})
    dispute = opened(now=now - 3 * HOUR, due_at=now - timedelta(milliseconds=1))
    assert Poller(stop=threading.Event()).look().rung == 1
    assert drain(linger_s=0)["PROMOTED_TO_SENIOR"] == 1
    assert again(dispute).tier.slug == "senior"


def test_a_timeline_of_the_wrong_type_is_removed_and_built_again(redis_client):
    default_ladder()
    now = database_now()
    dispute = opened(now=now, due_at=now + HOUR)
    redis_client.delete(keys().pending)
    redis_client.set(keys().pending, "hello")
    one = Poller(stop=threading.Event())
    one.look()
    one._next_sweep_at = None
    one.look()
    assert survey.scores([str(dispute.pk)]) == {str(dispute.pk): microseconds(dispute.due_at)}


def test_f14_with_another_layout_the_poller_promotes_from_postgres_and_says_why(
    redis_client,
):
    default_ladder()
    now = database_now()
    dispute = opened(now=now - 3 * HOUR, due_at=now - MINUTE)
    survey.set_epoch("99")
    found = Poller(stop=threading.Event()).look()
    assert "layout 99" in found.degraded
    assert survey.epoch() == "99"
    assert again(dispute).tier.slug == "senior"


def test_a_running_poller_keeps_a_deadline_that_the_workers_leave_lying(settings):
    settings.ESCALATION = {"lock_ttl_s": 5}
    default_ladder()
    now = database_now()
    late = opened(now=now - 3 * HOUR, due_at=now - timedelta(seconds=6))
    recent = opened(now=now - 3 * HOUR, due_at=now - timedelta(seconds=2))
    Poller(stop=threading.Event())._rescue()
    assert again(late).tier.slug == "senior"
    assert again(recent).tier.slug == "senior"


def test_a_deadline_that_a_dead_claim_may_still_hold_is_left_to_the_workers():
    default_ladder()
    now = database_now()
    recent = opened(now=now - 3 * HOUR, due_at=now - timedelta(seconds=2))
    Poller(stop=threading.Event())._rescue()
    assert again(recent).version == 1


def test_a_pause_after_trouble_grows_to_an_interval_and_no_further(settings) -> None:
    settings.ESCALATION = {"poll_interval_s": 5}
    assert [pause_s(n) for n in (1, 2, 3, 4, 5, 6, 2_000)] == [0.5, 1, 2, 4, 5, 5, 5]


def test_a_sweep_frees_queues_that_no_worker_gets_past(poller: Poller, redis_client: Redis) -> None:
    redis_client.set("rq:queue:notifications", "a stranger's")
    poller.look()
    assert not redis_client.exists("rq:queue:notifications")
