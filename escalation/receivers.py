"""The only signal receivers of this app: best effort, after commit, never in anybody's way.

Redis being away costs at most its short time-outs here. Nothing is lost: the poller's safety
query and reconcile find in Postgres what Redis does not know.
"""

import logging
from uuid import UUID

from redis.exceptions import RedisError

from escalation.doorbell import ring
from escalation.redis_client import answering_a_request, client_for_here
from escalation.sync import sync

log = logging.getLogger(__name__)


def on_disputes_changed(*, ids: list[UUID], **kwargs: object) -> None:
    """Put the new deadlines on the timeline."""
    try:
        sync(ids, client=client_for_here())
    except (RedisError, OSError) as error:
        log.warning(
            "escalation.sync_failed", extra={"disputes": len(ids), "error": str(error)[:200]}
        )


def on_notifications_queued(**kwargs: object) -> None:
    """Wake a worker that delivers."""
    try:
        ring("notifications")
    except (RedisError, OSError) as error:
        log.warning("escalation.ring_failed", extra={"error": str(error)[:200]})


def on_request_started(**kwargs: object) -> None:
    """From here on nobody may wait for Redis."""
    answering_a_request.set(True)


def on_request_finished(**kwargs: object) -> None:
    """The thread is free again."""
    answering_a_request.set(False)
