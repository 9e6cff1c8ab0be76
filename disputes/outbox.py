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

from disputes.failpoints import failpoint
from disputes.models import Dispute, Notification, Queue
from disputes.transitions.attempts import in_passing, limit_lock_waits

# Channels that reach a person; every other channel is an endpoint that stands for the queue.
PERSONAL_CHANNELS = frozenset({"email"})
DEFAULT_CHANNELS = ("email",)
# What is told to a queue's people because they are that; all else is told to somebody by name.
QUEUE_EVENTS = (
    Notification.Event.ARRIVED,
    Notification.Event.WARNING,
    Notification.Event.EXHAUSTED,
    Notification.Event.PROPOSED,
)

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
    """Cancel what has not begun to be sent; a message already being sent may still arrive.

    Neither the clock nor a person waits for a sender that holds rows: what is passed over here is
    cancelled by that sender's last look, or by the next one's claim.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE disputes_notification SET status = 'cancelled', finished_at = %s WHERE id IN ("
            " SELECT id FROM disputes_notification WHERE dispute_id = ANY(%s)"
            " AND status = 'pending' AND event = ANY(%s) FOR UPDATE SKIP LOCKED)",
            [now, list(dispute_ids), list(events)],
        )
        return cursor.rowcount


# Said of a message whose sender died between claiming and marking it.
MAY_HAVE_LEFT = "its sender died: it may have been sent"

# Claiming and marking: each is one short transaction of its own; sending lies between them.


def claim_messages(
    *,
    now: datetime,
    limit: int,
    lease: timedelta,
    channels: Sequence[str] | None = None,
    without: Iterable[str] = (),
    to: Recipient | None = None,
) -> list[Notification]:
    """Take messages that may be sent now, and those whose sender died longer than `lease` ago.

    `channels` and `to` take only these, `without` leaves channels out. Messages that nobody wants
    any more are cancelled here instead of returned; an empty list means that there are no others.
    """
    wanted = Q(status=Notification.Status.PENDING, not_before__lte=now) | Q(
        status=Notification.Status.SENDING, claimed_at__lt=now - lease
    )
    rows = Notification.objects.select_for_update(skip_locked=True, of=("self",)).filter(wanted)
    if channels is not None:
        rows = rows.filter(channel__in=channels)
    if to is not None:
        rows = rows.filter(channel=to[0], recipient=to[1])
    rows = rows.exclude(channel__in=list(without)).select_related("dispute", "tier__queue__ladder")
    useful: list[Notification] = []
    found = True
    while found and not useful:
        with transaction.atomic(durable=True):
            limit_lock_waits()
            claimed = list(rows.order_by("not_before", "id")[:limit])
            found = bool(claimed)
            failpoint("deliver.claiming")
            for message in claimed:
                if message.status == Notification.Status.SENDING:
                    message.last_error = MAY_HAVE_LEFT
            useful = _cancel_unwanted(claimed, now=now)
            for last_error in {message.last_error for message in useful}:
                Notification.objects.filter(
                    pk__in=[m.pk for m in useful if m.last_error == last_error]
                ).update(
                    status=Notification.Status.SENDING,
                    claimed_at=now,
                    attempts=F("attempts") + 1,
                    last_error=last_error,
                )
        for message in useful:
            message.status, message.claimed_at = Notification.Status.SENDING, now
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


def _unwanted(messages: Sequence[Notification]) -> dict[int, str]:
    """Which of these nobody wants any more, by id, with the reason for the operator.

    A person who was deactivated gets nothing. One who left the queue's groups no longer gets what
    was for the queue, and still gets what is about a dispute they held themselves.
    """
    people = {m.recipient.removeprefix("user:") for m in messages if _is_to_person(m)}
    if not people:
        return {message.pk: "" for message in messages if not still_wanted(message)}
    known = get_user_model().objects.filter(pk__in=people, is_active=True)
    active = {f"user:{pk}" for pk in known.values_list("pk", flat=True)}
    queues = {message.tier.queue_id for message in messages}
    members = {
        (f"user:{pk}", queue_id)
        for pk, queue_id in known.filter(groups__queues__in=queues).values_list(
            "pk", "groups__queues"
        )
    }
    found = {}
    for message in messages:
        if not still_wanted(message):
            found[message.pk] = ""
        elif not _is_to_person(message):
            continue
        elif message.recipient not in active:
            found[message.pk] = "no active person"
        elif (
            message.event in QUEUE_EVENTS
            and (message.recipient, message.tier.queue_id) not in members
        ):
            found[message.pk] = "the person left the queue"
    return found


def _is_to_person(message: Notification) -> bool:
    return message.channel in PERSONAL_CHANNELS


def _cancel_unwanted(messages: Sequence[Notification], *, now: datetime) -> list[Notification]:
    """Cancel what nobody wants any more; returns the others, in their order."""
    unwanted = _unwanted(messages)
    for message in messages:
        # Whether the dead sender got as far as sending, nobody knows; the log says so.
        if message.pk in unwanted and message.last_error == MAY_HAVE_LEFT:
            unwanted[message.pk] = MAY_HAVE_LEFT
    for reason in set(unwanted.values()):
        Notification.objects.filter(
            pk__in=[pk for pk, why in unwanted.items() if why == reason],
            status__in=(Notification.Status.PENDING, Notification.Status.SENDING),
        ).update(status=Notification.Status.CANCELLED, finished_at=now, last_error=reason)
    return [message for message in messages if message.pk not in unwanted]


def confirm_wanted(messages: Sequence[Notification], *, now: datetime) -> list[Notification]:
    """Look again right before sending; what is no longer wanted is cancelled instead."""
    disputes = Dispute.objects.in_bulk([message.dispute_id for message in messages])
    for message in messages:
        message.dispute = disputes[message.dispute_id]
    return in_passing(lambda: _cancel_unwanted(messages, now=now), otherwise=[])


def _claimed(messages: Sequence[Notification]) -> Q:
    """These rows as long as the claim that returned them still stands."""
    return Q(
        pk__in=[message.pk for message in messages],
        status=Notification.Status.SENDING,
        claimed_at__in={message.claimed_at for message in messages},
    )


def hand_back(
    messages: Sequence[Notification], *, now: datetime, not_before: datetime | None = None
) -> int:
    """Give up a claim without an attempt; `not_before` puts the messages off.

    What an acknowledgement made unwanted meanwhile is cancelled instead.
    """
    messages = confirm_wanted(messages, now=now)
    changes: dict[str, object] = {"not_before": not_before} if not_before else {}
    return in_passing(
        lambda: Notification.objects.filter(_claimed(messages)).update(
            status=Notification.Status.PENDING, attempts=F("attempts") - 1, **changes
        ),
        otherwise=0,
    )


def put_off(channel: str, *, until: datetime, recipient: str | None = None) -> int:
    """Whatever waits for this channel, or for one recipient of it, waits until then.

    Rows that somebody else holds are passed over, so that this never waits for an acknowledgement.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE disputes_notification SET not_before = %(until)s WHERE id IN ("
            " SELECT id FROM disputes_notification WHERE status = 'pending'"
            " AND not_before < %(until)s AND channel = %(channel)s"
            " AND recipient = coalesce(%(recipient)s, recipient) FOR UPDATE SKIP LOCKED)",
            {"until": until, "channel": channel, "recipient": recipient},
        )
        return cursor.rowcount


