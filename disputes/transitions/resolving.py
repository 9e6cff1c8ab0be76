"""How a dispute ends and begins again: resolve, approve, return, reopen."""

from datetime import datetime
from uuid import UUID

from disputes.calendars import plain_deadline
from disputes.exceptions import InvalidInput, NotPermitted, TransitionNotAllowed
from disputes.ladders import TierFacts, tier_facts
from disputes.models import AuditEntry, Dispute, Notification
from disputes.outbox import messages_to_person, messages_to_queue, reviewers_of
from disputes.permissions import User, active_people, has_right, require_right
from disputes.transitions.attempts import in_attempts, locked, unlocked
from disputes.transitions.columns import NOTHING_ASIDE, fresh_deadline, issued
from disputes.transitions.journal import Actor, Change, record
from disputes.transitions.moving import NOT_HELD
from disputes.transitions.reasons import optional_reason, require_reason
from disputes.transitions.reviewing import refuse_stale, require_handler

# What a person may decide; the others are said by the source.
OUTCOMES = (
    Dispute.Outcome.DEFENDED,
    Dispute.Outcome.ACCEPTED,
    Dispute.Outcome.REFUNDED,
    Dispute.Outcome.WRITTEN_OFF,
    Dispute.Outcome.CORRECTED,
    Dispute.Outcome.DUPLICATE,
    Dispute.Outcome.NOT_A_DISPUTE,
)


def over(dispute: Dispute, *, outcome: str, by: int | None) -> dict[str, object]:
    """The columns of a dispute that is over: no deadline, no holder."""
    return {
        **NOT_HELD,
        **issued(dispute, None, kind=""),
        **NOTHING_ASIDE,
        "status": Dispute.Status.RESOLVED,
        "outcome": outcome,
        "resolved_by_id": by,
        "proposed_outcome": "",
        "proposed_by_id": None,
        "warn_at": None,
    }


def _proposed(
    dispute: Dispute, tier: TierFacts, *, outcome: str, by: int, now: datetime
) -> dict[str, object]:
    span = plain_deadline("approval", start=now, span=tier.approval_span or tier.sla)
    return {
        **NOT_HELD,
        **issued(dispute, span, kind=Dispute.DueKind.APPROVAL_END),
        **NOTHING_ASIDE,
        "status": Dispute.Status.PROPOSED,
        "proposed_outcome": outcome,
        "proposed_by_id": by,
    }


def resolve(
    dispute_id: UUID,
    *,
    outcome: str,
    actor: User,
    reason: str,
    now: datetime,
    seen_version: int | None = None,
) -> Dispute:
    """End an acknowledged dispute with an outcome, or propose it where four eyes apply.

    The same person repeating the same outcome is answered with the dispute, nothing written.
    """
    if outcome not in OUTCOMES:
        raise InvalidInput(f"the outcome is one of {', '.join(OUTCOMES)}", field="outcome")

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        if _is_repeat(dispute, outcome=outcome, actor=actor):
            return dispute
        _require_acknowledged(dispute)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        note = require_reason(reason)
        tier = tier_facts(dispute.tier_id)
        if outcome in tier.four_eyes:
            recipients = reviewers_of([tier.queue_id])[tier.queue_id]
            change = Change(
                dispute,
                AuditEntry.Action.PROPOSED,
                _proposed(dispute, tier, outcome=outcome, by=actor.pk, now=now),
                note=note,
                messages=messages_to_queue(
                    Notification.Event.PROPOSED, tier_id=tier.id, recipients=recipients
                ),
                cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
            )
        else:
            change = Change(
                dispute,
                AuditEntry.Action.RESOLVED,
                over(dispute, outcome=outcome, by=actor.pk),
                note=note,
                cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
            )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def _is_repeat(dispute: Dispute, *, outcome: str, actor: User) -> bool:
    if dispute.status == Dispute.Status.RESOLVED:
        return dispute.outcome == outcome and dispute.resolved_by_id == actor.pk
    if dispute.status == Dispute.Status.PROPOSED:
        return dispute.proposed_outcome == outcome and dispute.proposed_by_id == actor.pk
    return False


