"""The one place where clients of the timeline's Redis are built. No call waits without a limit."""

import logging
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from redis import Redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

log = logging.getLogger(__name__)

Kind = Literal["worker", "batch", "request"]

# True while this thread answers a request: nobody may wait for Redis then.
answering_a_request: ContextVar[bool] = ContextVar("answering_a_request", default=False)

# A request may lose 200 ms to a hanging Redis: half to connect, half to wait for the answer.
REQUEST_TIMEOUT_S = 0.1
# After a batch has committed: Redis may be slow, but a hanging one must not stop the batches.
BATCH_TIMEOUT_S = 1.0
WORKER_TIMEOUT_S = 5.0
TIMEOUTS_S = {"request": REQUEST_TIMEOUT_S, "batch": BATCH_TIMEOUT_S, "worker": WORKER_TIMEOUT_S}
# Once more, for a pooled connection that died with the last server. Every script of the
# timeline may run twice: same version, same token, same result.
WORKER_RETRIES = 1
WORKER_RETRY_AFTER_S = 0.05


class UnfitRedis(ImproperlyConfigured):
    """The server may throw away keys that the clock relies on."""


def timeline_client(kind: Kind = "worker") -> Redis:
    """A client for a page or API call ("request") or for a background process ("worker")."""
    return _client(settings.TIMELINE_REDIS_URL, kind)


def client_for_here() -> Redis:
    """The impatient client inside a request, one that waits a second in every other process."""
    return timeline_client("request" if answering_a_request.get() else "batch")


@lru_cache(maxsize=8)
def _client(url: str, kind: Kind) -> Redis:
    # The pool inside drops inherited connections after a fork, so caching is safe there.
    timeout_s = TIMEOUTS_S[kind]
    return Redis.from_url(
        url,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=(
            Retry(NoBackoff(), 0)
            if kind != "worker"
            else Retry(
                ConstantBackoff(WORKER_RETRY_AFTER_S),
                WORKER_RETRIES,
                supported_errors=(RedisConnectionError, RedisTimeoutError),
            )
        ),
        decode_responses=True,
        # A member that is no text must not break a reader, and must be removable by its bytes.
        encoding_errors="surrogateescape",
        # The older protocol, unnamed: no round trip before the first command.
        protocol=2,
        driver_info=None,
    )


def bell_client() -> Redis:
    """A client for RQ's queues, as impatient as a request: ringing may never hold anybody up."""
    return _bell_client(settings.REDIS_URL)


@lru_cache(maxsize=8)
def _bell_client(url: str) -> Redis:
    return Redis.from_url(
        url,
        socket_connect_timeout=REQUEST_TIMEOUT_S,
        socket_timeout=REQUEST_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


def refuse_evicting_policy(client: Redis) -> None:
    """Raise UnfitRedis where Redis may evict: `volatile-*` loses locks, `allkeys-*` the timeline.

    Asked when a poller starts. A server that hides its policy is believed, with a warning.
    """
    policy = _maxmemory_policy(client)
    if policy is None:
        log.warning("escalation.redis_policy_unknown")
    elif policy != "noeviction":
        raise UnfitRedis(
            f"Redis would evict keys when its memory is full (maxmemory-policy {policy}). "
            "Set maxmemory-policy to noeviction on the server that TIMELINE_REDIS_URL names."
        )


def _maxmemory_policy(client: Redis) -> str | None:
    try:
        return client.config_get("maxmemory-policy")["maxmemory-policy"]
    except (ResponseError, KeyError):
        # Managed servers forbid or rename CONFIG; INFO tells the same.
        pass
    try:
        return client.info("memory").get("maxmemory_policy")
    except ResponseError:
        return None
