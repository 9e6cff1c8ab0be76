"""Reviewers at work: acknowledge, release, extend a hold, assign.

An acknowledgement never loses to an escalation: it retries on the fresh row, the third time
with the row locked, and wins one tier further up. It loses only to a person or a final state.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import F

from disputes.calendars import plain_deadline
from disputes.exceptions import (
    AlreadyTaken,
    InvalidInput,
    NotPermitted,
    StaleDispute,
    TransitionNotAllowed,
)
from disputes.failpoints import failpoint
from disputes.ladders import tier_facts
from disputes.models import AuditEntry, Dispute, Notification
from disputes.outbox import messages_to_person
from disputes.permissions import User, active_people, has_right, may_review, require_right
from disputes.transitions.attempts import TRIES, in_attempts, locked, unlocked
from disputes.transitions.columns import brought_back, issued, kept_aside
from disputes.transitions.journal import Actor, Change, record
from disputes.transitions.reasons import optional_reason

# Entries that change nothing a reviewer decides about: made by the clock or by a ladder migration.
NEUTRAL_ACTIONS = (*AuditEntry.CLOCK_ACTIONS, AuditEntry.Action.REVISION_MOVED)


def ack_grace() -> timedelta:
    """How long after an escalation people of the queue it left may still acknowledge."""
    return timedelta(seconds=settings.ESCALATION.get("ack_grace_s", 60))


def taken_by_other(dispute: Dispute) -> AlreadyTaken:
    """The refusal that names the holder."""
    name = dispute.holder.get_username() if dispute.holder else ""
    since = dispute.held_since or dispute.changed_at
    return AlreadyTaken(
        f"{name} acknowledged this at {since:%H:%M:%S} UTC",
        holder=name,
        since=since,
        version=dispute.version,
    )


def _refuse_by_status(dispute: Dispute) -> None:
    """Acknowledging by status: open passes; the holder's own repeat is handled before."""
    match dispute.status:
        case Dispute.Status.OPEN:
            return
        case Dispute.Status.ACKNOWLEDGED:
            raise taken_by_other(dispute)
        case Dispute.Status.PAUSED:
            raise TransitionNotAllowed("it is paused: resume it first")
        case Dispute.Status.PROPOSED:
            raise TransitionNotAllowed("its outcome waits for approval by another person")
        case _:
            # The latest entry may be a fact that the source sent after the end.
            last = (
                AuditEntry.objects.filter(dispute=dispute.pk, to_status=Dispute.Status.RESOLVED)
                .exclude(from_status=Dispute.Status.RESOLVED)
                .latest("version")
            )
            raise TransitionNotAllowed(
                f"it was resolved as {dispute.get_outcome_display()} "
                f"by {last.actor_label} at {last.at:%Y-%m-%d %H:%M} UTC"
            )


def _seen_tier(dispute: Dispute, *, seen_version: int, actor_id: int) -> int | None:
    """The tier the person saw, if every entry since then is neutral or their own.

    Returns None where nothing moved since. Raises InvalidInput for a version that does not
    exist, StaleDispute where another person or the source changed something since.
    """
    if not 1 <= seen_version <= dispute.version:
        raise InvalidInput(
            f"version {seen_version} was never shown; the dispute is at {dispute.version}",
            field="seen_version",
        )
    if seen_version == dispute.version:
        return None
    later = AuditEntry.objects.filter(dispute=dispute.pk, version__gt=seen_version)
    foreign = later.exclude(action__in=NEUTRAL_ACTIONS).exclude(actor=actor_id)
    if changed := foreign.order_by("-version").first():
        raise StaleDispute(
            f"{changed.actor_label} changed it since you saw it: "
            f"{changed.get_action_display()} at {changed.at:%H:%M:%S} UTC",
            actor=changed.actor_label,
            action=changed.action,
            version=dispute.version,
        )
    return AuditEntry.objects.values_list("to_tier", flat=True).get(
        dispute=dispute.pk, version=seen_version
    )


def _require_reviewer(
    dispute: Dispute, *, actor: User, seen_version: int, seen_tier: int | None, now: datetime
) -> None:
    """Allowed in the present queue, or in the one seen if it was left within the grace."""
    tier = tier_facts(dispute.tier_id)
    if may_review(actor, tier.queue_id):
        return
    if seen_tier is not None and actor.is_active:
        # Any move counts, the person's own as well: an old page is no pass into its old queue.
        moved_before_grace = (
            AuditEntry.objects.filter(
                dispute=dispute.pk, version__gt=seen_version, at__lt=now - ack_grace()
            )
            .exclude(to_tier=F("from_tier"))
            .exists()
        )
        if not moved_before_grace and may_review(actor, tier_facts(seen_tier).queue_id):
            return
    raise NotPermitted(
        f"it is in “{tier.name}” now, a queue that you do not review", queue=tier.slug
    )


def held(dispute: Dispute, *, holder_id: int, now: datetime) -> dict[str, object]:
    """The columns of a dispute that somebody holds from now on."""
    tier = tier_facts(dispute.tier_id)
    hold = plain_deadline("hold", start=now, span=tier.hold_limit) if tier.hold_limit else None
    aside = kept_aside(dispute) if dispute.status == Dispute.Status.OPEN else {}
    return {
        "status": Dispute.Status.ACKNOWLEDGED,
        "holder_id": holder_id,
        "held_since": now,
        **aside,
        **issued(dispute, hold, kind=Dispute.DueKind.HOLD_END),
    }


