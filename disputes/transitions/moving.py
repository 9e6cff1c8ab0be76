"""Moves by hand: escalate, send back, pause, resume, change band, move to another ladder."""

from datetime import datetime, timedelta
from uuid import UUID

from disputes.calendars import given_deadline
from disputes.exceptions import InvalidInput, TransitionNotAllowed
from disputes.ladders import TierFacts, live_tiers, revision_tiers, tier_facts
from disputes.models import AuditEntry, Dispute, Ladder, Notification
from disputes.models.disputes import LATEST
from disputes.outbox import messages_to_queue, reviewers_of
from disputes.permissions import User, require_right
from disputes.priority import queue_score
from disputes.transitions.attempts import in_attempts, locked, unlocked
from disputes.transitions.columns import (
    NO_REVIEWERS,
    fresh_deadline,
    issued,
    kept_aside,
    resumed,
)
from disputes.transitions.journal import Actor, Change, record
from disputes.transitions.reasons import require_reason
from disputes.transitions.reviewing import (
    refuse_stale,
    require_handler,
    require_status,
    told_if_other,
)

MOVABLE = (Dispute.Status.OPEN, Dispute.Status.ACKNOWLEDGED, Dispute.Status.PAUSED)
NOT_HELD: dict[str, object] = {
    "status": Dispute.Status.OPEN,
    "holder_id": None,
    "held_since": None,
    "paused_by": "",
    "paused_at": None,
}


def _named(tiers: tuple[TierFacts, ...], slug: str) -> TierFacts:
    for tier in tiers:
        if tier.slug == slug:
            return tier
    raise InvalidInput(
        f"there is no tier {slug!r}; there are {', '.join(tier.slug for tier in tiers)}",
        field="tier",
    )


def move_to_tier(
    dispute: Dispute, tier: TierFacts, *, action: str, actor: User, note: str, now: datetime
) -> Change:
    """The change of entering a tier by hand: open, fresh deadline, its people told."""
    recipients = reviewers_of([tier.queue_id])[tier.queue_id]
    return Change(
        dispute,
        action,
        NOT_HELD | fresh_deadline(dispute, tier, now=now) | {"tier_entered_at": now},
        reason="" if recipients else NO_REVIEWERS,
        note=note,
        messages=(
            *messages_to_queue(Notification.Event.ARRIVED, tier_id=tier.id, recipients=recipients),
            *told_if_other(dispute, actor=actor, event=Notification.Event.RELEASED),
        ),
        cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
    )


def _move(
    dispute_id: UUID,
    *,
    up: bool,
    tier: str,
    reason: str,
    actor: User,
    now: datetime,
    seen_version: int | None,
) -> Dispute:
    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        require_status(dispute, *MOVABLE)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        note = require_reason(reason)
        here = tier_facts(dispute.tier_id)
        tiers = revision_tiers(here.revision_id)
        beyond = tiers[here.position :] if up else tiers[: here.position - 1]
        if not beyond:
            raise TransitionNotAllowed(
                "it is at the top of its ladder" if up else "it is at the bottom of its ladder"
            )
        target = _named(beyond, tier) if tier else (beyond[0] if up else beyond[-1])
        action = AuditEntry.Action.ESCALATED if up else AuditEntry.Action.SENT_BACK
        change = move_to_tier(dispute, target, action=action, actor=actor, note=note, now=now)
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def escalate(
    dispute_id: UUID,
    *,
    actor: User,
    reason: str,
    now: datetime,
    tier: str = "",
    seen_version: int | None = None,
) -> Dispute:
    """Move a dispute up by hand, to the next tier or to a named one above."""
    return _move(
        dispute_id,
        up=True,
        tier=tier,
        reason=reason,
        actor=actor,
        now=now,
        seen_version=seen_version,
    )


def send_back(
    dispute_id: UUID,
    *,
    actor: User,
    reason: str,
    now: datetime,
    tier: str = "",
    seen_version: int | None = None,
) -> Dispute:
    """Move a dispute down by hand, to the tier below or to a named one further down."""
    return _move(
        dispute_id,
        up=False,
        tier=tier,
        reason=reason,
        actor=actor,
        now=now,
        seen_version=seen_version,
    )


