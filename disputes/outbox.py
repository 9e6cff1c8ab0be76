"""The outbox: queue, cancel, claim, mark and find stranded messages. Never sends anything.

Messages are written in the transaction that causes them and sent later with no transaction
open, so each is delivered at least once under one idempotency key.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import F, Q

from disputes.models import Dispute, Notification, Queue

# Channels that reach a person; every other channel is an endpoint that stands for the queue.
PERSONAL_CHANNELS = frozenset({"email"})
DEFAULT_CHANNELS = ("email",)

Recipient = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Message:
    """What a transition wants to be told, before it has a version: one recipient, one channel."""

    event: str
    tier_id: int
    channel: str
    recipient: str


def reviewers_of(queue_ids: Iterable[int]) -> Mapping[int, tuple[Recipient, ...]]:
    """Whom to tell about arrivals: for each queue its (channel, recipient) pairs, maybe none.

    People are the active members of the queue's groups at this moment.
    """
    wanted = set(queue_ids)
    channels = {
        pk: tuple(names)
        for pk, names in Queue.objects.filter(pk__in=wanted).values_list("pk", "channels")
    }
    people: dict[int, list[int]] = {pk: [] for pk in wanted}
    members = (
        get_user_model()
        .objects.filter(is_active=True, groups__queues__in=wanted)
        .order_by("pk")
        .values_list("groups__queues", "pk")
        .distinct()
    )
    for queue_id, user_id in members:
        if queue_id in people:
            people[queue_id].append(user_id)
    return {
        pk: tuple(
            recipient
            for channel in channels.get(pk, ())
            for recipient in (
                [(channel, f"user:{user_id}") for user_id in people[pk]]
                if channel in PERSONAL_CHANNELS
                else [(channel, f"queue:{pk}")]
            )
        )
        for pk in wanted
    }


def messages_to_queue(
    event: str, *, tier_id: int, recipients: Sequence[Recipient]
) -> tuple[Message, ...]:
    """One message to each of a queue's recipients."""
    return tuple(Message(event, tier_id, channel, who) for channel, who in recipients)


def messages_to_person(event: str, *, tier_id: int, user_id: int) -> tuple[Message, ...]:
    """One message to a person over each personal channel."""
    return tuple(
        Message(event, tier_id, channel, f"user:{user_id}") for channel in DEFAULT_CHANNELS
    )


def queue_messages(rows: Iterable[tuple[str, int, str, Message]], *, now: datetime) -> int:
    """Write messages of (dispute id, version, audit hash) in the caller's transaction."""
    values = [
        (
            dispute_id,
            version,
            message.event,
            message.tier_id,
            message.channel,
            message.recipient,
            f"{audit_hash[:32]}:{message.event}:{message.channel}:{message.recipient}",
        )
        for dispute_id, version, audit_hash, message in rows
    ]
    if not values:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO disputes_notification (dispute_id, version, event, tier_id, channel,"
            " recipient, idempotency_key, status, attempts, created_at, not_before, last_error)"
            " SELECT n.*, 'pending', 0, %s, %s, '' FROM unnest(%s::uuid[], %s::integer[],"
            " %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[]) AS n"
            " ON CONFLICT DO NOTHING",
            [now, now, *(list(column) for column in zip(*values, strict=True))],
        )
        return cursor.rowcount


def cancel_pending(dispute_ids: Sequence[UUID], *, events: Sequence[str], now: datetime) -> int:
    """Cancel what has not begun to be sent; a message already being sent may still arrive."""
    return (
        Notification.objects.of_disputes(dispute_ids)
        .filter(status=Notification.Status.PENDING, event__in=events)
        .update(status=Notification.Status.CANCELLED, finished_at=now)
    )


# Claiming and marking: each is one short transaction of its own; sending lies between them.


