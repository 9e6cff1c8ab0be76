"""A rebuilt timeline is the one that was lost, whoever writes, dies or loses Redis meanwhile."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from redis import Redis

from disputes import failpoints
from disputes.clock import database_now
from disputes.models import Dispute
from disputes.rules import microseconds
from disputes.transitions.deadlines import promote
from disputes.transitions.reviewing import acknowledge, release
from escalation import reconcile as reconcile_module
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.reconcile import compare, rebuild
from escalation.redis_client import timeline_client
from escalation.sync import wanted
from escalation.timeline_keys import keys
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, MINUTE, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def disputes() -> list[Dispute]:
    default_ladder()
    now = database_now()
    return [opened(now=now, due_at=now + HOUR + n * MINUTE) for n in range(7)]


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("escalation.reconcile.SLICE", 2)
    yield
    failpoints.hooks.clear()


def contents() -> dict[str, object]:
    """Everything on the timeline but the instants at which it was written."""
    client, name = timeline_client(), keys()
    members = client.zrange(name.pending, 0, -1, withscores=True)
    payloads = {member: client.hgetall(f"{name.payload}{member}") for member, _ in members}
    for payload in payloads.values():
        assert payload.pop("enqueued_at")
    return {"members": members, "payloads": payloads}


def test_a_rebuilt_timeline_equals_the_one_that_traffic_had_made(
    disputes: list[Dispute], redis_client: Redis
) -> None:
    ada = person("ada", "standard")
    acknowledge(disputes[0].pk, actor=ada, seen_version=1, now=database_now())
    acknowledge(disputes[1].pk, actor=ada, seen_version=1, now=database_now())
    release(disputes[1].pk, actor=ada, now=database_now())
    promote([disputes[2].pk], now=disputes[2].due_at)
    before = contents()
    assert len(before["payloads"]) == 7
    redis_client.flushdb()
    assert rebuild() == 7
    assert contents() == before
    assert survey.is_built()
    assert compare().is_clean


def test_the_earliest_deadlines_come_first(disputes: list[Dispute], redis_client: Redis) -> None:
    redis_client.flushdb()
    seen: list[list[str]] = []
    failpoints.hooks["rebuild.slice"] = lambda: seen.append(
        timeline_client().zrange(keys().pending, 0, -1)
    )
    rebuild()
    ids = [str(d.pk) for d in disputes]
    assert seen == [[], ids[:2], ids[:4], ids[:6]]


def test_redis_lost_again_in_the_middle_leaves_no_claim_to_be_complete(
    disputes: list[Dispute], redis_client: Redis
) -> None:
    slices = []

    def lose_it_once() -> None:
        slices.append(1)
        if len(slices) == 3:
            redis_client.flushdb()

    redis_client.flushdb()
    failpoints.hooks["rebuild.slice"] = lose_it_once
    assert rebuild() is None
    assert survey.epoch() is None
    assert rebuild() == 7
    assert survey.is_built()
    assert compare().is_clean


def test_redis_lost_after_the_last_slice_leaves_no_claim_to_be_complete(
    disputes: list[Dispute], redis_client: Redis
) -> None:
    def lose_it(done: int) -> None:
        if done == 7:
            redis_client.flushdb()

    redis_client.flushdb()
    assert rebuild(progress=lose_it) is None
    assert survey.epoch() is None


def test_redis_lost_at_the_very_end_leaves_no_claim_to_be_complete(
    disputes: list[Dispute], redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last slice was written and seen to be written, before the epoch is."""
    pages = reconcile_module._pages_by_deadline

    def then_lose_it() -> Iterator[list[str]]:
        yield from pages()
        redis_client.flushdb()

    redis_client.flushdb()
    monkeypatch.setattr(reconcile_module, "_pages_by_deadline", then_lose_it)
    assert rebuild() is None
    assert survey.epoch() is None