def stopped(
    dispute: Dispute, *, by: str, until: datetime | None, now: datetime
) -> dict[str, object]:
    """The columns of a dispute whose clock stands still; its deadline is kept aside."""
    new: dict[str, object] = {
        "status": Dispute.Status.PAUSED,
        "paused_by": by,
        "holder_id": None,
        "held_since": None,
    }
    if dispute.status != Dispute.Status.PAUSED:
        ran = max(now - dispute.running_since, timedelta(0))
        new |= {"paused_at": now, "consumed": dispute.consumed + ran}
        if dispute.status == Dispute.Status.OPEN:
            new |= kept_aside(dispute)
    deadline = given_deadline(until) if until else None
    return new | issued(dispute, deadline, kind=Dispute.DueKind.PAUSE_END)


def pause(
    dispute_id: UUID,
    *,
    actor: User,
    reason: str,
    now: datetime,
    until: datetime | None = None,
    seen_version: int | None = None,
) -> Dispute:
    """Stop the clock of a dispute, for good or until an instant; the time used is kept.

    Pausing a paused dispute sets another end.
    """

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        require_status(dispute, *MOVABLE)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        note = require_reason(reason)
        if until is not None and until.tzinfo is None:
            raise InvalidInput("the end of the pause has no time zone", field="until")
        if until is not None and not now < until < LATEST:
            raise InvalidInput("the end of the pause must lie ahead", field="until")
        change = Change(
            dispute,
            AuditEntry.Action.PAUSED,
            stopped(dispute, by=Dispute.PausedBy.PERSON, until=until, now=now),
            note=note,
            messages=told_if_other(dispute, actor=actor, event=Notification.Event.RELEASED),
            cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def resume(
    dispute_id: UUID, *, actor: User, reason: str, now: datetime, seen_version: int | None = None
) -> Dispute:
    """Let a paused dispute run again, with what remained of its span."""

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        require_status(dispute, Dispute.Status.PAUSED)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        change = Change(
            dispute,
            AuditEntry.Action.RESUMED,
            resumed(dispute, now=now),
            note=require_reason(reason),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def change_band(
    dispute_id: UUID,
    *,
    band: str,
    actor: User,
    reason: str,
    now: datetime,
    seen_version: int | None = None,
) -> Dispute:
    """Give a dispute another band; it keeps its arrival, so it moves only as the band says."""
    if band not in Dispute.Band.values:
        raise InvalidInput(f"the band is one of {', '.join(Dispute.Band.values)}", field="band")

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        if dispute.band == band:
            return dispute
        require_status(dispute, *MOVABLE)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        ladder = Ladder.objects.get(pk=tier_facts(dispute.tier_id).ladder_id)
        score = queue_score(band=band, arrival=dispute.arrival, policy=ladder.policy)
        change = Change(
            dispute,
            AuditEntry.Action.BAND_CHANGED,
            {"band": band, "queue_score": score},
            note=require_reason(reason),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def move_to_ladder(
    dispute_id: UUID,
    *,
    ladder: str,
    actor: User,
    reason: str,
    now: datetime,
    tier: str = "",
    seen_version: int | None = None,
) -> Dispute:
    """Move a dispute to another ladder's first or named tier, with a fresh deadline."""

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        require_status(dispute, *MOVABLE)
        refuse_stale(dispute, seen_version)
        require_right(actor, "assign")
        require_handler(dispute, actor)
        note = require_reason(reason)
        tiers = live_tiers(ladder)
        target = _named(tiers, tier) if tier else tiers[0]
        change = move_to_tier(
            dispute,
            target,
            action=AuditEntry.Action.LADDER_MOVED,
            actor=actor,
            note=note,
            now=now,
        )
        policy = Ladder.objects.get(slug=ladder).policy
        change.new["queue_score"] = queue_score(
            band=dispute.band, arrival=dispute.arrival, policy=policy
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)
