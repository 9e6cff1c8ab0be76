"""Every kind of drift between Redis and Postgres is found and repaired; health costs no write."""

import logging
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from redis import Redis

from disputes import failpoints
from disputes.clock import database_now
from disputes.models import Dispute, Ladder, Notification
from disputes.rules import microseconds
from disputes.transitions.deadlines import promote
from disputes.transitions.reviewing import acknowledge
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.delivery import LEASE
from escalation.failures import put_off
from escalation.reconcile import STRANDED_GRACE, Drift, compare, reconcile
from escalation.redis_client import timeline_client
from escalation.timeline_keys import keys
from tests.situations import HOUR, MINUTE, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

READING = {
    "zscan",
    "zmscore",
    "mget",
    "evalsha",
    "script|load",
    "hget",
    "ttl",
    "time",
    "select",
    "auth",
    "hello",
    "info",
    "ping",
    "get",
    "client|setinfo",
    "config|resetstat",
}


@pytest.fixture
def dispute() -> Dispute:
    default_ladder()
    return future()


def future() -> Dispute:
    now = database_now()
    return opened(now=now, due_at=now + HOUR)


def drop_member(dispute: Dispute) -> None:
    timeline_client().zrem(keys().pending, str(dispute.pk))


def drop_all(dispute: Dispute) -> None:
    drop_member(dispute)
    timeline_client().delete(f"{keys().payload}{dispute.pk}")


def drop_payload(dispute: Dispute) -> None:
    timeline_client().delete(f"{keys().payload}{dispute.pk}")


def let_payload_expire(dispute: Dispute) -> None:
    timeline_client().expire(f"{keys().payload}{dispute.pk}", 1000)


def break_payload(dispute: Dispute) -> None:
    timeline_client().set(f"{keys().payload}{dispute.pk}", "no hash")


def move(dispute: Dispute) -> None:
    timeline_client().zincrby(keys().pending, 1, str(dispute.pk))


def move_to_infinity(dispute: Dispute) -> None:
    timeline_client().zadd(keys().pending, {str(dispute.pk): float("inf")})


def claim_an_older_version(dispute: Dispute) -> None:
    timeline_client().hset(f"{keys().payload}{dispute.pk}", "version", 0)


def claim_a_newer_version(dispute: Dispute) -> None:
    """As after Postgres was restored to an earlier state."""
    timeline_client().hset(f"{keys().payload}{dispute.pk}", "version", 9)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (drop_member, "missing"),
        (drop_all, "missing"),
        (drop_payload, "stuck"),
        (let_payload_expire, "stuck"),
        (break_payload, "stuck"),
        (move, "misplaced"),
        (move_to_infinity, "misplaced"),
        (claim_an_older_version, "misplaced"),
        (claim_a_newer_version, "misplaced"),
    ],
)
def test_f32_f33_damage_to_one_dispute_is_named_and_repaired_and_the_others_are_left_alone(
    dispute: Dispute, damage: Callable[[Dispute], None], kind: str
) -> None:
    sound = future()
    damage(dispute)
    found = compare()
    assert {
        name: getattr(found, name) for name in ("missing", "orphaned", "misplaced", "stuck")
    } == {"missing": [], "orphaned": [], "misplaced": [], "stuck": []} | {kind: [str(dispute.pk)]}
    assert reconcile().repaired >= 1
    after = compare()
    assert after.is_clean, after
    score = {str(d.pk): microseconds(d.due_at) for d in (dispute, sound)}
    assert survey.scores(list(score)) == score
    assert survey.payload_versions(list(score)) == dict.fromkeys(score, 1)


def test_members_that_are_no_dispute_or_have_no_deadline_are_orphans_and_leave(
    dispute: Dispute,
) -> None:
    stranger, late = str(uuid4()), str(dispute.pk)
    now = database_now()
    ended = opened(now=now - 3 * HOUR, due_at=now - HOUR, tier="compliance")
    promote([ended.pk], now=now)
    never = str(uuid4())
    orphans = {stranger: 5, str(ended.pk): 5, never: float("inf")}
    timeline_client().zadd(keys().pending, orphans)
    found = compare()
    assert found.orphaned == sorted(orphans)
    reconcile()
    assert survey.scores([*orphans, late]) == {late: microseconds(dispute.due_at)}
    assert compare().is_clean


def test_members_that_are_no_ids_are_stuck_and_leave(dispute: Dispute) -> None:
    timeline_client().zadd(
        keys().pending, {"garbage": 1, str(dispute.pk).upper(): 2, b"\xff\xfe": 3}
    )
    assert len(compare().stuck) == 3
    assert reconcile().repaired == 3
    assert timeline.depth() == 1


