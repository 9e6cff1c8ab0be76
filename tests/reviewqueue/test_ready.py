"""Take next: order, concurrency, crashes, Redis away."""

import os
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.signals import request_finished, request_started
from django.db import connection, connections

from disputes import failpoints
from disputes.clock import database_now
from disputes.ladders import forget_cached_tiers
from disputes.models import AuditEntry, Dispute, Queue
from disputes.priority import MICROSECOND
from disputes.transitions.deadlines import promote
from disputes.transitions.moving import change_band
from disputes.transitions.opening import open_disputes
from disputes.transitions.reviewing import acknowledge, release
from reviewqueue import ready, ready_rounds
from reviewqueue.ready_set import depths, heads, is_complete, keys, queue_names, reserve, sync
from reviewqueue.ready_set import release as give_back
from reviewqueue.redis_client import ready_client
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, again, default_ladder, new, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

STANDARD = "default:standard"


@pytest.fixture(autouse=True)
def _fresh_tiers() -> Iterator[None]:
    forget_cached_tiers()
    yield
    forget_cached_tiers()


@pytest.fixture
def _ladder() -> None:
    default_ladder()
    ready_rounds.rebuild(client=ready_client("worker"))


def queue(slug: str = "standard") -> Queue:
    return Queue.objects.get(slug=slug)


def members(name: str = STANDARD) -> list[str]:
    return ready_client("worker").zrange(keys().queue + name, 0, -1)


def many(count: int, **facts) -> list[Dispute]:
    """Disputes of one batch, in their order."""
    batch = [new(**facts) for _ in range(count)]
    return [
        Dispute.objects.get(pk=done.id)
        for done in open_disputes(batch, actor=SYSTEM, now=NOON, notify=False)
    ]


