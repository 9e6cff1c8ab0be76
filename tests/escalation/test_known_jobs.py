"""Whoever can write to Redis cannot make a worker run a function of their choice."""

import json
import zlib
from pathlib import Path

import pytest
from django.core.management import call_command
from redis import Redis
from rq.serializers import JSONSerializer
from rq.utils import now, utcformat

from escalation.known_jobs import KnownJob

pytestmark = pytest.mark.django_db(transaction=True)


def plant(redis: Redis, job_id: str, function: str, argument: str, **more: str) -> None:
    """A job as RQ keeps it, written by somebody who is not this product."""
    data = zlib.compress(JSONSerializer.dumps([function, None, [argument], {}]))
    stamp = utcformat(now())
    redis.hset(
        f"rq:job:{job_id}",
        mapping={
            "data": data,
            "created_at": stamp,
            "enqueued_at": stamp,
            "origin": "escalations",
            "status": "queued",
            "timeout": "60",
            "description": "planted",
            **more,
        },
    )
    redis.rpush("rq:queue:escalations", job_id)


def work() -> None:
    """The product's own worker, until its queue is empty."""
    call_command("rqworker", "escalations", "--burst", "--worker-class", "rq.SimpleWorker", "-v0")


def test_a_planted_job_does_not_run(redis_client: Redis, tmp_path: Path):
    trap = tmp_path / "trap"
    plant(redis_client, "evil", "os.system", f"touch {trap}")
    work()
    assert not trap.exists()
    assert redis_client.llen("rq:queue:escalations") == 0


def test_a_callback_of_a_planted_job_is_not_even_imported(redis_client: Redis):
    plant(redis_client, "evil", "os.system", "true", failure_callback_name="os.abort")
    job = KnownJob.fetch("evil", connection=redis_client, serializer=JSONSerializer)
    assert (job.success_callback, job.failure_callback, job.stopped_callback) == (None, None, None)


def test_our_own_job_runs(redis_client: Redis):
    data = json.dumps(["escalation.jobs.drain", None, [], {}]).encode()
    plant(redis_client, "ours", "escalation.jobs.drain", "")
    redis_client.hset("rq:job:ours", "data", zlib.compress(data))
    work()
    assert not redis_client.exists("rq:job:ours") or (
        redis_client.hget("rq:job:ours", "status") in (b"finished", "finished")
    )
