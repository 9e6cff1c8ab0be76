"""Maintenance, workers and people on the same disputes at once: nobody is a deadlock's victim."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from django.db import connections
from django.test import Client

from config.processes import wait_until
from disputes.clock import database_now
from disputes.exceptions import DisputeError
from disputes.models import AuditEntry, Dispute
from disputes.transitions.opening import open_disputes
from disputes.transitions.reviewing import release
from escalation.drain import drain, drain_postgres
from escalation.models import Failure
from escalation.reconcile import reconcile
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue
from tests.faults.harness import assert_sound
from tests.races.gates import Background
from tests.situations import HOUR, SYSTEM, default_ladder, new, person

pytestmark = pytest.mark.django_db(transaction=True)

DISPUTES = 200
RECONCILERS, WORKERS, PEOPLE = 3, 4, 20


def deadlocks(owner: psycopg.Connection) -> int:
    """Of this database so far. A session reports its own when it ends, so all have to."""
    connections.close_all()
    others = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert wait_until(lambda: owner.execute(others).fetchone() == (0,), timeout_s=20)
    owner.execute("SELECT pg_stat_clear_snapshot()")
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    return owner.execute(query).fetchone()[0]


@pytest.mark.parametrize("lasts_s", [5, pytest.param(30, marks=pytest.mark.long)])
def test_bug_47_reconcilers_workers_and_people_at_once_make_no_deadlock_and_no_5xx(
    owner_connection: psycopg.Connection, caplog: pytest.LogCaptureFixture, lasts_s: int
) -> None:
    """Here a cycle would end by its lock time-out, before Postgres looks for one: none of these."""
    default_ladder(sla=timedelta(seconds=1))
    queues = ("standard", "senior", "compliance")
    people = [person(f"person-{number}", *queues) for number in range(PEOPLE)]
    ids = open_over(lasts_s)
    before = deadlocks(owner_connection)
    ends_at = time.monotonic() + lasts_s
    said: list[int] = []

    def until_the_end(call: Callable[[], object]) -> Background:
        def work() -> None:
            while time.monotonic() < ends_at:
                call()

        return Background(work)

    def by(number: int) -> Callable[[], None]:
        _, secret = issue(people[number], name="test", scopes=ApiToken.Scope.values)
        program = Client(
            headers={"authorization": f"Bearer {secret}"}, raise_request_exception=False
        )
        chance = random.Random(number)

        def act() -> None:
            dispute = Dispute.objects.get(pk=chance.choice(ids))
            answer = program.post(
                f"/api/v1/disputes/{dispute.pk}/acknowledge",
                {"seen_version": dispute.version},
                content_type="application/json",
            )
            said.append(answer.status_code)
            with contextlib.suppress(DisputeError):
                release(dispute.pk, actor=people[number], now=database_now())

        return act

    running = [until_the_end(reconcile) for _ in range(RECONCILERS)]
    running += drains_side_by_side(ends_at)
    running += [until_the_end(by(number)) for number in range(PEOPLE)]
    assert wait_until(lambda: not any(m.is_running for m in running), timeout_s=lasts_s + 60)
    assert "escalation.batch_repeated" not in {record.message for record in caplog.records}
    for member in running:
        member.result()

    assert deadlocks(owner_connection) == before
    answers = Counter(said)
    assert set(answers) <= {200, 409}, answers
    assert answers[200] > PEOPLE
    assert AuditEntry.objects.filter(action="promoted").count() > DISPUTES / 2
    assert not Failure.objects.exists()
    reconcile()
    assert_sound()


def drains_side_by_side(ends_at: float) -> list[Background]:
    """Workers that all look at one moment, again and again.

    Half of them have no Redis that would keep them apart: only the rows' locks do.
    """
    goes_on = [True]

    def look_at_the_time() -> None:
        goes_on[0] = time.monotonic() < ends_at

    start = threading.Barrier(WORKERS, action=look_at_the_time)

    def work(call: Callable[[], object]) -> None:
        try:
            start.wait(60)
            while goes_on[0]:
                call()
                start.wait(60)
        except BaseException:
            # The others would wait for this one in vain.
            start.abort()
            raise

    calls = [lambda: drain(linger_s=0), drain_postgres] * (WORKERS // 2)
    return [Background(lambda call=call: work(call)) for call in calls]


def open_over(lasts_s: int) -> list[UUID]:
    """Disputes whose deadlines pass while it lasts, fifty at one instant."""
    now = database_now()
    waves = [now + timedelta(seconds=lasts_s * wave / 8) for wave in range(DISPUTES // 50)]
    batch = [new(due_at=waves[number % len(waves)]) for number in range(DISPUTES)]
    return [made.id for made in open_disputes(batch, actor=SYSTEM, now=now - HOUR)]
