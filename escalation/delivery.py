"""Drains the outbox: claim, send with no transaction open, mark.

A sender that dies leaves a claim that runs out; the next one sends again under the same key.

Nobody waits for somebody else's trouble. A channel that fails rests (escalation/destinations.py)
and what waits for it is put off without being sent. A channel that is merely slow has had its turn
after two seconds; it comes again when the others have had theirs.

Nobody is flooded. A person gets `messages_per_minute` and no more; more than ten at once, or more
than the minute still allows, leave as one mail that lists them, and the rest waits, in order.
"""

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from disputes import outbox
from disputes.clock import database_now
from disputes.failpoints import failpoint
from disputes.intake.money import amount_text
from disputes.models import Notification
from escalation import allowance, destinations
from escalation.channels import (
    Channel,
    DeliveryFailed,
    FoldingChannel,
    KeptOpenChannel,
    Outgoing,
    channel,
)
from escalation.conf import conf

log = logging.getLogger(__name__)

# Small, so that little is claimed and not yet sent when an acknowledgement comes.
CLAIM_SIZE = 20
# Longer than a claim of CLAIM_SIZE messages can take with every channel timing out.
LEASE = timedelta(minutes=10)
FIRST_RETRY = timedelta(seconds=15)
LONGEST_RETRY = timedelta(hours=1)
# How long one channel may keep a sender busy while others wait.
TURN_S = 2.0
# So many of a person's messages in one claim are a reason to look for more.
FEW = 3
FOLD_ABOVE = 10
LARGEST_DIGEST = 100


def retry_after(attempts: int) -> timedelta:
    """Back-off: 15 s, 30 s, 1 min … at most an hour, each between half and the whole of it."""
    full = min(FIRST_RETRY * 2 ** min(attempts - 1, 12), LONGEST_RETRY)
    return full * random.uniform(0.5, 1)  # noqa: S311 (no secret)


def outgoing(message: Notification) -> Outgoing:
    """What to send, read from the dispute as it is now; never from Redis."""
    dispute = message.dispute
    amount = currency = ""
    if dispute.amount is not None:
        amount, currency = amount_text(dispute.amount, dispute.currency), dispute.currency
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
        currency=currency,
        due_at=dispute.due_at,
        attempts=message.attempts,
    )


def deliver(*, budget_s: float | None = None, stop: threading.Event | None = None) -> Counter[str]:
    """Send what may be sent now, until nothing is left or the time is used up."""
    run = _Run(
        ends_at=time.monotonic() + (conf().drain_budget_s if budget_s is None else budget_s),
        stop=stop or threading.Event(),
    )
    while run.has_time():
        claimed = outbox.claim_messages(
            now=database_now(), limit=CLAIM_SIZE, lease=LEASE, without=run.had_turn()
        )
        failpoint("deliver.claimed")
        if claimed:
            run.send(claimed)
        elif run.had_turn():
            run.used_s.clear()
        else:
            break
    return run.counts


