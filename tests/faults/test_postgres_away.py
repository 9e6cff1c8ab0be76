"""Postgres drops a connection or cannot be reached: a batch is whole or it is not there."""

from collections import Counter
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection

from disputes import failpoints
from escalation.drain import drain
from escalation.models import Heartbeat
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    database_address,
    nothing_is_due,
    open_due,
    promotions,
    redis_is_in_step,
)
from tests.faults.proxy import Way, proxy_before
from tests.situations import default_ladder

pytestmark = pytest.mark.processes


def once(action: Callable[[], None]) -> Callable[[], None]:
    """A hook that acts the first time only."""
    left = [action]

    def hook() -> None:
        if left:
            left.pop()()

    return hook


def end_own_connection(owner: psycopg.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    owner.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("point", "number"),
    [("promote.selected", 10), ("journal.audit_written", 10), ("journal.audit_written", 1)],
)
def test_f43_a_connection_ended_in_mid_batch_rolls_the_batch_back_and_it_is_done_again(
    owner_connection: psycopg.Connection, point: str, number: int
) -> None:
    default_ladder()
    ids = open_due(number)
    failpoints.hooks[point] = once(lambda: end_own_connection(owner_connection))
    try:
        assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=number)
    finally:
        failpoints.hooks.clear()
    assert_each_promoted_once(ids)


def test_everything_goes_on_by_itself_after_postgres_was_away(crew: Crew) -> None:
    """Cut in mid-transaction, then refused for several polls, for poller and worker alike."""
    default_ladder()
    with proxy_before(database_address()) as (proxy, address):
        latch = crew.latch()
        poller = crew.poller(DATABASE_URL=address)
        worker = crew.worker(
            "escalations",
            DATABASE_URL=address,
            FAILPOINTS=f"journal.audit_written={latch.order}",
        )
        crew.wait(Heartbeat.objects.exists)
        ids = open_due(10)
        crew.wait(latch.somebody_stands_here)
        proxy.set(Way.REFUSE)
        latch.let_go()
        crew.wait(lambda: poller.said("escalation.postgres_away"))
        assert promotions() == 0
        proxy.set(Way.PASS)
        crew.wait(nothing_is_due)
        crew.wait(redis_is_in_step)
    assert poller.is_running
    assert worker.is_running
    assert_each_promoted_once(ids)


@pytest.mark.django_db(transaction=True)
def test_f08_a_commit_whose_answer_was_lost_is_not_done_twice(crew: Crew) -> None:
    """The server committed, the worker cannot know: its next look finds nothing due."""
    default_ladder()
    ids = open_due(10)
    with proxy_before(database_address()) as (proxy, address):
        latch = crew.latch()
        crew.worker(
            "escalations",
            DATABASE_URL=address,
            FAILPOINTS=f"promote.before_commit={latch.order}",
        )
        crew.poller()
        crew.wait(latch.somebody_stands_here)
        proxy.set(Way.SWALLOW)
        latch.let_go()
        crew.wait(lambda: promotions() == len(ids))
        proxy.set(Way.PASS)
        crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)
