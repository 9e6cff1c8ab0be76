"""The only signal receiver of this app: best effort, after commit, never in anybody's way.

Redis being away costs at most its short time-outs here. Nothing is lost: "take next" goes on
from Postgres, and the reconcile duty brings the sets in step.
"""

import logging
from uuid import UUID

from redis.exceptions import RedisError

from reviewqueue.ready_set import sync
from reviewqueue.redis_client import ready_client

log = logging.getLogger(__name__)


def on_disputes_changed(*, ids: list[UUID], **kwargs: object) -> None:
    """Put the disputes where they stand now."""
    try:
        sync(ids, client=ready_client())
    except (RedisError, OSError) as error:
        log.warning(
            "reviewqueue.sync_failed", extra={"disputes": len(ids), "error": str(error)[:200]}
        )
