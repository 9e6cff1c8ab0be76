"""How a dispute comes into being: open in a tier, paused, or already closed."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from disputes.calendars import Deadline, given_deadline, span_deadline, stamp
from disputes.exceptions import InvalidInput
from disputes.ladders import TierFacts, live_tiers
from disputes.models import AuditEntry, Dispute, Ladder, Notification
from disputes.models.disputes import EARLIEST, LATEST
from disputes.outbox import messages_to_queue, reviewers_of
from disputes.priority import MICROSECOND, queue_score
from disputes.transitions.attempts import in_attempts, limit_lock_waits
from disputes.transitions.columns import NO_REVIEWERS, issued
from disputes.transitions.journal import Actor, Change, record_new

# What numeric(24, 4) holds.
MOST_AMOUNT = Decimal(10) ** 20
# What the text columns hold, in characters.
LONGEST = {
    "source": 40,
    "reference": 200,
    "source_hash": 64,
    "currency": 3,
    "reason_code": 200,
    "stage": 40,
    "source_state": 80,
}
# A start ahead would make a deadline far too late; news from ahead would silence all that follows.
ALREADY_PAST = ("opened_at", "source_at")
CLOCKS_MAY_DIFFER_BY = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDispute:
    """What is known of a dispute at intake. Instants are aware; amounts in whole units."""

    source: str
    reference: str
    source_hash: str
    kind: str = Dispute.Kind.OTHER
    amount: Decimal | None = None
    currency: str = ""
    materiality_usd: Decimal | None = None
    reason_code: str = ""
    stage: str = ""
    source_state: str = ""
    source_at: datetime | None = None
    opened_at: datetime | None = None
    # Our deadline, where the source sets one; else the ladder computes it from opened_at.
    due_at: datetime | None = None
    external_due_at: datetime | None = None
    external_due_estimated: bool = False
    ladder: str = "default"
    tier: str = ""
    band: str = Dispute.Band.MEDIUM
    flags: tuple[str, ...] = field(default=())
    # "open", "paused" (the other side has it) or "resolved" (over before we heard of it).
    status: str = Dispute.Status.OPEN
    outcome: str = ""


def refuse_bad(new: NewDispute, *, now: datetime) -> None:
    """Refuse what no dispute may be made of, naming the field. Raises InvalidInput."""
    for name, longest in LONGEST.items():
        text = getattr(new, name)
        if len(text) > longest:
            raise InvalidInput(f"longer than {longest} characters", field=name)
        if any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in text):
            raise InvalidInput("contains a control character or half a surrogate pair", field=name)
    for name in ("source", "reference"):
        if not getattr(new, name).strip():
            raise InvalidInput("is empty", field=name)
    if new.amount is not None and not (new.amount.is_finite() and 0 <= new.amount < MOST_AMOUNT):
        raise InvalidInput(f"lies outside 0 to {MOST_AMOUNT:,}", field="amount")
    if new.amount is not None and not new.currency:
        raise InvalidInput("is missing: an amount needs one", field="currency")
    if new.band not in Dispute.Band.values:
        raise InvalidInput(f"is one of {', '.join(Dispute.Band.values)}", field="band")
    if new.kind not in Dispute.Kind.values:
        raise InvalidInput(f"is one of {', '.join(Dispute.Kind.values)}", field="kind")
    for name in ("opened_at", "due_at", "external_due_at", "source_at"):
        instant = getattr(new, name)
        if instant is None:
            continue
        if instant.tzinfo is None:
            raise InvalidInput("has no time zone", field=name)
        if not EARLIEST <= instant < LATEST:
            raise InvalidInput("lies outside the years 1990 to 2199", field=name)
        if name in ALREADY_PAST and instant > now + CLOCKS_MAY_DIFFER_BY:
            raise InvalidInput(
                f"{stamp(instant)} lies in the future, it is {stamp(now)}", field=name
            )


@dataclass(frozen=True, slots=True)
class Opened:
    """The dispute that now stands for a new one's source and reference."""

    id: UUID
    created: bool


def start_tier(new: NewDispute, tiers: Sequence[TierFacts]) -> TierFacts:
    """The tier named at intake, else the first. Raises InvalidInput for an unknown name."""
    if not new.tier:
        return tiers[0]
    for tier in tiers:
        if tier.slug == new.tier:
            return tier
    known = ", ".join(tier.slug for tier in tiers)
    raise InvalidInput(
        f"ladder {new.ladder!r} has no tier {new.tier!r}; it has {known}", field="tier"
    )


def first_deadline(new: NewDispute, tier: TierFacts, *, now: datetime) -> Deadline:
    """The deadline at intake: the given one as it is, else a span from the day it was opened."""
    if new.due_at is not None:
        return given_deadline(new.due_at)
    return span_deadline(
        start=new.opened_at or now,
        span=tier.sla,
        external_due_at=new.external_due_at,
        margin=tier.margin,
        now=now,
    )