class _Run:
    """One call of `deliver`: what it has done and how long each channel kept it busy."""

    def __init__(self, *, ends_at: float, stop: threading.Event) -> None:
        self.counts: Counter[str] = Counter()
        self.used_s: dict[str, float] = {}
        self._ends_at = ends_at
        self._stop = stop

    def has_time(self) -> bool:
        return not self._stop.is_set() and time.monotonic() < self._ends_at

    def had_turn(self) -> list[str]:
        """Channels that have to let others go first."""
        return [name for name, used_s in self.used_s.items() if used_s >= TURN_S]

    def send(self, claimed: Sequence[Notification]) -> None:
        """Send a claim, channel by channel; what there is no time for goes back unsent."""
        by_channel: dict[str, list[Notification]] = {}
        for message in claimed:
            by_channel.setdefault(message.channel, []).append(message)
        for name, messages in by_channel.items():
            if not self._is_open(name, messages):
                continue
            try:
                found = channel(name)
            except DeliveryFailed as error:
                self._fail(messages, error, now=database_now())
                continue
            with contextlib.ExitStack() as stack:
                if isinstance(found, KeptOpenChannel):
                    found = stack.enter_context(found.kept_open())
                self._send_over(found, name, messages)

    def _is_open(self, name: str, messages: Sequence[Notification]) -> bool:
        """False where the channel rests or is switched off; what waits for it is dealt with."""
        now = database_now()
        state = destinations.state_of(name)
        if state.disabled_at:
            error = f"{name} is switched off: {state.reason}"
            self.counts[Notification.Status.FAILED] += outbox.fail_waiting(
                name, claimed=messages, error=error, now=now
            )
            return False
        if state.rests_until and state.rests_until > now:
            outbox.hand_back(messages, now=now, not_before=state.rests_until)
            outbox.put_off(name, until=state.rests_until)
            return False
        return True

    def _send_over(self, found: Channel, name: str, messages: list[Notification]) -> None:
        left = {message.pk: message for message in messages}
        parts = (
            _to_people(found, name, messages, left)
            if name in outbox.PERSONAL_CHANNELS
            else ([message] for message in messages)
        )
        for part in parts:
            if not self.has_time() or name in self.had_turn():
                break
            for message in part:
                del left[message.pk]
            started_at = time.monotonic()
            went_well = self._send_part(found, name, part)
            self.used_s[name] = self.used_s.get(name, 0.0) + time.monotonic() - started_at
            if not went_well and not self._is_open(name, list(left.values())):
                return
        if left:
            outbox.hand_back(list(left.values()), now=database_now())

    def _send_part(self, found: Channel, name: str, part: Sequence[Notification]) -> bool:
        """Send one message, or several as one, and mark them. False: the channel is in trouble."""
        wanted = outbox.confirm_wanted(part, now=database_now())
        self.counts[Notification.Status.CANCELLED] += len(part) - len(wanted)
        if not wanted:
            return True
        failpoint("deliver.before_send")
        try:
            if len(wanted) > 1 and isinstance(found, FoldingChannel):
                found.send_digest([outgoing(message) for message in wanted])
            else:
                found.send(outgoing(wanted[0]))
        except DeliveryFailed as error:
            return self._note_failure(name, wanted, error)
        except Exception as error:
            # A defect of a channel is no reason to lose the message or to stop the others.
            log.exception("notification.channel_defect", extra={"channel": name})
            return self._note_failure(name, wanted, DeliveryFailed(repr(error)))
        failpoint("deliver.sent")
        outbox.mark_sent(wanted, now=database_now())
        destinations.note_success(name)
        self.counts[Notification.Status.SENT] += len(wanted)
        return True

    def _note_failure(
        self, name: str, messages: Sequence[Notification], error: DeliveryFailed
    ) -> bool:
        now = database_now()
        if error.gone:
            destinations.switch_off(name, reason=str(error), now=now)
        elif error.of_destination:
            destinations.note_trouble(
                name, error=str(error), asked_to_wait_s=error.retry_after_s, now=now
            )
        self._fail(messages, error, now=now)
        return not (error.gone or error.of_destination)

    def _fail(
        self, messages: Sequence[Notification], error: DeliveryFailed, *, now: datetime
    ) -> None:
        for message in messages:
            give_up = error.permanent or message.attempts >= conf().delivery_max_attempts
            status = outbox.mark_unsent(
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
            if status:
                self.counts[status] += 1


def _to_people(
    found: Channel, name: str, messages: Sequence[Notification], left: dict[int, Notification]
) -> Iterator[list[Notification]]:
    """Parts that each leave as one mail, person by person, as far as their minutes allow.

    `left` is what the caller still has to send: what is claimed on top is added to it, and what
    has to wait is put off and taken out.
    """
    folds = isinstance(found, FoldingChannel)
    by_person: dict[str, list[Notification]] = {}
    for message in messages:
        by_person.setdefault(message.recipient, []).append(message)
    for person, own in by_person.items():
        if folds and len(own) >= FEW:
            more = outbox.claim_messages(
                now=database_now(),
                limit=LARGEST_DIGEST - len(own),
                lease=LEASE,
                to=(name, person),
            )
            own += more
            left.update((message.pk, message) for message in more)
        mails = 1 if folds and len(own) > FOLD_ABOVE else len(own)
        granted, free_from = allowance.take(person, wanted=mails, now=database_now())
        # The last mail that is allowed carries all the others, where mails can carry several.
        alone = granted if granted == len(own) or not folds else max(granted - 1, 0)
        yield from ([message] for message in own[:alone])
        waits = own[alone:]
        if waits and granted > alone:
            yield waits
        elif waits:
            for message in waits:
                del left[message.pk]
            outbox.hand_back(waits, now=database_now(), not_before=free_from)
            outbox.put_off(name, until=free_from, recipient=person)
