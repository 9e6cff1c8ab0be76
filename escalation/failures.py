"""Disputes whose promotion fails for a reason of their own: put off, then parked, never silent."""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from disputes.transitions.attempts import in_passing
from escalation.conf import conf
from escalation.models import Failure

log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=10)
# A parked dispute is still tried this often: a repaired release heals it without a hand.
PARKED_PAUSE = timedelta(hours=1)


def put_off(dispute_id: UUID, *, error: Exception, now: datetime) -> Failure | None:
    """Count a failed promotion and leave the dispute out for a while, longer each time.

    None where somebody else is about to: the dispute is tried again meanwhile.
    """
    reason = f"{type(error).__name__}: {error}".replace("\x00", "")[:500]

    def counted() -> Failure | None:
        failure, _ = Failure.objects.select_for_update().get_or_create(
            pk=dispute_id,
            defaults={"until": now, "reason": reason, "first_at": now, "last_at": now},
        )
        failure.attempts += 1
        failure.reason, failure.last_at = reason, now
        parked = failure.attempts >= conf().max_attempts
        if parked and failure.parked_at is None:
            failure.parked_at = now
        pause = PARKED_PAUSE if parked else FIRST_PAUSE * 2 ** min(failure.attempts - 1, 9)
        failure.until = now + min(pause, PARKED_PAUSE)
        failure.save()
        return failure

    failure = in_passing(counted, otherwise=None)
    if failure:
        log.error(
            "escalation.parked" if failure.parked_at else "escalation.put_off",
            extra={"dispute_id": str(dispute_id), "attempts": failure.attempts, "reason": reason},
        )
    return failure


def forget(ids: list[UUID]) -> int:
    """A promotion worked, or an operator wants another try now: the failures are over."""
    return in_passing(lambda: Failure.objects.filter(pk__in=ids).delete()[0], otherwise=0)


def left_out(ids: list[UUID], *, now: datetime) -> set[UUID]:
    """Which of these are not to be tried yet."""
    return set(Failure.objects.among(ids).filter(until__gt=now).values_list("pk", flat=True))