def _row(
    new: NewDispute, tier: TierFacts, policy: str, *, arrival: datetime, now: datetime
) -> Dispute:
    dispute = Dispute(
        id=uuid.uuid4(),
        source=new.source,
        reference=new.reference,
        source_hash=new.source_hash,
        kind=new.kind,
        amount=new.amount,
        currency=new.currency,
        materiality_usd=new.materiality_usd,
        reason_code=new.reason_code,
        stage=new.stage,
        source_state=new.source_state,
        source_at=new.source_at,
        band=new.band,
        tier_id=tier.id,
        status=new.status,
        opened_at=new.opened_at or now,
        tier_entered_at=now,
        arrival=arrival,
        changed_at=now,
        running_since=new.opened_at or now,
        external_due_at=new.external_due_at,
        external_due_estimated=new.external_due_estimated,
        flags=list(new.flags),
        queue_score=queue_score(band=new.band, arrival=arrival, policy=policy),
    )
    if new.status == Dispute.Status.RESOLVED:
        dispute.outcome = new.outcome or Dispute.Outcome.CLOSED
        return dispute
    deadline = first_deadline(new, tier, now=now)
    dispute.flags += [flag for flag in deadline.flags if flag not in dispute.flags]
    if deadline.flags:
        dispute.running_since = now
    for name, value in issued(dispute, deadline, kind=Dispute.DueKind.ESCALATE).items():
        setattr(dispute, name, value)
    if new.status == Dispute.Status.PAUSED:
        _put_aside(dispute, now=now)
    return dispute


def _put_aside(dispute: Dispute, *, now: datetime) -> None:
    """The source waits for others: the clock stands still until it says otherwise."""
    dispute.restore_due_at = dispute.due_at
    dispute.restore_deadline_no = dispute.deadline_no
    dispute.restore_explanation = dispute.due_explanation
    dispute.due_at, dispute.due_kind, dispute.deadline_no = None, "", None
    dispute.due_explanation = {}
    dispute.paused_by, dispute.paused_at = Dispute.PausedBy.SOURCE, now
    dispute.consumed = max(now - dispute.running_since, timedelta(0))


def open_disputes(
    batch: Sequence[NewDispute], *, actor: Actor, now: datetime, notify: bool = True
) -> list[Opened]:
    """Create the disputes of a batch in one transaction, in order, one answer for each.

    One that exists already (same source and reference) is left as it is. Arrivals within the
    batch are successive microseconds, so the queue keeps the batch's order. Raises LadderError
    for an unknown ladder or tier and InvalidInput for a bad value; nothing is stored then.
    """
    with transaction.atomic(durable=True):
        limit_lock_waits()
        return open_in_transaction(batch, actor=actor, now=now, notify=notify)


def open_in_transaction(
    batch: Sequence[NewDispute], *, actor: Actor, now: datetime, notify: bool
) -> list[Opened]:
    """`open_disputes` for a caller that writes more in the same transaction."""
    for new in batch:
        refuse_bad(new, now=now)
    ladders = {slug: live_tiers(slug) for slug in {new.ladder for new in batch}}
    policies = dict(Ladder.objects.filter(slug__in=ladders).values_list("slug", "policy"))
    tiers = [start_tier(new, ladders[new.ladder]) for new in batch]
    told = reviewers_of({tier.queue_id for tier in tiers}) if notify else {}
    changes = []
    for number, (new, tier) in enumerate(zip(batch, tiers, strict=True)):
        dispute = _row(new, tier, policies[new.ladder], arrival=now + number * MICROSECOND, now=now)
        closed = new.status == Dispute.Status.RESOLVED
        waits = new.status == Dispute.Status.OPEN
        recipients = told.get(tier.queue_id, ()) if notify and waits else ()
        changes.append(
            Change(
                dispute,
                AuditEntry.Action.CREATED_CLOSED if closed else AuditEntry.Action.CREATED,
                {},
                reason=NO_REVIEWERS if notify and waits and not recipients else "",
                messages=messages_to_queue(
                    Notification.Event.ARRIVED, tier_id=tier.id, recipients=recipients
                ),
            )
        )
    # Rows are inserted in key order so that two batches with the same references cannot deadlock.
    changes.sort(key=lambda change: (change.dispute.source, change.dispute.reference))
    created = record_new(changes, actor=actor, now=now)
    return _answers(batch, changes, created)


def _answers(
    batch: Sequence[NewDispute], changes: Sequence[Change], created: set[UUID]
) -> list[Opened]:
    new_ids = {
        (change.dispute.source, change.dispute.reference): change.dispute.id
        for change in changes
        if change.dispute.id in created
    }
    others = [
        (new.source, new.reference) for new in batch if (new.source, new.reference) not in new_ids
    ]
    existing: dict[tuple[str, str], UUID] = {}
    for source in {source for source, _ in others}:
        references = [reference for s, reference in others if s == source]
        for pk, reference in Dispute.objects.filter(
            source=source, reference__in=references
        ).values_list("pk", "reference"):
            existing[source, reference] = pk
    answers = []
    for new in batch:
        key = (new.source, new.reference)
        if key in new_ids:
            answers.append(Opened(new_ids[key], created=True))
            existing[key] = new_ids.pop(key)
        else:
            answers.append(Opened(existing[key], created=False))
    return answers


def open_dispute(new: NewDispute, *, actor: Actor, now: datetime, notify: bool = True) -> Opened:
    """Create one dispute, or find the one that has its source and reference already."""
    return in_attempts(
        lambda number: open_in_transaction([new], actor=actor, now=now, notify=notify)[0]
    )