def test_one_process_rebuilds_at_a_time(disputes: list[Dispute], redis_client: Redis) -> None:
    redis_client.flushdb()
    with gate_at("rebuild.slice") as gate:
        first = Background(rebuild)
        gate.wait()
        assert rebuild() is None
        assert survey.epoch() is None
        gate.open.set()
        assert first.result() == 7
    assert survey.is_built()


def test_a_rebuild_whose_process_died_may_be_begun_again_when_its_lock_has_run_out(
    disputes: list[Dispute], redis_client: Redis
) -> None:
    redis_client.flushdb()

    def die() -> None:
        raise KeyboardInterrupt

    failpoints.hooks["rebuild.slice"] = die
    with pytest.raises(KeyboardInterrupt):
        rebuild()
    failpoints.hooks.clear()
    assert rebuild() is None
    assert 0 < redis_client.ttl(keys().rebuild) <= 30
    redis_client.delete(keys().rebuild)
    assert rebuild() == 7


def test_f35_traffic_beside_a_rebuild_is_never_undone(
    disputes: list[Dispute], redis_client: Redis
) -> None:
    """Promotions and acknowledgements go on; Redis never holds an older version than it had."""
    ada = person("ada", "standard")
    redis_client.flushdb()
    regressed: list[str] = []
    newest: dict[str, int] = {}
    over = threading.Event()

    def watch() -> None:
        ids = [str(d.pk) for d in disputes]
        while not over.is_set():
            for id_, version in survey.payload_versions(ids).items():
                if version is not None:
                    if version < newest.get(id_, 0):
                        regressed.append(id_)
                    newest[id_] = version

    def traffic() -> None:
        now = database_now()
        for dispute in disputes:
            acknowledge(dispute.pk, actor=ada, seen_version=1, now=now)
            release(dispute.pk, actor=ada, now=now + timedelta(seconds=1))
            promote([dispute.pk], now=dispute.due_at)

    watcher = Background(watch)
    worker = Background(traffic)
    rebuilds = 0
    while worker.is_running or rebuilds < 2:
        # A deadline that moves back meanwhile is looked at twice.
        assert (rebuild() or 0) >= 7
        rebuilds += 1
    worker.result()
    over.set()
    watcher.result()
    assert regressed == []
    assert newest == {str(d.pk): 4 for d in disputes}
    assert compare().is_clean


def test_a_slow_rebuild_does_not_put_an_older_state_over_a_newer_one(
    disputes: list[Dispute], redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the row, then stands still while the dispute is acknowledged and written."""
    ada = person("ada", "standard")
    redis_client.flushdb()
    raced = []

    def read_then_race(ids, *, now):
        rows = wanted(ids, now=now)
        if str(disputes[0].pk) in ids and not raced:
            raced.append(1)
            acknowledge(disputes[0].pk, actor=ada, seen_version=1, now=database_now())
        return rows

    monkeypatch.setattr("escalation.sync.wanted", read_then_race)
    assert rebuild() == 7
    monkeypatch.undo()
    assert raced
    row = again(disputes[0])
    assert survey.scores([str(row.pk)]) == {str(row.pk): microseconds(row.due_at)}
    assert survey.payload_versions([str(row.pk)]) == {str(row.pk): 2}


def test_claims_go_on_while_a_rebuild_stands_still(
    disputes: list[Dispute], redis_client: Redis
) -> None:
    redis_client.flushdb()
    slices = []

    def claim_in_the_middle() -> None:
        slices.append(timeline.claim(now_us=2**52, limit=10, token=f"t{len(slices)}").ids)

    failpoints.hooks["rebuild.slice"] = claim_in_the_middle
    rebuild()
    ids = tuple(str(d.pk) for d in disputes)
    assert slices == [(), ids[:2], ids[2:4], ids[4:6]]


def test_a_mark_of_a_rebuild_that_has_no_end_is_given_one(redis_client):
    redis_client.set(keys().rebuild, "somebody")
    assert rebuild() is None
    assert 0 < redis_client.ttl(keys().rebuild) <= 30
