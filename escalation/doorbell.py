"""Rings RQ's workers: a job says "there is work", never which, and only a few ever wait."""

import logging
from typing import Literal

from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from escalation.conf import conf
from escalation.known_jobs import JOBS, KnownJob
from escalation.redis_client import bell_client
from escalation.timeline_keys import keys

log = logging.getLogger(__name__)

QueueName = Literal["escalations", "notifications"]
# So many jobs at most wait in a queue; each works until nothing is left, so more add nothing.
MOST_WAITING = 4
# Pollers that wake at the same instant ring once between them.
QUIET_MS = 20
FAILED_JOB_KEPT_S = 24 * 3600


def waiting(queue: QueueName, *, client: Redis | None = None) -> int:
    """How many jobs wait in a queue."""
    return Queue(queue, connection=client or bell_client()).count


def ring(queue: QueueName, *, wanted: int = 1, client: Redis | None = None) -> int:
    """Make sure that up to `wanted` jobs wait in the queue; returns how many were added.

    Raises what Redis raises: the caller decides whether that matters.
    """
    client = client or bell_client()
    rq_queue = Queue(queue, connection=client, serializer=JSONSerializer, job_class=KnownJob)
    missing = min(wanted, MOST_WAITING) - rq_queue.count
    if missing <= 0 or not client.set(f"{keys().bell}{queue}", "1", nx=True, px=QUIET_MS):
        return 0
    for _ in range(missing):
        rq_queue.enqueue(
            JOBS[queue],
            job_timeout=int(conf().drain_budget_s) + 60,
            result_ttl=0,
            failure_ttl=FAILED_JOB_KEPT_S,
        )
    return missing
