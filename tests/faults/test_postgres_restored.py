"""Postgres is put back to an earlier state while Redis went on: Postgres wins.

Promise: in the restored world every deadline ends once, however much Redis remembers of the other.
"""

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.conf import settings
from django.db import connections
from psycopg import sql

from disputes.clock import database_now
from disputes.ladders import forget_cached_tiers
from disputes.models import AuditEntry, Dispute
from disputes.transitions.reviewing import acknowledge
from escalation import timeline_survey
from escalation.drain import drain
from escalation.models import Heartbeat
from escalation.poller import Poller
from escalation.reconcile import compare, rebuild, reconcile
from reviewqueue.ready import reconcile_duty, take_next
from tests.faults.harness import (
    Crew,
    assert_sound,
    nothing_is_due,
    open_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.processes

Restore = Callable[[], None]


@pytest.fixture
def backup(transactional_db) -> Iterator[Callable[[], Restore]]:
    """Take a copy of the database now; what is returned puts it back, ending all sessions."""
    name = connections["default"].settings_dict["NAME"]
    copy = f"{name}_backup"

    def drop(victim: str) -> None:
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        owner.execute(statement.format(sql.Identifier(victim)))

    def restore() -> None:
        connections.close_all()
        drop(name)
        statement = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        owner.execute(statement.format(sql.Identifier(copy), sql.Identifier(name)))
        forget_cached_tiers()

    def take() -> Restore:
        connections.close_all()
        drop(copy)
        end_sessions(owner, name)
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        owner.execute(statement.format(sql.Identifier(copy), sql.Identifier(name)))
        return restore

    with psycopg.connect(settings.DATABASE_OWNER_URL, autocommit=True) as owner:
        yield take
        drop(copy)


def end_sessions(owner: psycopg.Connection, name: str) -> None:
    """A database that is being used cannot be copied."""
    owner.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
    )


def queues_are_in_step() -> bool:
    """Rounds over the review queues until one finds nothing to repair."""
    return any(reconcile_duty(now=database_now()) == 0 for _ in range(5))


def test_after_a_restore_redis_follows_and_each_deadline_of_the_restored_world_ends_once(
    backup: Callable[[], Restore],
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    person("sam", "senior")
    due = open_due(10)
    taken = [opened(now=(now := database_now()), due_at=now + HOUR).pk for _ in range(5)]
    rebuild()
    assert queues_are_in_step()
    restore = backup()
    drain(linger_s=0)
    for id_ in taken:
        acknowledge(id_, actor=ada, seen_version=1, now=database_now())
    unknown = [*open_due(5), *open_due_in(5, seconds=3600)]
    drain(linger_s=0)
    restore()
    assert not Dispute.objects.filter(pk__in=unknown).exists()
    assert promotions() == 0
    known = timeline_survey.known_versions([str(id_) for id_ in due])
    assert set(known.values()) == {2}, "Redis remembers what Postgres does not"
    Poller(threading.Event()).look()
    drain(linger_s=0)
    reconcile()
    drain(linger_s=0)
    assert promotions(due) == promotions() == len(due)
    assert set(Dispute.objects.filter(pk__in=taken).values_list("version", "status")) == {
        (1, "open")
    }
    assert compare().is_clean
    assert queues_are_in_step()
    assert_sound()
    # What was taken in the lost world waits again, in its place, and can be taken.
    assert take_next(ada, queue_ids=None, now=database_now()).pk == taken[0]


def test_poller_and_workers_that_ran_through_the_restore_go_on_in_the_restored_world(
    crew: Crew, backup: Callable[[], Restore]
) -> None:
    default_ladder()
    waiting = open_due_in(10, seconds=3600)
    restore = backup()
    poller = crew.poller()
    worker = crew.worker("escalations")
    crew.wait(Heartbeat.objects.exists)
    lost = open_due(10)
    crew.wait(lambda: promotions() == len(lost))
    restore()
    ids = open_due(10)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert worker.is_running
    assert promotions(ids) == len(ids)
    assert set(Dispute.objects.values_list("pk", flat=True)) == {*waiting, *ids}
    assert AuditEntry.objects.count() == len(waiting) + 2 * len(ids)
    assert_sound()
