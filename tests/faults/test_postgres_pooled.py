"""PgBouncer in transaction mode with two connections: any statement may run on either."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from django.test import Client
from django.urls import reverse

from config.embedded import Addresses
from disputes.clock import database_now
from disputes.models import Dispute
from escalation.drain import drain
from escalation.reconcile import rebuild, reconcile
from reviewqueue.ready import reconcile_duty, take_next
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    database_address,
    nothing_is_due,
    open_due,
    open_due_in,
    redis_is_in_step,
)
from tests.faults.servers import own_postgres, pgbouncer_before, using_postgres
from tests.faults.suite_runs import run_suite
from tests.races.gates import Background, gate_at
from tests.situations import default_ladder, person

pytestmark = pytest.mark.processes

POOL = 2
# All but tests that start servers of their own or look at what lies in the repository.
CORE = (
    *("tests/escalation", "tests/races", "tests/disputes", "tests/reviewqueue", "tests/intake"),
    *("tests/config", "tests/test_clock_machine.py", "tests/test_state_machine.py"),
    *("tests/test_life_of_a_dispute.py", "tests/test_emptying.py", "tests/test_grants.py"),
    *("tests/faults/test_kill_worker.py", "tests/faults/test_kill_poller.py"),
    *("tests/faults/test_kill_deliverer.py", "tests/faults/test_redis_away.py"),
    # It waits until every session has ended and told Postgres its numbers; those of a pool stay.
    "--deselect=tests/races/test_everybody_at_once.py::test_bug_47",
)


@pytest.fixture
def pooled(crew: Crew) -> Iterator[str]:
    """This process and its crew reach this test's database through the pool."""
    with pgbouncer_before(database_address(), pool_size=POOL) as address:
        addresses = Addresses(address, os.environ["DATABASE_OWNER_URL"], os.environ["REDIS_URL"])
        with using_postgres(addresses):
            yield address
            crew.end()


def test_f46_bug_50_drains_races_and_pages_work_through_a_pool_of_two(pooled: str) -> None:
    default_ladder()
    ada = person("ada", "standard")
    ids = open_due(60)
    rebuild()
    work = [Background(lambda: drain(linger_s=0)) for _ in range(3)]
    counts = sum((each.result() for each in work), Counter())
    assert counts["PROMOTED_TO_SENIOR"] == len(ids)
    reconcile()
    assert_each_promoted_once(ids)
    waiting = open_due_in(2, seconds=3600)
    reconcile_duty(now=database_now())
    client = Client()
    client.force_login(ada)
    assert client.get(reverse("dispute", args=[waiting[0]])).status_code == 200
    assert take_next(ada, queue_ids=None, now=database_now()).pk in waiting


def test_f46_a_batch_and_an_acknowledgement_that_meet_share_the_pool(pooled: str) -> None:
    default_ladder()
    ada = person("ada", "standard", "senior")
    (id_,) = open_due(1)
    with gate_at("promote.before_commit") as gate:
        batch = Background(lambda: drain(linger_s=0))
        gate.wait()
        taking = Background(lambda: take_next(ada, queue_ids=None, now=database_now()))
        gate.open.set()
        assert batch.result() == Counter(PROMOTED_TO_SENIOR=1)
        assert taking.result() is None or taking.result().pk == id_
    assert Dispute.objects.get(pk=id_).tier.slug == "senior"


def test_f46_the_processes_work_through_a_pool_of_two(crew: Crew, pooled: str) -> None:
    default_ladder()
    pollers = [crew.poller() for _ in range(2)]
    crew.worker("escalations")
    ids = [*open_due(40), *open_due_in(40, seconds=1)]
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert all(poller.is_running for poller in pollers)
    assert_each_promoted_once(ids)


def test_the_pool_is_what_it_is_said_to_be(pooled: str) -> None:
    """Two transactions hold two server connections; the third has to wait for one of them."""

    def connect() -> psycopg.Connection:
        return psycopg.connect(pooled, prepare_threshold=None)

    with connect() as one, connect() as two, connect() as three:
        pids = {c.execute("SELECT pg_backend_pid()").fetchone()[0] for c in (one, two)}
        waits = Background(lambda: three.execute("SELECT pg_backend_pid()").fetchone()[0])
        assert waits.is_running
        one.rollback()
        assert len(pids) == POOL
        assert waits.result() in pids


@pytest.mark.long
def test_f46_bug_50_the_suite_passes_through_a_pool_of_two(tmp_path) -> None:
    with own_postgres(tmp_path) as own:
        with pgbouncer_before(own.addresses.database_url, pool_size=POOL) as through:
            said = run_suite(
                replace(own.addresses, database_url=through, redis_url=os.environ["REDIS_URL"]),
                *CORE,
            )
    assert " passed" in said