def fail_waiting(
    channel: str, *, claimed: Sequence[Notification], error: str, now: datetime
) -> int:
    """Fail, without sending, what waits for a channel that takes no more; replay brings it back."""
    in_passing(
        lambda: Notification.objects.filter(_claimed(claimed)).update(
            status=Notification.Status.FAILED, finished_at=now, last_error=error[:500]
        ),
        otherwise=0,
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE disputes_notification"
            " SET status = 'failed', finished_at = %s, last_error = %s WHERE id IN ("
            " SELECT id FROM disputes_notification WHERE status = 'pending' AND channel = %s"
            " FOR UPDATE SKIP LOCKED)",
            [now, error[:500], channel],
        )
        return len(claimed) + cursor.rowcount


def mark_sent(messages: Sequence[Notification], *, now: datetime) -> int:
    """The channel took them: a fact that is never un-said, whoever held the claim.

    One whose row somebody has locked stays claimed and is sent again when the claim has run out.
    """
    rows = Notification.objects.exclude(status=Notification.Status.SENT)
    return sum(
        in_passing(
            lambda pk=message.pk: rows.filter(pk=pk).update(  # type: ignore[misc]
                status=Notification.Status.SENT, finished_at=now, last_error=""
            ),
            otherwise=0,
        )
        for message in messages
    )


def mark_unsent(
    message: Notification, *, now: datetime, error: str, retry_at: datetime | None
) -> str:
    """The channel did not take it: try again at `retry_at`, or give up where that is None.

    A message that its dispute no longer wants is cancelled instead of tried again. Only the
    claim that failed may say so; a later claim's row is left alone. Returns the status that the
    message has now, or nothing where it was left alone.
    """

    def marked() -> str:
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
            return ""
        current.last_error = error[:500]
        if not still_wanted(current):
            current.status, current.finished_at = Notification.Status.CANCELLED, now
        elif retry_at is None:
            current.status, current.finished_at = Notification.Status.FAILED, now
        else:
            current.status, current.not_before = Notification.Status.PENDING, retry_at
        current.save(update_fields=["status", "not_before", "finished_at", "last_error"])
        return current.status

    return in_passing(marked, otherwise="")


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
