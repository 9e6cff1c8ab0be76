"""Postgres is there but refuses everybody: read-only, closed, a right taken away. It passes.

Promise: people are told to try again, processes stay, nobody is put off, and the work is done
as soon as it is over: the fault is of the installation and no dispute's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from psycopg import sql

from disputes.clock import database_now
from disputes.transitions.reviewing import acknowledge
from escalation.models import Failure, Heartbeat
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.processes

Fault = Callable[[psycopg.Connection], Iterator[None]]


def end_other_sessions(owner: psycopg.Connection) -> None:
    """As a failover does; this process keeps its connection and can go on watching."""
    owner.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend'"
        " AND pid <> ALL (%s)",
        [[owner.info.backend_pid, connection.connection.info.backend_pid]],
    )


def alter_database(owner: psycopg.Connection, words: str) -> None:
    owner.execute(sql.SQL("ALTER DATABASE {} " + words).format(sql.Identifier(owner.info.dbname)))


@contextmanager
def read_only(owner: psycopg.Connection) -> Iterator[None]:
    alter_database(owner, "SET default_transaction_read_only = on")
    try:
        end_other_sessions(owner)
        yield
    finally:
        owner.execute("SET default_transaction_read_only = off")
        alter_database(owner, "RESET default_transaction_read_only")


@contextmanager
def closed(owner: psycopg.Connection) -> Iterator[None]:
    alter_database(owner, "CONNECTION LIMIT 0")
    try:
        end_other_sessions(owner)
        yield
    finally:
        alter_database(owner, "CONNECTION LIMIT -1")


@contextmanager
def without_a_right(owner: psycopg.Connection) -> Iterator[None]:
    role = sql.Identifier(connection.settings_dict["USER"])
    owner.execute(sql.SQL("REVOKE INSERT ON disputes_auditentry FROM {}").format(role))
    try:
        yield
    finally:
        owner.execute(sql.SQL("GRANT INSERT ON disputes_auditentry TO {}").format(role))


@pytest.mark.parametrize("fault", [read_only, closed, without_a_right])
def test_while_postgres_refuses_everybody_nobody_is_put_off_and_all_goes_on_afterwards(
    crew: Crew, owner_connection: psycopg.Connection, fault: Fault
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    now = database_now()
    held = opened(now=now, due_at=now + HOUR)
    browser = Client(raise_request_exception=False)
    browser.force_login(ada)
    crew.worker("escalations", "notifications")
    poller = crew.poller()
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    ids = open_due_in(20, seconds=1.5)
    with fault(owner_connection):
        # From here this process' connections are new ones as well.
        connection.close()
        crew.wait(lambda: overdue_by_postgres(owner_connection) == len(ids))
        crew.wait(lambda: "escalation.postgres_away" in poller.log.read_text())
        answer = browser.post(
            reverse("act", args=[held.pk, "acknowledge"]), {"seen_version": 1, "next": "/queues/"}
        )
        assert answer.status_code == 503, answer.content
        connection.close()
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert not Failure.objects.exists()
    assert_each_promoted_once(ids)
    assert acknowledge(held.pk, actor=ada, seen_version=1, now=database_now()).holder == ada


def overdue_by_postgres(owner: psycopg.Connection) -> int:
    row = owner.execute(
        "SELECT count(*) FROM disputes_dispute WHERE due_at < clock_timestamp() - interval '1 s'"
    ).fetchone()
    assert row
    return row[0]
