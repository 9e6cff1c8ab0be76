"""Workers and PostgreSQL over TLS: a work horse never shares its parent's connection."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from redis import Redis
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from escalation.known_jobs import JOBS, KnownJob
from escalation.reconcile import rebuild
from tests.faults.harness import Crew, assert_each_promoted_once, open_due
from tests.faults.servers import OwnPostgres, own_postgres_over_tls, using_postgres
from tests.situations import default_ladder

pytestmark = pytest.mark.processes

CERTIFICATE = Path(__file__).resolve().parents[1] / "escalation" / "localhost.pem"
PARENT = ("--worker-class", "tests.faults.reading_worker.ReadingWorker")
JOBS_IN_A_ROW = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, django_db_setup, django_db_blocker) -> Iterator[OwnPostgres]:
    with own_postgres_over_tls(tmp_path_factory.mktemp("tls"), CERTIFICATE) as own:
        with django_db_blocker.unblock(), using_postgres(own.addresses):
            call_command("migrate", verbosity=0, interactive=False)
        yield own


@pytest.fixture(autouse=True)
def _over_tls(crew: Crew, cluster: OwnPostgres) -> Iterator[None]:
    """This process and its crew take no connection without TLS."""
    with pytest.MonkeyPatch.context() as patch, using_postgres(cluster.addresses):
        patch.setenv("PGSSLMODE", "require")
        yield
        crew.end()


def drain_job(redis_client: Redis) -> Job:
    """A job in the queue whose end is remembered."""
    queue = Queue(
        "escalations", connection=redis_client, serializer=JSONSerializer, job_class=KnownJob
    )
    return queue.enqueue(JOBS["escalations"], result_ttl=500)


def is_over(job: Job) -> bool:
    return job.get_status(refresh=True) in (JobStatus.FINISHED, JobStatus.FAILED)


def other_sessions(select: str) -> list:
    """What `select` says of every other session of this database, which are all over TLS."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT ssl, {select} FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        found = cursor.fetchall()
    assert all(is_tls for is_tls, _ in found)
    return [value for _, value in found]


def test_bug_51_jobs_succeed_beside_a_parent_that_reads_and_after_connections_were_ended(
    crew: Crew, redis_client: Redis
) -> None:
    default_ladder()
    worker = crew.worker("escalations", *PARENT)
    crew.wait(lambda: len(other_sessions("pid")) == 1)
    ids, jobs = [], []

    def one_more_job() -> None:
        ids.extend(open_due(1))
        jobs.append(drain_job(redis_client))
        crew.wait(lambda: is_over(jobs[-1]))

    for _ in range(JOBS_IN_A_ROW):
        one_more_job()
    for _ in range(3):
        # The job's own connection is gone; the parent's lies open, and Postgres ends it.
        crew.wait(lambda: len(other_sessions("pid")) == 1)
        assert other_sessions("pg_terminate_backend(pid, 5000)") == [True]
        one_more_job()
    assert [job.get_status() for job in jobs] == [JobStatus.FINISHED] * len(jobs)
    assert worker.is_running
    rebuild()
    assert_each_promoted_once(ids)