def test_a_put_off_dispute_stands_at_the_end_of_its_pause(dispute: Dispute) -> None:
    failure = put_off(dispute.pk, error=ValueError("x"), now=dispute.due_at)
    assert compare().misplaced == [str(dispute.pk)]
    reconcile()
    assert survey.scores([str(dispute.pk)]) == {str(dispute.pk): microseconds(failure.until)}


def test_a_paused_ladder_is_off_the_timeline_and_comes_back(dispute: Dispute) -> None:
    Ladder.objects.update(paused_at=database_now() - MINUTE)
    assert reconcile().orphaned == [str(dispute.pk)]
    assert timeline.depth() == 0
    Ladder.objects.update(paused_at=None)
    assert reconcile().missing == [str(dispute.pk)]
    assert timeline.depth() == 1


def test_a_healthy_system_sees_no_write_at_all(own_redis: Redis) -> None:
    """By the server's own count of commands, and by what every key holds."""
    default_ladder()
    for _ in range(5):
        future()
    before = snapshot(own_redis)
    assert before
    own_redis.config_resetstat()
    assert reconcile().is_clean
    seen = {name.removeprefix("cmdstat_") for name in own_redis.info("commandstats")}
    assert seen <= READING, seen - READING
    assert "zmscore" in seen
    assert snapshot(own_redis) == before


def snapshot(redis_client: Redis) -> dict[bytes, bytes]:
    return {key: redis_client.dump(key) for key in sorted(redis_client.scan_iter())}


def test_a_change_on_its_way_to_redis_is_no_drift(dispute: Dispute) -> None:
    """It commits before the first look and arrives before the second."""
    person_ = person("ada", "standard")
    failpoints.hooks["reconcile.postgres_slice"] = lambda: failpoints.hooks.clear()
    drop_all(dispute)

    class ArrivesMeanwhile:
        def is_set(self) -> bool:
            return False

        def wait(self, timeout: float) -> None:
            acknowledge(dispute.pk, actor=person_, seen_version=1, now=database_now())

    found = compare(stop=ArrivesMeanwhile())
    assert found.is_clean, found
    assert found.checked == 1


def test_a_change_between_comparing_and_repairing_is_not_undone(dispute: Dispute) -> None:
    ada = person("ada", "standard")
    move(dispute)
    failpoints.hooks["reconcile.before_repair"] = lambda: acknowledge(
        dispute.pk, actor=ada, seen_version=1, now=database_now()
    )
    try:
        reconcile()
    finally:
        failpoints.hooks.clear()
    row = again(dispute)
    assert survey.scores([str(row.pk)]) == {str(row.pk): microseconds(row.due_at)}
    assert survey.payload_versions([str(row.pk)]) == {str(row.pk): 2}


def test_repairing_does_not_take_locks_away(dispute: Dispute) -> None:
    timeline.claim(now_us=microseconds(dispute.due_at), limit=1, token="worker")
    move(dispute)
    reconcile()
    assert survey.locks_held([str(dispute.pk)]) == {str(dispute.pk): "worker"}


def test_stranded_messages_are_counted(dispute: Dispute) -> None:
    person("ada", "standard")
    future()
    assert compare().stranded == 0
    now = database_now()
    Notification.objects.update(not_before=now - STRANDED_GRACE - timedelta(seconds=5))
    assert compare().stranded == 1
    Notification.objects.update(status="sending", claimed_at=now)
    assert compare().stranded == 0
    Notification.objects.update(claimed_at=now - LEASE - timedelta(seconds=5))
    assert not compare().is_clean


@pytest.mark.parametrize(("skew", "is_skewed"), [(1.5, True), (-1.5, True), (0.9, False)])
def test_f30_a_skewed_clock_is_reported_and_is_no_drift(skew: float, is_skewed: bool) -> None:
    for drift in (Drift(redis_skew_s=skew), Drift(host_skew_s=skew)):
        assert drift.is_skewed is is_skewed
        assert drift.is_clean


def test_a_skewed_clock_is_logged(
    dispute: Dispute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = database_now() + HOUR
    monkeypatch.setattr(timeline, "server_now", lambda: ahead)
    with caplog.at_level(logging.WARNING):
        assert reconcile().redis_skew_s == pytest.approx(3600, abs=5)
    assert "escalation.clock_skew" in caplog.messages


def test_the_clocks_of_one_machine_agree(dispute: Dispute) -> None:
    found = compare()
    assert abs(found.redis_skew_s) < 1
    assert abs(found.host_skew_s) < 1


def test_slices_smaller_than_the_whole_find_the_same(
    dispute: Dispute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escalation.reconcile.SLICE", 2)
    lost = [future() for _ in range(7)]
    for each in lost[::2]:
        drop_member(each)
    found = compare()
    assert found.missing == sorted(str(each.pk) for each in lost[::2])
    assert found.checked == 8
