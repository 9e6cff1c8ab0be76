"""What RQ runs. A job carries no dispute, so it may be lost, doubled or killed without harm."""

import gc

from django.db import close_old_connections

from escalation.delivery import deliver as deliver_messages
from escalation.drain import drain_anyhow


def drain() -> dict[str, int]:
    """Promote what is due; the result is only for the log."""
    close_old_connections()
    # What was loaded before the fork stays: looking for garbage in it cost a sixth of a drain.
    gc.freeze()
    try:
        return dict(drain_anyhow())
    finally:
        close_old_connections()


def deliver() -> dict[str, int]:
    """Send what is waiting in the outbox."""
    close_old_connections()
    try:
        return dict(deliver_messages())
    finally:
        close_old_connections()
