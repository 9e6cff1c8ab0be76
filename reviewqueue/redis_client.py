"""The one place where this tower's Redis clients are built. No call waits without a limit."""

from functools import lru_cache
from typing import Literal

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

Kind = Literal["request", "worker"]

# A request may lose 200 ms to a hanging Redis: half to connect, half to wait for the answer.
TIMEOUT_S = {"request": 0.1, "worker": 5.0}


def ready_client(kind: Kind = "request") -> Redis:
    """A client for a page or API call ("request") or for a background process ("worker")."""
    return _client(settings.TIMELINE_REDIS_URL, TIMEOUT_S[kind])


@lru_cache(maxsize=8)
def _client(url: str, timeout_s: float) -> Redis:
    return Redis.from_url(
        url,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        # Never again within a request: Postgres gives the same answer meanwhile.
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        # A member that is no text must not break a reader, and must be removable by its bytes.
        encoding_errors="surrogateescape",
        # The older protocol, unnamed: no round trip before the first command.
        protocol=2,
        driver_info=None,
    )
