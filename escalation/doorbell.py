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
REGISTRIES = ("wip", "finished", "failed", "deferred", "scheduled", "canceled")
# So many jobs at most wait in a queue; each works until nothing is left, so more add nothing.
MOST_WAITING = 4
# Pollers that wake at the same instant ring once between them.
QUIET_MS = 20
# A ringer that dies keeps the bell this long.
RINGING_MS = 1_000
FAILED_JOB_KEPT_S = 24 * 3600


def waiting(queue: QueueName, *, client: Redis | None = None) -> int:
    """How many jobs wait in a queue."""
    return Queue(queue, connection=client or bell_client()).count


def mend_queues(*, client: Redis | None = None) -> list[str]:
    """Remove keys of RQ that are of another type than RQ's own; returns their names.

    Nobody but a stranger's hand makes one, and no worker of the queue gets past it. Jobs carry no
    dispute, so nothing is lost.
    """
    client = client or bell_client()
    wanted = {"rq:queues": b"set", "rq:workers": b"set"}
    for queue in JOBS:
        wanted |= {f"rq:queue:{queue}": b"list", f"rq:queue:{queue}:intermediate": b"list"}
        wanted[f"rq:workers:{queue}"] = b"set"
        wanted |= {f"rq:{registry}:{queue}": b"zset" for registry in REGISTRIES}
    pipeline = client.pipeline(transaction=False)
    for name in wanted:
        pipeline.type(name)
    kinds = dict(zip(wanted, pipeline.execute(), strict=True))
    strange = [name for name, kind in kinds.items() if kind not in (b"none", wanted[name])]
    if strange:
        client.delete(*strange)
        log.error("escalation.strange_keys_removed", extra={"keys": strange})
    return strange


def ring(queue: QueueName, *, wanted: int = 1, client: Redis | None = None) -> int:
    """Make sure that up to `wanted` jobs wait in the queue; returns how many were added.

    Raises what Redis raises: the caller decides whether that matters.
    """
    client = client or bell_client()
    rq_queue = Queue(queue, connection=client, serializer=JSONSerializer, job_class=KnownJob)
    most = min(wanted, MOST_WAITING)
    bell = f"{keys().bell}{queue}"
    if rq_queue.count >= most:
        return 0
    if not client.set(bell, "1", nx=True, px=RINGING_MS):
        # One that has no end, or a later one than ours ever have, would silence us for good.
        if not 0 <= client.pttl(bell) <= RINGING_MS:
            client.delete(bell)
        return 0
    # Counted again with the bell in hand: whoever rang in between has added theirs.
    missing = max(0, most - rq_queue.count)
    for _ in range(missing):
        rq_queue.enqueue(
            JOBS[queue],
            job_timeout=int(conf().drain_budget_s) + 60,
            result_ttl=0,
            failure_ttl=FAILED_JOB_KEPT_S,
        )
    client.pexpire(bell, QUIET_MS)
    return missing
