"""Drains the outbox: claim, send with no transaction open, mark.

A sender that dies leaves a claim that runs out; the next one sends again under the same key.
"""

import logging
import random
import threading
import time
from collections import Counter
from datetime import datetime, timedelta

from disputes import outbox
from disputes.clock import database_now
from disputes.failpoints import failpoint
from disputes.intake.money import amount_text
from disputes.models import Notification
from escalation.channels import DeliveryFailed, Outgoing, channel
from escalation.conf import conf

log = logging.getLogger(__name__)

# Small, so that little is claimed and not yet sent when an acknowledgement comes.
CLAIM_SIZE = 20
# Longer than a claim of CLAIM_SIZE messages can take with every channel timing out.
LEASE = timedelta(minutes=10)
FIRST_RETRY = timedelta(seconds=15)
LONGEST_RETRY = timedelta(hours=1)


def retry_after(attempts: int) -> timedelta:
    """Back-off: 15 s, 30 s, 1 min … at most an hour, each between half and the whole of it."""
    full = min(FIRST_RETRY * 2 ** min(attempts - 1, 12), LONGEST_RETRY)
    return full * random.uniform(0.5, 1)  # noqa: S311 (no secret)


def outgoing(message: Notification) -> Outgoing:
    """What to send, read from the dispute as it is now; never from Redis."""
    dispute = message.dispute
    amount = ""
    if dispute.amount is not None:
        amount = f"{amount_text(dispute.amount, dispute.currency)} {dispute.currency}"
    return Outgoing(
        idempotency_key=message.idempotency_key,
        event=message.event,
        event_label=str(message.get_event_display()),
        recipient=message.recipient,
        dispute_id=str(dispute.pk),
        reference=dispute.reference,
        version=message.version,
        ladder=message.tier.queue.ladder.name,
        tier=message.tier.name,
        amount=amount,
        due_at=dispute.due_at,
        attempts=message.attempts,
    )


def _send_one(message: Notification) -> str:
    """Send a claimed message and mark it; returns what became of it."""
    if not outbox.confirm_wanted(message, now=database_now()):
        return Notification.Status.CANCELLED
    failpoint("deliver.before_send")
    try:
        channel(message.channel).send(outgoing(message))
    except DeliveryFailed as error:
        return _mark_failed(message, error, now=database_now())
    except Exception as error:
        # A defect of a channel is no reason to lose the message or to stop the others.
        log.exception("notification.channel_defect", extra={"channel": message.channel})
        return _mark_failed(message, DeliveryFailed(repr(error)), now=database_now())
    failpoint("deliver.sent")
    outbox.mark_sent([message], now=database_now())
    return Notification.Status.SENT


def _mark_failed(message: Notification, error: DeliveryFailed, *, now: datetime) -> str:
    give_up = error.permanent or message.attempts >= conf().delivery_max_attempts
    outbox.mark_unsent(
        message,
        now=now,
        error=str(error),
        retry_at=None if give_up else now + retry_after(message.attempts),
    )
    log.warning(
        "notification.failed" if give_up else "notification.put_off",
        extra={
            "trace_id": str(message.dispute_id),
            "idempotency_key": message.idempotency_key,
            "error": str(error)[:200],
        },
    )
    return Notification.Status.FAILED if give_up else Notification.Status.PENDING


def deliver(*, budget_s: float | None = None, stop: threading.Event | None = None) -> Counter[str]:
    """Send what may be sent now, until nothing is left or the time is used up."""
    ends_at = time.monotonic() + (conf().drain_budget_s if budget_s is None else budget_s)
    stop = stop or threading.Event()
    counts: Counter[str] = Counter()
    while not stop.is_set() and time.monotonic() < ends_at:
        claimed = outbox.claim_messages(now=database_now(), limit=CLAIM_SIZE, lease=LEASE)
        failpoint("deliver.claimed")
        if not claimed:
            break
        for message in claimed:
            counts[_send_one(message)] += 1
    return counts
