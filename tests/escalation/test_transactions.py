"""Every way a dispute changes: Redis hears of it at the outermost commit, or never."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest
from django.db import transaction
from redis import Redis

from disputes.intake.store import store_batch
from disputes.ladders import lift_pause, pause_ladder
from disputes.models import Dispute
from disputes.rules import microseconds
from disputes.transitions.opening import open_dispute, open_disputes
from escalation import timeline_survey as survey
from escalation.doorbell import waiting
from reviewqueue.ready_set import keys, queue_names
from tests.disputes.stages import dispute_that_is, scene
from tests.disputes.test_transitions_table import ACTIONS, CELLS, instant_of
from tests.intake.samples import opened as records_of
from tests.situations import NOON, SYSTEM, again, default_ladder, new

pytestmark = pytest.mark.django_db(transaction=True)

# One state for each action of the table: the first in which it is allowed.
STATE_OF = {action: state for state, action in reversed(CELLS)}
FILE = b"reference,amount,currency\nfrom-a-file,129.00,USD\n"


class Boom(Exception):
    """Something that fails after the change was written and announced."""


@pytest.fixture
def people() -> SimpleNamespace:
    people = scene()
    default_ladder(slug="other")
    return people


def everything_in(redis_client: Redis) -> dict[bytes, bytes | None]:
    """All keys with their contents."""
    return {key: redis_client.dump(key) for key in redis_client.scan_iter()}


def silence(redis_client: Redis) -> None:
    """Forget the jobs so far, and the bell, whose key ends by itself."""
    redis_client.delete(*redis_client.scan_iter("rq:*"), *redis_client.scan_iter("*:bell:*"))


def embedded() -> transaction.Atomic:
    """A block that a change takes for no transaction at all, as it does those of test cases.

    Otherwise it would refuse to be part of a transaction, before it does anything.
    """
    block = transaction.atomic()
    block._from_testcase = True
    return block


def undone_with_the_outer(change: Callable[[], object]) -> None:
    with embedded():
        change()
        transaction.set_rollback(True)


def undone_with_the_inner(change: Callable[[], object]) -> None:
    with transaction.atomic():
        with embedded():
            change()
            transaction.set_rollback(True)


def failing_afterwards(change: Callable[[], object]) -> None:
    with suppress(Boom), embedded():
        change()
        raise Boom


def failing_inside(change: Callable[[], object]) -> None:
    with transaction.atomic(), suppress(Boom), embedded():
        change()
        raise Boom


UNDONE = (undone_with_the_outer, undone_with_the_inner, failing_afterwards, failing_inside)


def standing_in_queues(redis_client: Redis, dispute: Dispute) -> list[str]:
    member = str(dispute.pk)
    return [
        name
        for name in queue_names().values()
        if redis_client.zscore(keys().queue + name, member) is not None
    ]


def assert_redis_says(redis_client: Redis, dispute: Dispute, *, jobs: int) -> None:
    """One place on the timeline and in the queues where it has one, and so many jobs."""
    row = again(dispute)
    score = {str(row.pk): microseconds(row.due_at)} if row.due_at else {}
    assert survey.scores([str(row.pk)]) == score
    queue = f"{row.tier.queue.ladder.slug}:{row.tier.queue.slug}"
    waits = [queue] if row.status == Dispute.Status.OPEN else []
    assert standing_in_queues(redis_client, row) == waits
    assert waiting("notifications") == jobs
    assert waiting("escalations") == 0


@pytest.mark.parametrize("action", ACTIONS)
def test_bug_52_f72_a_change_reaches_redis_once_it_is_committed_and_never_when_undone(
    action: str, people: SimpleNamespace, redis_client: Redis
) -> None:
    state = STATE_OF[action]
    dispute = dispute_that_is(state, people)
    instant = (dispute.due_at or instant_of(state)) if action == "deadline" else instant_of(state)
    silence(redis_client)
    before = everything_in(redis_client)

    def change() -> None:
        ACTIONS[action](dispute, people, instant)
        assert everything_in(redis_client) == before

    for undo in UNDONE:
        undo(change)
        assert everything_in(redis_client) == before, undo
        assert again(dispute).version == dispute.version
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        ACTIONS[action](dispute, people, instant)
    assert everything_in(redis_client) == before
    ACTIONS[action](dispute, people, instant)
    assert again(dispute).version == dispute.version + 1
    told = CELLS[state, action].told
    assert_redis_says(redis_client, dispute, jobs=1 if told else 0)


OPENINGS = {
    "one": lambda: open_dispute(new(reference="one"), actor=SYSTEM, now=NOON),
    "batch": lambda: open_disputes([new(reference="b")], actor=SYSTEM, now=NOON, notify=True),
    "file": lambda: store_batch(list(records_of(FILE)), actor=SYSTEM, now=NOON, notify=True),
}


@pytest.mark.parametrize("way", OPENINGS)
def test_bug_52_a_new_dispute_reaches_redis_once_it_is_committed_and_never_when_undone(
    way: str, people: SimpleNamespace, redis_client: Redis
) -> None:
    def change() -> None:
        OPENINGS[way]()
        assert everything_in(redis_client) == {}

    for undo in UNDONE:
        undo(change)
        assert everything_in(redis_client) == {}, undo
        assert not Dispute.objects.exists()
    OPENINGS[way]()
    assert_redis_says(redis_client, Dispute.objects.get(), jobs=1)


def test_bug_52_pausing_a_ladder_reaches_redis_once_it_is_committed_and_never_when_undone(
    people: SimpleNamespace, redis_client: Redis
) -> None:
    dispute = dispute_that_is("open", people)
    entry = {str(dispute.pk): microseconds(dispute.due_at)}
    silence(redis_client)
    before = everything_in(redis_client)
    for undo in UNDONE:
        undo(lambda: pause_ladder("default", until=None, reason="x", now=NOON))
        assert everything_in(redis_client) == before, undo
    pause_ladder("default", until=None, reason="x", now=NOON)
    assert survey.scores([str(dispute.pk)]) == {}
    before = everything_in(redis_client)
    for undo in UNDONE:
        undo(lambda: lift_pause("default"))
        assert everything_in(redis_client) == before, undo
    lift_pause("default")
    assert survey.scores([str(dispute.pk)]) == entry
