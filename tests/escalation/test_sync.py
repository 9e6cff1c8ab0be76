"""What is written is what a fresh read says, and never an older state over a newer one."""

from datetime import timedelta
from uuid import uuid4

import pytest
from redis import Redis

from disputes.clock import database_now
from disputes.models import Dispute, Ladder
from disputes.rules import microseconds
from disputes.transitions.deadlines import promote
from disputes.transitions.reviewing import acknowledge
from escalation import sync as sync_module
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.failures import put_off
from escalation.redis_client import timeline_client
from escalation.sync import Synced, redis_ahead, settle, sync, wanted
from escalation.timeline_keys import keys
from tests.situations import HOUR, MINUTE, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def dispute(redis_client: Redis) -> Dispute:
    """Known to Postgres only."""
    default_ladder()
    now = database_now()
    made = opened(now=now, due_at=now + HOUR)
    redis_client.flushdb()
    return made


def scores(dispute: Dispute) -> dict[str, int | None]:
    return survey.scores([str(dispute.pk)])


def test_a_sync_writes_the_deadline_and_the_payload(dispute: Dispute) -> None:
    assert sync([dispute.pk]) == Synced(scheduled=1)
    assert scores(dispute) == {str(dispute.pk): microseconds(dispute.due_at)}
    payload = timeline_client().hgetall(f"{keys().payload}{dispute.pk}")
    assert payload.pop("enqueued_at").endswith("+00:00")
    assert payload == {
        "tier": "standard",
        "materiality_usd": "",
        "source_hash": "a" * 64,
        "version": "1",
    }


def test_the_same_again_changes_nothing_but_the_stamp(dispute: Dispute) -> None:
    sync([dispute.pk])
    assert sync([dispute.pk, str(dispute.pk)]).refused == 0
    assert timeline.depth() == 1


def test_a_dispute_without_a_deadline_leaves_and_a_slower_writer_cannot_put_it_back(
    dispute: Dispute,
) -> None:
    sync([dispute.pk])
    old = wanted([dispute.pk])[str(dispute.pk)].entry
    last = Dispute.objects.get(pk=dispute.pk)
    for _ in range(3):
        promote([dispute.pk], now=last.due_at)
        last = again(dispute)
    assert last.due_at is None
    assert timeline.depth() == 0
    assert timeline.schedule([old]) == 0
    assert timeline.depth() == 0


def test_an_id_without_a_row_is_removed_whatever_version_redis_has(dispute: Dispute) -> None:
    stranger = str(uuid4())
    timeline.schedule([timeline.Entry(stranger, 5, 99, "t", "", "")])
    assert sync([stranger]) == Synced(removed=1)
    assert timeline.depth() == 0


def test_a_put_off_dispute_is_looked_at_when_its_pause_ends(dispute: Dispute) -> None:
    now = database_now()
    soon = put_off(dispute.pk, error=ValueError("x"), now=now)
    sync([dispute.pk])
    assert soon.until < dispute.due_at
    assert scores(dispute) == {str(dispute.pk): microseconds(dispute.due_at)}
    later = put_off(dispute.pk, error=ValueError("x"), now=dispute.due_at)
    sync([dispute.pk])
    assert scores(dispute) == {str(dispute.pk): microseconds(later.until)}


@pytest.mark.parametrize("past", [True, False])
def test_a_ladder_paused_until_an_instant_is_looked_at_then(dispute: Dispute, past: bool) -> None:
    now = database_now()
    until = now - MINUTE if past else now + 5 * HOUR
    Ladder.objects.update(paused_at=now - HOUR, paused_until=until)
    sync([dispute.pk])
    assert scores(dispute) == {str(dispute.pk): microseconds(dispute.due_at if past else until)}


def test_a_ladder_paused_without_end_is_not_on_the_timeline(dispute: Dispute) -> None:
    sync([dispute.pk])
    Ladder.objects.update(paused_at=database_now())
    assert sync([dispute.pk]) == Synced(removed=1)
    Ladder.objects.update(paused_at=None)
    assert sync([dispute.pk]) == Synced(scheduled=1)
    assert scores(dispute) == {str(dispute.pk): microseconds(dispute.due_at)}


def test_what_was_read_too_long_ago_is_dropped(
    dispute: Dispute, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    """A process that stood still between reading and writing must not write."""
    clock = iter([0.0, settings.ESCALATION.get("lock_ttl_s", 30) + 0.1])
    monkeypatch.setattr(sync_module.time, "monotonic", lambda: next(clock, 100.0))
    assert sync([dispute.pk]) == Synced()
    monkeypatch.undo()
    assert timeline.depth() == 0
    assert sync([dispute.pk]) == Synced(scheduled=1)


def test_a_read_that_was_overtaken_is_refused(
    dispute: Dispute, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = person("ada", "standard")

    def read_then_race(ids, *, now):
        rows = wanted(ids, now=now)
        monkeypatch.undo()
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
        return rows

    monkeypatch.setattr(sync_module, "wanted", read_then_race)
    assert sync([dispute.pk]) == Synced(refused=1)
    row = again(dispute)
    assert scores(dispute) == {str(row.pk): microseconds(row.due_at)}


@pytest.mark.parametrize("fenced", [True, False])
def test_where_redis_is_ahead_of_a_restored_postgres_settling_lets_postgres_win(
    dispute: Dispute, fenced: bool
) -> None:
    id_ = str(dispute.pk)
    if fenced:
        timeline.unschedule([(id_, 9)])
    else:
        timeline.schedule([timeline.Entry(id_, 5, 9, "senior", "", "")])
    assert sync([id_]) == Synced(refused=1)
    assert redis_ahead([id_]) == [id_]
    assert settle([id_]) == Synced(scheduled=1)
    assert scores(dispute) == {id_: microseconds(dispute.due_at)}
    assert redis_ahead([id_]) == []


def test_settling_a_dispute_that_is_in_step_forces_nothing(
    dispute: Dispute, caplog: pytest.LogCaptureFixture
) -> None:
    assert settle([dispute.pk]) == Synced(scheduled=1)
    assert "escalation.redis_ahead_of_postgres" not in caplog.messages


def test_more_than_one_script_can_take_is_written_in_several(
    dispute: Dispute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escalation.timeline_keys.CHUNK", 2)
    now = database_now()
    ids = [dispute.pk] + [
        opened(now=now, due_at=now + HOUR + timedelta(seconds=n)).pk for n in range(4)
    ]
    timeline_client().flushdb()
    assert sync(ids) == Synced(scheduled=5)
    assert timeline.depth() == 5


@pytest.mark.parametrize("version", ["1e9", "inf", "0x7fffffff", " 5", "5.5", "9" * 400])
@pytest.mark.parametrize("place", ["fence", "payload"])
def test_what_only_lua_reads_as_a_number_holds_nothing_up(redis_client, version, place):
    default_ladder()
    now = database_now()
    dispute = opened(now=now, due_at=now + HOUR)
    id_ = str(dispute.pk)
    redis_client.zrem(keys().pending, id_)
    if place == "fence":
        redis_client.set(keys().fence + id_, version)
    else:
        redis_client.hset(keys().payload + id_, "version", version)
    assert settle([id_]).scheduled == 1
    assert survey.scores([id_]) == {id_: microseconds(dispute.due_at)}