def acknowledge(dispute_id: UUID, *, actor: User, seen_version: int, now: datetime) -> Dispute:
    """Take an open dispute: it stops escalating while its holder works on it.

    Repeating it is answered with the dispute as it is, nothing written. Raises AlreadyTaken
    (naming the holder), TransitionNotAllowed, StaleDispute (a person or the source changed it
    since `seen_version`), NotPermitted, InvalidInput, DisputeNotFound, Busy.
    """

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id) if number == TRIES else unlocked(dispute_id)
        failpoint("acknowledge.read")
        if dispute.status == Dispute.Status.ACKNOWLEDGED and dispute.holder_id == actor.pk:
            return dispute
        _refuse_by_status(dispute)
        seen_tier = _seen_tier(dispute, seen_version=seen_version, actor_id=actor.pk)
        _require_reviewer(
            dispute, actor=actor, seen_version=seen_version, seen_tier=seen_tier, now=now
        )
        change = Change(
            dispute,
            AuditEntry.Action.ACKNOWLEDGED,
            held(dispute, holder_id=actor.pk, now=now),
            cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
        )
        record([change], actor=Actor.person(actor), now=now)
        failpoint("acknowledge.written")
        return unlocked(dispute_id)

    try:
        return in_attempts(attempt)
    finally:
        failpoint("acknowledge.committed")


def refuse_stale(dispute: Dispute, seen_version: int | None) -> None:
    """For every action but acknowledging: the version seen must be the present one."""
    if seen_version is not None and seen_version != dispute.version:
        raise StaleDispute(
            f"it is at version {dispute.version}, you saw {seen_version}",
            version=dispute.version,
        )


def require_handler(dispute: Dispute, actor: User) -> None:
    """Who may act on the dispute: its holder or an overrider, else a reviewer of its queue."""
    if dispute.holder_id is not None:
        if dispute.holder_id != actor.pk and not has_right(actor, "override_hold"):
            raise NotPermitted(
                "somebody else holds it; this needs the right “override_hold”",
                right="override_hold",
            )
        if not actor.is_active:
            raise NotPermitted("this account is not active")
        return
    tier = tier_facts(dispute.tier_id)
    if not may_review(actor, tier.queue_id):
        raise NotPermitted(f"you do not review “{tier.name}”", queue=tier.slug)


def require_status(dispute: Dispute, *allowed: str, hint: str = "") -> None:
    """Refuse what the present status does not allow, saying what it is."""
    if dispute.status not in allowed:
        raise TransitionNotAllowed(hint or f"it is {dispute.get_status_display()}")


def told_if_other(dispute: Dispute, *, actor: User, event: str) -> tuple:
    """Messages to the holder when somebody else ends their hold."""
    holder = dispute.holder_id
    if holder is None or holder == actor.pk or not active_people([holder]):
        return ()
    return messages_to_person(event, tier_id=dispute.tier_id, user_id=holder)


def release(
    dispute_id: UUID,
    *,
    actor: User,
    now: datetime,
    reason: str = "",
    seen_version: int | None = None,
) -> Dispute:
    """Give a held dispute back: open in its tier, its own deadline with its own number.

    An exhausted one stays exhausted. Releasing somebody else's needs `override_hold`.
    """

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        require_status(dispute, Dispute.Status.ACKNOWLEDGED)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        change = Change(
            dispute,
            AuditEntry.Action.RELEASED,
            brought_back(dispute)
            | {"status": Dispute.Status.OPEN, "holder_id": None, "held_since": None},
            note=optional_reason(reason),
            messages=told_if_other(dispute, actor=actor, event=Notification.Event.RELEASED),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def extend_hold(
    dispute_id: UUID, *, actor: User, now: datetime, seen_version: int | None = None
) -> Dispute:
    """Hold it for the tier's full hold limit again, from now."""

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        require_status(dispute, Dispute.Status.ACKNOWLEDGED)
        refuse_stale(dispute, seen_version)
        require_handler(dispute, actor)
        tier = tier_facts(dispute.tier_id)
        if tier.hold_limit is None:
            raise TransitionNotAllowed("holds of this tier have no end")
        hold = plain_deadline("hold", start=now, span=tier.hold_limit)
        change = Change(
            dispute,
            AuditEntry.Action.HOLD_EXTENDED,
            issued(dispute, hold, kind=Dispute.DueKind.HOLD_END),
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)


def assign(
    dispute_id: UUID,
    *,
    to: User,
    actor: User,
    now: datetime,
    reason: str = "",
    seen_version: int | None = None,
) -> Dispute:
    """Make another person the holder, as if they had acknowledged now; they are told.

    Needs the right “assign”, and `override_hold` where a third person holds it.
    """

    def attempt(number: int) -> Dispute:
        dispute = locked(dispute_id)
        if dispute.status == Dispute.Status.ACKNOWLEDGED and dispute.holder_id == to.pk:
            return dispute
        require_status(dispute, Dispute.Status.OPEN, Dispute.Status.ACKNOWLEDGED)
        refuse_stale(dispute, seen_version)
        require_right(actor, "assign")
        if dispute.holder_id is not None:
            require_handler(dispute, actor)
        tier = tier_facts(dispute.tier_id)
        if not may_review(to, tier.queue_id):
            raise InvalidInput(f"{to.get_username()} does not review “{tier.name}”", field="to")
        change = Change(
            dispute,
            AuditEntry.Action.ASSIGNED,
            held(dispute, holder_id=to.pk, now=now),
            note=optional_reason(reason),
            messages=(
                *told_if_other(dispute, actor=actor, event=Notification.Event.RELEASED),
                *messages_to_person(
                    Notification.Event.ASSIGNED, tier_id=dispute.tier_id, user_id=to.pk
                ),
            ),
            cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
        )
        record([change], actor=Actor.person(actor), now=now)
        return unlocked(dispute_id)

    return in_attempts(attempt)
