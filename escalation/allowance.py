"""How many messages a person may still get this minute.

Promise: in no sixty seconds do more than `messages_per_minute` leave for one person, however many
senders there are; what was taken and not used is lost, so the limit is never exceeded.
"""

from datetime import datetime, timedelta

from disputes.transitions.attempts import in_passing
from escalation.conf import conf
from escalation.models import Allowance

WINDOW = timedelta(seconds=60)
ASK_AGAIN = timedelta(seconds=5)


def take(recipient: str, *, wanted: int, now: datetime) -> tuple[int, datetime]:
    """Take as many as there are, up to `wanted`; also returns when there is another one."""
    limit = conf().messages_per_minute

    def taken() -> tuple[int, datetime]:
        row, _ = Allowance.objects.select_for_update().get_or_create(recipient=recipient)
        used = [at for at in row.used_at if at > now - WINDOW]
        granted = min(wanted, max(limit - len(used), 0))
        row.used_at = used + [now] * granted
        row.save()
        free_from = now if len(row.used_at) < limit else row.used_at[-limit] + WINDOW
        return granted, free_from

    # One who stands still with a person's minute in hand holds up that person's mail alone.
    return in_passing(taken, otherwise=(0, now + ASK_AGAIN))