def _require_acknowledged(dispute: Dispute) -> None:
    match dispute.status:
        case Dispute.Status.ACKNOWLEDGED:
            return
        case Dispute.Status.OPEN:
            raise TransitionNotAllowed("acknowledge it first")
        case Dispute.Status.RESOLVED:
            raise TransitionNotAllowed(
                f"it was resolved as {dispute.get_outcome_display()} already"
            )
        case _:
            raise TransitionNotAllowed(f"it is {dispute.get_status_display()}")


def _other_than_proposer(dispute: Dispute, actor: User) -> None:
    """Four eyes: nobody decides on their own proposal, superusers included."""
    if dispute.proposed_by_id == actor.pk:
        raise NotPermitted("you proposed this; another person must approve it")
    if not has_right(actor, "approve"):
        raise NotPermitted("this needs the right “approve”", right="approve")


def approve(
    dispute_id: UUID,
    *,
    actor: User,
    now: datetime,
    reason: str = "",
    seen_version: int | None = None,
) -> Dispute:
    """Let a proposed outcome become the outcome; by another person than its proposer."""

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        if dispute.status == Dispute.Status.RESOLVED and dispute.resolved_by_id == actor.pk:
            return dispute
        if dispute.status != Dispute.Status.PROPOSED:
            raise TransitionNotAllowed(
                f"nothing waits for approval: it is {dispute.get_status_display()}"
            )
        refuse_stale(dispute, seen_version)
        _other_than_proposer(dispute, actor)
        change = Change(
            dispute,
            AuditEntry.Action.APPROVED,
            over(dispute, outcome=dispute.proposed_outcome, by=actor.pk),
            note=optional_reason(reason),
            messages=_to_proposer(dispute, Notification.Event.RESOLVED),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def return_proposal(
    dispute_id: UUID, *, actor: User, reason: str, now: datetime, seen_version: int | None = None
) -> Dispute:
    """Send a proposal back: open in its tier with a fresh deadline, the proposal kept as draft."""

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        if dispute.status != Dispute.Status.PROPOSED:
            raise TransitionNotAllowed(
                f"nothing waits for approval: it is {dispute.get_status_display()}"
            )
        refuse_stale(dispute, seen_version)
        _other_than_proposer(dispute, actor)
        tier = tier_facts(dispute.tier_id)
        change = Change(
            dispute,
            AuditEntry.Action.RETURNED,
            NOT_HELD | fresh_deadline(dispute, tier, now=now),
            note=require_reason(reason),
            messages=_to_proposer(dispute, Notification.Event.RETURNED),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def _to_proposer(dispute: Dispute, event: str) -> tuple:
    proposer = dispute.proposed_by_id
    if proposer is None or not active_people([proposer]):
        return ()
    return messages_to_person(event, tier_id=dispute.tier_id, user_id=proposer)


def reopen(
    dispute_id: UUID, *, actor: User, reason: str, now: datetime, seen_version: int | None = None
) -> Dispute:
    """Open a resolved dispute again in its tier, with nobody's hold and a fresh deadline."""

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        if dispute.status != Dispute.Status.RESOLVED:
            raise TransitionNotAllowed(f"it is {dispute.get_status_display()}, not resolved")
        refuse_stale(dispute, seen_version)
        require_right(actor, "reopen")
        tier = tier_facts(dispute.tier_id)
        recipients = reviewers_of([tier.queue_id])[tier.queue_id]
        change = Change(
            dispute,
            AuditEntry.Action.REOPENED,
            NOT_HELD
            | fresh_deadline(dispute, tier, now=now)
            | {"tier_entered_at": now, "outcome": "", "resolved_by_id": None},
            note=require_reason(reason),
            messages=messages_to_queue(
                Notification.Event.ARRIVED, tier_id=tier.id, recipients=recipients
            ),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)