def together(count: int, act: Callable[[int], object]) -> list:
    """Run `act` in so many threads, all let go at one moment."""
    gate = threading.Barrier(count)

    def run(number: int) -> object:
        try:
            connection.ensure_connection()
            gate.wait(timeout=30)
            return act(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@contextmanager
def redis_at(settings, url: str) -> Iterator[None]:
    """Point the queues at another Redis for a while."""
    before = settings.TIMELINE_REDIS_URL
    settings.TIMELINE_REDIS_URL = url
    try:
        yield
    finally:
        settings.TIMELINE_REDIS_URL = before


@contextmanager
def in_a_request() -> Iterator[None]:
    """As while a page is made: no receiver waits long then."""
    request_started.send(sender=None)
    try:
        yield
    finally:
        request_finished.send(sender=None)


@contextmanager
def dead_redis(kind: str) -> Iterator[str]:
    """The address of a Redis that refuses connections, or takes them and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if kind == "hanging":
            server.listen(128)
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.usefixtures("_ladder")
def test_the_set_follows_a_dispute_through_its_life():
    ann = person("ann", "standard", "senior")
    dispute = opened()
    assert ready_client().zrange(keys().queue + STANDARD, 0, -1, withscores=True) == [
        (str(dispute.pk), float(dispute.queue_score))
    ]
    acknowledge(dispute.pk, actor=ann, seen_version=1, now=NOON)
    assert members() == []
    release(dispute.pk, actor=ann, now=NOON)
    assert members() == [str(dispute.pk)]
    promote([dispute.pk], now=NOON + 3 * HOUR)
    assert (members(), members("default:senior")) == ([], [str(dispute.pk)])


@pytest.mark.usefixtures("_ladder")
def test_an_exhausted_dispute_waits_for_a_person_and_can_be_taken():
    cora = person("cora", "compliance")
    dispute = opened(tier="compliance")
    promote([dispute.pk], now=NOON + 3 * HOUR)
    assert again(dispute).exhausted_at is not None
    assert ready.depth(queue("compliance")) == 1
    assert ready.take_next(cora, queue_ids=None, now=database_now()).pk == dispute.pk


@pytest.mark.usefixtures("_ladder")
def test_a_released_dispute_stands_at_its_old_place():
    ann = person("ann", "standard")
    first, second, third = many(3)
    taken = ready.take_next(ann, queue_ids=None, now=NOON)
    assert taken.pk == first.pk
    release(first.pk, actor=ann, now=NOON + MINUTE)
    assert members() == [str(d.pk) for d in (first, second, third)]
    assert ready.take_next(ann, queue_ids=None, now=NOON + 2 * MINUTE).pk == first.pk


@pytest.mark.usefixtures("_ladder")
def test_f99_a_changed_band_moves_a_waiting_dispute_within_its_queue():
    ann = person("ann", "standard")
    first, second = many(2)
    change_band(second.pk, band="high", actor=ann, now=NOON, reason="large")
    assert members() == [str(second.pk), str(first.pk)]


@pytest.mark.usefixtures("_ladder")
def test_an_old_write_never_undoes_a_newer_one():
    ann = person("ann", "standard")
    dispute = opened()

    def overtake() -> None:
        failpoints.hooks.clear()
        acknowledge(dispute.pk, actor=ann, seen_version=1, now=NOON)

    failpoints.hooks["reviewqueue.rows_read"] = overtake
    try:
        assert sync([dispute.pk]) == 0
    finally:
        failpoints.hooks.clear()
    assert again(dispute).status == "acknowledged"
    assert members() == []


@pytest.mark.usefixtures("_ladder")
@pytest.mark.parametrize("whole", [True, False], ids=["sets_whole", "sets_lost"])
def test_f95_twenty_people_take_fifteen_disputes_each_once_and_five_get_nothing(whole):
    people = [person(f"p{number}", "standard") for number in range(20)]
    order = many(15)
    if not whole:
        ready_client("worker").flushdb()
    taken = together(20, lambda n: ready.take_next(people[n], queue_ids=None, now=database_now()))
    ids = [dispute.pk for dispute in taken if dispute]
    assert taken.count(None) == 5
    assert sorted(ids) == sorted(dispute.pk for dispute in order)
    assert Counter(
        AuditEntry.objects.filter(action="acknowledged").values_list("dispute", flat=True)
    ) == Counter(ids)
    for dispute in filter(None, taken):
        assert again(dispute).holder_id in {p.pk for p in people}


@pytest.mark.usefixtures("_ladder")
def test_f95_eight_people_at_once_take_exactly_the_first_eight_of_a_queue():
    people = [person(f"p{number}", "standard") for number in range(8)]
    order = many(15)
    taken = together(8, lambda n: ready.take_next(people[n], queue_ids=None, now=database_now()))
    assert sorted(d.pk for d in taken) == sorted(d.pk for d in order[:8])
    assert members() == [str(d.pk) for d in order[8:]]


@pytest.mark.usefixtures("_ladder")
def test_f95_one_person_in_twenty_tabs_gets_fifteen_different_disputes():
    ann = person("ann", "standard")
    order = many(15)
    taken = together(20, lambda n: ready.take_next(ann, queue_ids=None, now=database_now()))
    assert taken.count(None) == 5
    assert sorted(d.pk for d in taken if d) == sorted(d.pk for d in order)


@pytest.mark.usefixtures("_ladder")
@pytest.mark.parametrize("where", ["sets", "rows"])
def test_one_after_the_other_gives_exactly_the_queues_order(where):
    ann = person("ann", "standard")
    facts = [{"band": random.Random(n).choice(["high", "medium", "low"])} for n in range(12)]
    for minutes, fact in enumerate(facts):
        opened(now=NOON + 90 * minutes * MINUTE, due_at=NOON + 90 * HOUR, **fact)
    order = list(Dispute.objects.order_by("queue_score").values_list("pk", flat=True))
    if where == "rows":
        ready_client("worker").flushdb()
    taken = [ready.take_next(ann, queue_ids=None, now=NOON + 20 * HOUR).pk for _ in order]
    assert taken == order
    assert ready.take_next(ann, queue_ids=None, now=NOON + 20 * HOUR) is None


@pytest.mark.usefixtures("_ladder")
@pytest.mark.parametrize("where", ["sets", "rows"])
def test_of_several_queues_the_head_with_the_earliest_deadline_goes_first(where):
    lead = person("lead", "standard", "senior")
    later = opened(due_at=NOON + 3 * HOUR)
    sooner = opened(tier="senior", due_at=NOON + HOUR)
    if where == "rows":
        ready_client("worker").flushdb()
    assert ready.take_next(lead, queue_ids=None, now=NOON).pk == sooner.pk
    assert ready.take_next(lead, queue_ids=[queue("senior").pk], now=NOON) is None
    assert ready.take_next(lead, queue_ids=None, now=NOON).pk == later.pk


@pytest.mark.usefixtures("_ladder")
def test_nobody_takes_from_a_queue_they_do_not_review():
    ann = person("ann", "standard")
    opened(tier="senior")
    assert ready.take_next(ann, queue_ids=None, now=NOON) is None
    assert ready.take_next(ann, queue_ids=[queue("senior").pk], now=NOON) is None
    assert Dispute.objects.get().status == "open"


@pytest.mark.usefixtures("_ladder")
def test_f97_a_head_that_is_gone_is_skipped_and_taken_out():
    ann = person("ann", "standard")
    gone, waiting = many(2)
    with_receiver_off = ready_client("worker")
    acknowledge(gone.pk, actor=person("bob", "standard"), seen_version=1, now=NOON)
    stray = {str(gone.pk): gone.queue_score}
    with_receiver_off.zadd(keys().queue + STANDARD, stray)
    assert ready.take_next(ann, queue_ids=None, now=NOON).pk == waiting.pk
    assert ready.take_next(ann, queue_ids=None, now=NOON) is None


@pytest.mark.usefixtures("_ladder")
def test_f97_an_escalation_between_reserving_and_acknowledging_does_not_stop_the_taker():
    ann = person("ann", "standard")
    dispute = opened(due_at=NOON + MINUTE)
    now = NOON + 2 * MINUTE
    try:
        failpoints.hooks["acknowledge.read"] = lambda: (
            failpoints.hooks.clear(),
            together(1, lambda _: promote([dispute.pk], now=now)),
        )
        taken = ready.take_next(ann, queue_ids=None, now=now)
    finally:
        failpoints.hooks.clear()
    assert (taken.pk, taken.tier.slug, taken.holder) == (dispute.pk, "senior", ann)
    assert members("default:senior") == []


@pytest.mark.usefixtures("_ladder")
@pytest.mark.parametrize("where", ["take_next.reserved", "acknowledge.read"])
def test_a_loser_of_a_race_gets_the_next_dispute(where):
    ann, bob = person("ann", "standard"), person("bob", "standard")
    first, second = many(2)

    def bob_is_faster() -> None:
        failpoints.hooks.clear()
        together(1, lambda _: acknowledge(first.pk, actor=bob, seen_version=1, now=NOON))

    failpoints.hooks[where] = bob_is_faster
    try:
        taken = ready.take_next(ann, queue_ids=None, now=NOON)
    finally:
        failpoints.hooks.clear()
    assert taken.pk == second.pk
    assert again(first).holder == bob


@pytest.mark.usefixtures("_ladder")
def test_facts_that_change_just_before_do_not_keep_a_dispute_from_its_taker():
    ann, bob = person("ann", "standard"), person("bob", "standard")
    dispute = opened()

    def bob_changes_the_band() -> None:
        failpoints.hooks.clear()
        together(1, lambda _: change_band(dispute.pk, band="high", actor=bob, now=NOON, reason="x"))

    failpoints.hooks["acknowledge.read"] = bob_changes_the_band
    try:
        taken = ready.take_next(ann, queue_ids=None, now=NOON)
    finally:
        failpoints.hooks.clear()
    assert (taken.pk, taken.holder, taken.band) == (dispute.pk, ann, "high")


@pytest.mark.usefixtures("_ladder")
def test_sets_that_lost_their_beginning_are_not_believed():
    ann = person("ann", "standard")
    oldest = opened()
    ready_client("worker").flushdb()
    newest = opened(now=NOON + MINUTE)
    assert members() == [str(newest.pk)]
    assert ready.take_next(ann, queue_ids=None, now=NOON + MINUTE).pk == oldest.pk


@pytest.mark.usefixtures("_ladder")
@pytest.mark.processes
def test_f96_death_between_reserving_and_acknowledging_loses_nothing():
    ann = person("ann", "standard")
    dispute = opened()
    connections.close_all()
    child = os.fork()
    if child == 0:
        failpoints.hooks["take_next.reserved"] = lambda: os.kill(os.getpid(), signal.SIGKILL)
        ready.take_next(ann, queue_ids=None, now=NOON)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert again(dispute).status == "open"
    assert members() == [str(dispute.pk)]
    assert ready_client().exists(keys().reserved + str(dispute.pk)) == 1
    # The reservation of the dead is waited for; "nothing" would be a lie.
    assert ready.take_next(ann, queue_ids=None, now=NOON).pk == dispute.pk


@pytest.mark.usefixtures("_ladder")
def test_what_another_is_taking_is_left_to_them_and_the_next_is_given():
    ann = person("ann", "standard")
    first, second = many(2)
    assert reserve(str(first.pk), token="other", client=ready_client())
    assert ready.take_next(ann, queue_ids=None, now=NOON).pk == second.pk


@pytest.mark.usefixtures("_ladder")
def test_a_reservation_ends_with_the_call_that_made_it():
    ann = person("ann", "standard")
    opened()
    ready.take_next(ann, queue_ids=None, now=NOON)
    assert list(ready_client().scan_iter(keys().reserved + "*")) == []


def test_a_late_release_leaves_the_reservation_of_the_next_taker():
    redis, member = ready_client(), str(uuid4())
    assert reserve(member, token="slow", client=redis)
    # It runs out while its owner stands still, and somebody else reserves.
    redis.delete(keys().reserved + member)
    assert reserve(member, token="next", client=redis)
    give_back([member], token="slow", client=redis)
    assert not reserve(member, token="third", client=redis)
    give_back([member], token="next", client=redis)
    assert reserve(member, token="third", client=redis)


@pytest.mark.usefixtures("_ladder")
@pytest.mark.parametrize("kind", ["refusing", "hanging"])
def test_with_redis_away_the_same_order_comes_from_postgres_soon(kind, settings):
    ann = person("ann", "standard")
    first, second = many(2)
    with dead_redis(kind) as url, redis_at(settings, url), in_a_request():
        started = database_now()
        taken = [ready.take_next(ann, queue_ids=None, now=NOON).pk for _ in range(2)]
        assert ready.take_next(ann, queue_ids=None, now=NOON + MINUTE) is None
        assert ready.depth(queue()) == 0
        assert database_now() - started < timedelta(seconds=4)
    assert taken == [first.pk, second.pk]


@pytest.mark.usefixtures("_ladder")
def test_twenty_people_share_fifteen_disputes_with_redis_away(settings):
    people = [person(f"p{number}", "standard") for number in range(20)]
    order = many(15)
    with dead_redis("refusing") as url, redis_at(settings, url):
        taken = together(
            20, lambda n: ready.take_next(people[n], queue_ids=None, now=database_now())
        )
    assert taken.count(None) == 5
    assert sorted(d.pk for d in taken if d) == sorted(d.pk for d in order)


@pytest.mark.usefixtures("_ladder")
def test_one_person_in_eight_tabs_gets_five_different_disputes_with_redis_away(settings):
    ann = person("ann", "standard")
    order = many(5)
    with dead_redis("refusing") as url, redis_at(settings, url):
        taken = together(8, lambda n: ready.take_next(ann, queue_ids=None, now=database_now()))
    assert taken.count(None) == 3
    assert sorted(d.pk for d in taken if d) == sorted(d.pk for d in order)


@pytest.mark.usefixtures("_ladder")
def test_bug_57_a_count_is_postgres_own_when_the_sets_are_not_whole():
    many(3)
    assert ready.depth(queue()) == 3
    ready_client("worker").flushdb()
    assert ready.depth(queue()) == 3
    assert depths(queue_names()) == {
        queue().pk: 3,
        queue("senior").pk: 0,
        queue("compliance").pk: 0,
    }


def test_after_a_loss_of_redis_a_round_brings_everything_back():
    default_ladder()
    order = [str(dispute.pk) for dispute in many(7)]
    client = ready_client("worker")
    client.flushdb()
    assert not is_complete(client)
    assert ready.reconcile_duty(NOON) == 7
    assert is_complete(client)
    assert members() == order
    assert ready.reconcile_duty(now=NOON) == 0


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="counts a server's commands")
@pytest.mark.usefixtures("_ladder")
def test_a_round_on_a_healthy_system_writes_no_place():
    many(5)
    client = ready_client("worker")
    before = client.zrange(keys().queue + STANDARD, 0, -1, withscores=True)
    commands = client.info("commandstats")
    assert ready_rounds.rebuild(client=client) == 0
    later = client.info("commandstats")
    for command in ("cmdstat_zadd", "cmdstat_zrem", "cmdstat_hset", "cmdstat_hdel"):
        assert later.get(command, {}).get("calls") == commands.get(command, {}).get("calls")
    assert client.zrange(keys().queue + STANDARD, 0, -1, withscores=True) == before


@pytest.mark.usefixtures("_ladder")
def test_a_round_mends_what_is_missing_misplaced_or_strange():
    ann = person("ann", "standard")
    missing, misplaced, held, fine = many(4)
    acknowledge(held.pk, actor=ann, seen_version=1, now=NOON)
    client = ready_client("worker")
    name = keys().queue + STANDARD
    client.zrem(name, str(missing.pk))
    client.zadd(name, {str(misplaced.pk): 5, str(held.pk): 1, "not-an-id": 2, b"\xff": 3})
    client.zadd(keys().queue + "default:senior", {str(fine.pk): 9})
    assert ready_rounds.rebuild(client=client) == 6
    assert members() == [str(d.pk) for d in (missing, misplaced, fine)]
    assert members("default:senior") == []
    assert ready_rounds.rebuild(client=client) == 0


@pytest.mark.usefixtures("_ladder")
@pytest.mark.parametrize("queues", [("standard",), ("standard", "senior")], ids=["one", "two"])
def test_a_strange_member_at_the_head_is_passed_over(queues):
    ann = person("ann", *queues)
    dispute = opened()
    ready_client("worker").zadd(keys().queue + STANDARD, {"not-an-id": 1, b"\xff": 2})
    assert ready.take_next(ann, queue_ids=None, now=NOON).pk == dispute.pk
    assert ready.take_next(ann, queue_ids=None, now=NOON) is None
    assert list(ready_client().scan_iter(keys().reserved + "*")) == []


@pytest.mark.usefixtures("_ladder")
def test_where_redis_is_ahead_of_a_restored_database_postgres_wins():
    dispute = opened()
    client = ready_client("worker")
    client.zrem(keys().queue + STANDARD, str(dispute.pk))
    client.hdel(keys().places, str(dispute.pk))
    client.set(keys().gone + str(dispute.pk), 9, ex=60)
    assert sync([dispute.pk], client=client) == 0
    assert ready_rounds.rebuild(client=client) == 1
    assert members() == [str(dispute.pk)]


@pytest.mark.usefixtures("_ladder")
def test_a_round_that_was_lost_with_redis_is_not_finished_from_its_middle():
    many(3)
    client = ready_client("worker")
    client.flushdb()

    def lose_redis_once() -> None:
        failpoints.hooks.clear()
        client.flushdb()

    failpoints.hooks["reviewqueue.slice_compared"] = lose_redis_once
    try:
        ready_rounds.work(budget_s=60, client=client)
    finally:
        failpoints.hooks.clear()
    assert is_complete(client)
    assert len(members()) == 3


@pytest.mark.usefixtures("_ladder")
def test_two_deployments_on_one_redis_do_not_see_each_other(settings):
    opened()
    settings.ESCALATION = {**settings.ESCALATION, "prefix": "stage:"}
    assert members() == []
    assert heads([STANDARD], client=ready_client()) == {}
    assert keys().queue == "stage:{reviewqueue}:"


@pytest.mark.usefixtures("_ladder")
def test_arrivals_of_one_batch_keep_the_files_order_at_one_microsecond():
    disputes = many(5)
    assert [d.arrival for d in disputes] == [NOON + n * MICROSECOND for n in range(5)]
    assert members() == [str(d.pk) for d in disputes]
