"""Running until told to stop: signals, jitter, heartbeats. A step says how much it did."""

import os
import random
import signal
import socket
import threading
from datetime import datetime

from disputes.transitions.attempts import in_passing
from escalation.models import Heartbeat


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set: the loop ends after the step at hand."""
    stop = threading.Event()

    def handle(signum: int, frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


def jittered(interval_s: float, share: float) -> float:
    """interval_s · (1 ± share), so that a fleet does not look at the same instant."""
    return interval_s * (1 + random.uniform(-share, share))  # noqa: S311 (no secret)


def process_name(kind: str) -> str:
    """A name that no other living process has."""
    return f"{kind}@{socket.gethostname()}:{os.getpid()}"


def beat(name: str, *, kind: str, now: datetime, detail: dict[str, object]) -> None:
    """Say that this process lives, by Postgres' clock."""
    defaults = {"kind": kind, "at": now, "detail": detail}
    in_passing(
        lambda: Heartbeat.objects.update_or_create(name=name[:120], defaults=defaults),
        otherwise=None,
    )