def claim_messages(
    *, now: datetime, limit: int, lease: timedelta, channels: Sequence[str] | None = None
) -> list[Notification]:
    """Take messages that may be sent now, and those whose sender died longer than `lease` ago.

    Messages that their dispute no longer wants are cancelled here instead of returned.
    """
    sending = Notification.Status.SENDING
    wanted = Q(status=Notification.Status.PENDING, not_before__lte=now) | Q(
        status=sending, claimed_at__lt=now - lease
    )
    with transaction.atomic(durable=True):
        rows = Notification.objects.select_for_update(skip_locked=True, of=("self",)).filter(wanted)
        if channels is not None:
            rows = rows.filter(channel__in=channels)
        claimed = list(
            rows.select_related("dispute", "tier__queue__ladder").order_by("not_before", "id")[
                :limit
            ]
        )
        useless = [message for message in claimed if not still_wanted(message)]
        useful = [message for message in claimed if still_wanted(message)]
        if useless:
            Notification.objects.filter(pk__in=[m.pk for m in useless]).update(
                status=Notification.Status.CANCELLED, finished_at=now
            )
        Notification.objects.filter(pk__in=[m.pk for m in useful]).update(
            status=sending, claimed_at=now, attempts=F("attempts") + 1
        )
        for message in useful:
            message.status, message.claimed_at = sending, now
            message.attempts += 1
    return useful


def still_wanted(message: Notification) -> bool:
    """Whether the dispute, as it is now, still wants this message to go out."""
    dispute = message.dispute
    if message.event in Notification.CANCELLED_BY_ACKNOWLEDGEMENT:
        return dispute.status == Dispute.Status.OPEN and dispute.tier_id == message.tier_id
    if message.event == Notification.Event.PROPOSED:
        return dispute.status == Dispute.Status.PROPOSED
    return True


def confirm_wanted(message: Notification, *, now: datetime) -> bool:
    """Look again right before sending; a message no longer wanted is cancelled instead."""
    message.dispute.refresh_from_db()
    if still_wanted(message):
        return True
    Notification.objects.filter(pk=message.pk, status=Notification.Status.SENDING).update(
        status=Notification.Status.CANCELLED, finished_at=now
    )
    return False


def mark_sent(messages: Sequence[Notification], *, now: datetime) -> int:
    """The channel took them: a fact that is never un-said, whoever held the claim."""
    with transaction.atomic(durable=True):
        return (
            Notification.objects.filter(pk__in=[message.pk for message in messages])
            .exclude(status=Notification.Status.SENT)
            .update(status=Notification.Status.SENT, finished_at=now, last_error="")
        )


def mark_unsent(
    message: Notification, *, now: datetime, error: str, retry_at: datetime | None
) -> None:
    """The channel did not take it: try again at `retry_at`, or give up where that is None.

    A message that its dispute no longer wants is cancelled instead of tried again. Only the
    claim that failed may say so; a later claim's row is left alone.
    """
    with transaction.atomic(durable=True):
        current = (
            Notification.objects.select_for_update(of=("self",))
            .select_related("dispute")
            .filter(
                pk=message.pk,
                status=Notification.Status.SENDING,
                claimed_at=message.claimed_at,
            )
            .first()
        )
        if current is None:
            return
        current.last_error = error[:500]
        if not still_wanted(current):
            current.status, current.finished_at = Notification.Status.CANCELLED, now
        elif retry_at is None:
            current.status, current.finished_at = Notification.Status.FAILED, now
        else:
            current.status, current.not_before = Notification.Status.PENDING, retry_at
        current.save(update_fields=["status", "not_before", "finished_at", "last_error"])


def pending_count(*, now: datetime) -> int:
    """How many messages could be sent now."""
    return Notification.objects.filter(
        status=Notification.Status.PENDING, not_before__lte=now
    ).count()


def stranded(*, now: datetime, lease: timedelta, grace: timedelta) -> int:
    """Messages that nobody is working on: overdue for longer than `grace`, or a dead sender's."""
    return Notification.objects.filter(
        Q(status=Notification.Status.PENDING, not_before__lt=now - grace)
        | Q(status=Notification.Status.SENDING, claimed_at__lt=now - lease)
    ).count()


def replay(*, ids: Sequence[int] | None = None, now: datetime) -> int:
    """Put failed messages back, with the same idempotency key and a fresh count of attempts."""
    failed = Notification.objects.filter(status=Notification.Status.FAILED)
    if ids is not None:
        failed = failed.filter(pk__in=ids)
    return failed.update(
        status=Notification.Status.PENDING, not_before=now, attempts=0, finished_at=None
    )
