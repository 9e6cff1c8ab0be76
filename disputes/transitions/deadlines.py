"""What the clock does: promote disputes whose deadline has passed, a batch in one transaction.

Nothing outside happens in that transaction, so a rollback undoes nothing that was sent, and a
row that lost a race is simply not selected.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from disputes.failpoints import failpoint
from disputes.ladders import TierFacts, paused_ladders, revision_tiers, tier_facts
from disputes.models import AuditEntry, Dispute, Notification
from disputes.outbox import (
    Message,
    Recipient,
    messages_to_person,
    messages_to_queue,
    reviewers_of,
)
from disputes.permissions import active_people
from disputes.rules import Outcome, Step, decide_passed_deadline, promoted_to
from disputes.transitions.attempts import limit_lock_waits
from disputes.transitions.columns import (
    NO_REVIEWERS,
    brought_back,
    fresh_deadline,
    issued,
    resumed,
)
from disputes.transitions.journal import CLOCK, Change, record

log = logging.getLogger(__name__)

Recipients = Mapping[int, tuple[Recipient, ...]]

# What a promotion reads of a dispute; facts that it neither needs nor changes stay unread.
READ_BY_THE_CLOCK = (
    "status",
    "version",
    "audit_head",
    "changed_at",
    "source_hash",
    "tier",
    "tier_entered_at",
    "running_since",
    "consumed",
    "due_at",
    "due_kind",
    "deadline_no",
    "due_explanation",
    "restore_due_at",
    "restore_deadline_no",
    "restore_explanation",
    "deadlines_issued",
    "exhausted_at",
    "external_due_at",
    "holder",
    "held_since",
    "paused_at",
    "paused_by",
    "proposed_by",
    "flags",
)


def _next_tier(dispute: Dispute, tier: TierFacts, now: datetime, told: Recipients) -> Change:
    recipients = told.get(tier.queue_id, ())
    new = fresh_deadline(dispute, tier, now=now) | {"tier_entered_at": now}
    return Change(
        dispute,
        AuditEntry.Action.PROMOTED,
        new,
        decision=promoted_to(tier.slug),
        reason="" if recipients else NO_REVIEWERS,
        deadline_no=dispute.deadline_no,
        messages=messages_to_queue(
            Notification.Event.ARRIVED, tier_id=tier.id, recipients=recipients
        ),
        cancels=(Notification.Event.ARRIVED, Notification.Event.WARNING),
    )


def _exhaust(dispute: Dispute, tier: TierFacts, now: datetime, told: Recipients) -> Change:
    recipients = told.get(tier.queue_id, ())
    return Change(
        dispute,
        AuditEntry.Action.EXHAUSTED,
        issued(dispute, None, kind="") | {"exhausted_at": now},
        decision=Outcome.TERMINAL_ESCALATION,
        reason="" if recipients else NO_REVIEWERS,
        deadline_no=dispute.deadline_no,
        messages=messages_to_queue(
            Notification.Event.EXHAUSTED, tier_id=tier.id, recipients=recipients
        ),
    )


def _told(
    dispute: Dispute, people: Iterable[int | None], event: str, active: set[int]
) -> tuple[Message, ...]:
    return tuple(
        message
        for user_id in dict.fromkeys(people)
        if user_id in active
        for message in messages_to_person(event, tier_id=dispute.tier_id, user_id=user_id)
    )


def _end_hold(dispute: Dispute, active: set[int]) -> Change:
    return Change(
        dispute,
        AuditEntry.Action.HOLD_EXPIRED,
        brought_back(dispute)
        | {"status": Dispute.Status.OPEN, "holder_id": None, "held_since": None},
        decision=Outcome.HOLD_EXPIRED,
        deadline_no=dispute.deadline_no,
        messages=_told(dispute, [dispute.holder_id], Notification.Event.HOLD_EXPIRED, active),
    )


def _end_pause(dispute: Dispute, now: datetime) -> Change:
    return Change(
        dispute,
        AuditEntry.Action.PAUSE_EXPIRED,
        resumed(dispute, now=now),
        decision=Outcome.RESUMED,
        deadline_no=dispute.deadline_no,
    )


def _end_proposal(
    dispute: Dispute, tier: TierFacts, now: datetime, told: Recipients, active: set[int]
) -> Change:
    # The proposal stays on the row as a draft, so that nobody has to type it again. Both sides
    # hear of it: who proposed, and the queue that was asked to approve.
    event = Notification.Event.PROPOSAL_EXPIRED
    proposer = _told(dispute, [dispute.proposed_by_id], event, active)
    queue = messages_to_queue(event, tier_id=tier.id, recipients=told.get(tier.queue_id, ()))
    return Change(
        dispute,
        AuditEntry.Action.PROPOSAL_EXPIRED,
        fresh_deadline(dispute, tier, now=now) | {"status": Dispute.Status.OPEN},
        decision=Outcome.PROPOSAL_EXPIRED,
        deadline_no=dispute.deadline_no,
        messages=tuple(dict.fromkeys((*proposer, *queue))),
    )


def decide(dispute: Dispute, *, now: datetime, told: Recipients, active: set[int]) -> Change:
    """The change that a passed deadline makes; `told` and `active` were read for the batch."""
    tier = tier_facts(dispute.tier_id)
    decision = decide_passed_deadline(
        status=dispute.status, position=tier.position, tiers=tier.tiers
    )
    match decision.step:
        case Step.NEXT_TIER:
            target = revision_tiers(tier.revision_id)[decision.position - 1]
            return _next_tier(dispute, target, now, told)
        case Step.EXHAUST:
            return _exhaust(dispute, tier, now, told)
        case Step.END_HOLD:
            return _end_hold(dispute, active)
        case Step.END_PAUSE:
            return _end_pause(dispute, now)
        case Step.END_PROPOSAL:
            return _end_proposal(dispute, tier, now, told, active)


def _queues_to_tell(disputes: Sequence[Dispute]) -> set[int]:
    queues = set()
    for dispute in disputes:
        tier = tier_facts(dispute.tier_id)
        tiers = revision_tiers(tier.revision_id)
        climbs = dispute.status == Dispute.Status.OPEN and not tier.is_last
        queues.add(tiers[tier.position].queue_id if climbs else tier.queue_id)
    return queues


def _due(ids: Sequence[UUID], *, now: datetime) -> QuerySet[Dispute]:
    rows = Dispute.objects.among(ids).filter(due_at__lte=now)
    if paused := paused_ladders(now=now):
        rows = rows.exclude(tier__revision__ladder__in=paused)
    return rows


def promote(
    ids: Sequence[UUID],
    *,
    now: datetime,
    decide_one: Callable[..., Change] = decide,
) -> dict[UUID, str]:
    """Promote those of these disputes that are really due at `now`; one outcome for each id.

    One transaction; rows are taken in id order and those that somebody else has locked are
    skipped. Raises what Postgres raises, with everything rolled back: the caller retries.
    """
    outcomes: dict[UUID, str] = {}
    changes: list[Change] = []
    with transaction.atomic(durable=True):
        limit_lock_waits()
        disputes = list(
            _due(ids, now=now)
            .select_for_update(skip_locked=True, no_key=True, of=("self",))
            .only(*READ_BY_THE_CLOCK)
            .order_by("pk")
        )
        failpoint("promote.selected")
        if disputes:
            told = reviewers_of(_queues_to_tell(disputes))
            people = {
                user_id
                for dispute in disputes
                for user_id in (dispute.holder_id, dispute.proposed_by_id)
                if user_id
            }
            active = active_people(people) if people else set()
            changes = [decide_one(d, now=now, told=told, active=active) for d in disputes]
            record(changes, actor=CLOCK, now=now)
            outcomes = {change.dispute.id: change.decision for change in changes}
        failpoint("promote.before_commit")
    failpoint("promote.committed")
    _log_unheard(changes)
    missing = [id_ for id_ in ids if id_ not in outcomes]
    return outcomes | _why_not(missing, now=now)


def _log_unheard(changes: Sequence[Change]) -> None:
    """One line a batch about tiers where nobody could be told: they need an operator."""
    unheard = [change for change in changes if change.reason == NO_REVIEWERS]
    if unheard:
        ids = {cast(int, c.new.get("tier_id", c.dispute.tier_id)) for c in unheard}
        tiers = sorted({tier_facts(id_).slug for id_ in ids})
        log.error("escalation.no_reviewers", extra={"disputes": len(unheard), "tiers": tiers})


def _why_not(ids: Sequence[UUID], *, now: datetime) -> dict[UUID, str]:
    """For ids that were not promoted: what a fresh look says."""
    if not ids:
        return {}
    rows = {
        id_: (status, due_at)
        for id_, status, due_at in Dispute.objects.among(ids).values_list("pk", "status", "due_at")
    }
    due_anyway = set(_due(ids, now=now).values_list("pk", flat=True))
    outcomes: dict[UUID, str] = {}
    for id_ in ids:
        if id_ not in rows:
            outcomes[id_] = Outcome.STUCK_MEMBER
        elif id_ in due_anyway:
            outcomes[id_] = Outcome.LOCK_CONTENTION
        elif rows[id_][1] is None:
            outcomes[id_] = Outcome.NO_LONGER_OPEN
        else:
            outcomes[id_] = Outcome.NOT_DUE
    return outcomes
