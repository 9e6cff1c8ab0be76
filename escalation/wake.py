"""Hears that a member was scheduled. A lost message costs a poller one interval, no more."""

import logging
import threading
import time
from typing import cast

from redis import Redis
from redis.client import PubSub
from redis.exceptions import RedisError

from escalation.redis_client import timeline_client
from escalation.timeline_keys import keys

log = logging.getLogger(__name__)

# How soon a stop is noticed, and how soon a lost Redis is tried again.
SLICE_S = 0.25
RECONNECT_S = 1.0


class Waker:
    """Waits for `schedule` to write something that is due before the poller meant to look.

    Each message is the instant of the earliest entry of one write. Every poller gets it and
    decides for itself: the writer cannot know how long each of them sleeps, and an entry may
    matter although members before it, being locked, are earlier.
    """

    def __init__(self, *, stop: threading.Event, client: Redis | None = None) -> None:
        self._stop = stop
        # Short time-outs and no retries: a hanging Redis may not hold up the safety query.
        self._client = client or timeline_client("request")
        self._pubsub: PubSub | None = None

    def wait(self, *, timeout_s: float, earlier_than_us: int | None = None) -> bool:
        """True: look now. False: the time is over, or the process is to stop.

        Also True once after each (re)connect, because messages before it were not heard.
        Without `earlier_than_us` every message wakes.
        """
        until = time.monotonic() + timeout_s
        while not self._stop.is_set() and (left_s := until - time.monotonic()) > 0:
            try:
                message = self._hear(min(left_s, SLICE_S))
            except (RedisError, OSError) as error:
                log.info("escalation.waker_disconnected", extra={"error": str(error)})
                self.close()
                self._stop.wait(min(left_s, RECONNECT_S))
                continue
            if message is not None and _wakes(message, earlier_than_us):
                return True
        return False

    def close(self) -> None:
        """Drop the subscription; the next wait makes a new one."""
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None

    def _hear(self, timeout_s: float) -> dict[str, object] | None:
        if self._pubsub is None:
            self._pubsub = self._client.pubsub()
            self._pubsub.subscribe(keys().wake)
        return cast("dict[str, object] | None", self._pubsub.get_message(timeout=timeout_s))


def _wakes(message: dict[str, object], earlier_than_us: int | None) -> bool:
    if message["type"] != "message" or earlier_than_us is None:
        return True
    instant = str(message["data"])
    return not instant.isdecimal() or int(instant) < earlier_than_us
