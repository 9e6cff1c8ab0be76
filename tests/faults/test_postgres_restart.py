"""Postgres is stopped at once, without a word to anybody, while batches are being written."""

from collections.abc import Iterator

import pytest
from django.core.management import call_command

from escalation.models import Heartbeat
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    promotions,
    redis_is_in_step,
)
from tests.faults.servers import OwnPostgres, own_postgres, using_postgres
from tests.situations import default_ladder, person

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, django_db_setup, django_db_blocker) -> Iterator[OwnPostgres]:
    with own_postgres(tmp_path_factory.mktemp("own")) as own:
        with django_db_blocker.unblock(), using_postgres(own.addresses):
            call_command("migrate", verbosity=0, interactive=False)
        yield own


@pytest.fixture
def postgres(crew: Crew, cluster: OwnPostgres) -> Iterator[OwnPostgres]:
    """The cluster of this file, used by this process and its crew; ends before the crew does."""
    with using_postgres(cluster.addresses):
        yield cluster
        crew.end()


def test_f40_an_immediate_restart_in_mid_batch_undoes_that_batch_and_no_other(
    crew: Crew, postgres: OwnPostgres
) -> None:
    default_ladder()
    person("sam", "senior")
    small = {"ESCALATION": '{"poll_interval_s": 1, "lock_ttl_s": 5, "batch_size": 10}'}
    latch = crew.latch()
    poller = crew.poller(**small)
    crew.wait(Heartbeat.objects.exists)
    done = open_due(10)
    worker = crew.worker("escalations", **small)
    crew.wait(lambda: promotions() == len(done))
    held = crew.worker("escalations", FAILPOINTS=f"journal.audit_written={latch.order}", **small)
    worker.kill()
    ids = open_due(40)
    crew.wait(latch.somebody_stands_here)
    postgres.stop_immediately()
    crew.wait(lambda: poller.said("escalation.postgres_away"))
    postgres.start_again()
    latch.let_go()
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert held.is_running
    assert_each_promoted_once([*done, *ids])
