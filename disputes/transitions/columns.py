"""What a change writes about deadlines: columns and values, computed from the row as read.

Pure but for the cached tiers: nothing here writes. A new deadline takes the next number; one that
was kept aside comes back with its instant and its number.
"""

from datetime import datetime, timedelta

from disputes.calendars import Deadline, plain_deadline, span_deadline
from disputes.ladders import TierFacts, tier_facts
from disputes.models import Dispute

# The reason in the log of an arrival that nobody could be told of.
NO_REVIEWERS = "NO_REVIEWERS"


def issued(dispute: Dispute, deadline: Deadline | None, *, kind: str) -> dict[str, object]:
    """The columns of a new deadline, which takes the next number; None clears the deadline."""
    if deadline is None:
        return {"due_at": None, "due_kind": "", "deadline_no": None, "due_explanation": {}}
    number = dispute.deadlines_issued + 1
    return {
        "due_at": deadline.due_at,
        "due_kind": kind,
        "deadline_no": number,
        "deadlines_issued": number,
        "due_explanation": deadline.explanation,
    }


def with_flags(dispute: Dispute, *flags: str) -> dict[str, object]:
    """The flags column with some added; nothing where they are there already."""
    missing = [flag for flag in flags if flag not in dispute.flags]
    return {"flags": [*dispute.flags, *missing]} if missing else {}


NOTHING_ASIDE: dict[str, object] = {
    "restore_due_at": None,
    "restore_deadline_no": None,
    "restore_explanation": {},
}


def kept_aside(dispute: Dispute) -> dict[str, object]:
    """The columns that keep the present escalation deadline for later."""
    return {
        "restore_due_at": dispute.due_at,
        "restore_deadline_no": dispute.deadline_no,
        "restore_explanation": dispute.due_explanation,
    }


def brought_back(dispute: Dispute) -> dict[str, object]:
    """The columns that bring the deadline kept aside back, instant and number.

    If it is past, the next round promotes: letting a hold lapse buys nothing.
    """
    restored = dispute.restore_due_at is not None
    return {
        "due_at": dispute.restore_due_at,
        "due_kind": Dispute.DueKind.ESCALATE if restored else "",
        "deadline_no": dispute.restore_deadline_no,
        "due_explanation": dispute.restore_explanation,
        **NOTHING_ASIDE,
    }


def fresh_deadline(dispute: Dispute, tier: TierFacts, *, now: datetime) -> dict[str, object]:
    """The columns of entering a tier now: a fresh span, a new number, never already past."""
    deadline = span_deadline(
        start=now,
        span=tier.sla,
        external_due_at=dispute.external_due_at,
        margin=tier.margin,
        now=now,
    )
    return {
        **issued(dispute, deadline, kind=Dispute.DueKind.ESCALATE),
        **NOTHING_ASIDE,
        **with_flags(dispute, *deadline.flags),
        "tier_id": tier.id,
        "running_since": now,
        "consumed": timedelta(0),
        "exhausted_at": None,
    }


def remaining_span(dispute: Dispute) -> timedelta:
    """What was left of the escalation deadline when the dispute was paused; never negative."""
    if dispute.restore_due_at is None or dispute.paused_at is None:
        return timedelta(0)
    return max(dispute.restore_due_at - dispute.paused_at, timedelta(0))


def resumed(dispute: Dispute, *, now: datetime) -> dict[str, object]:
    """The columns of a dispute that runs again: open, what remained of the span, a new number."""
    new: dict[str, object] = {
        "status": Dispute.Status.OPEN,
        "paused_by": "",
        "paused_at": None,
        "running_since": now,
        **NOTHING_ASIDE,
    }
    if dispute.exhausted_at is not None:
        return new | issued(dispute, None, kind="")
    if dispute.restore_due_at is None:
        # It was paused out of a proposal, which keeps no deadline aside.
        return new | fresh_deadline(dispute, tier_facts(dispute.tier_id), now=now)
    deadline = _remaining_deadline(dispute, now=now)
    flagged = with_flags(dispute, *deadline.flags)
    return new | flagged | issued(dispute, deadline, kind=Dispute.DueKind.ESCALATE)


def _remaining_deadline(dispute: Dispute, *, now: datetime) -> Deadline:
    """What remained of the span, from now; clipped to the external deadline like every span.

    Where nothing remained it is due at once: a pause buys nothing.
    """
    span = remaining_span(dispute)
    plain = plain_deadline("remaining", start=now, span=span)
    if not span or dispute.restore_explanation.get("rule") == "given":
        return plain
    clipped = span_deadline(
        start=now,
        span=span,
        external_due_at=dispute.external_due_at,
        margin=tier_facts(dispute.tier_id).margin,
        now=now,
    )
    return clipped if clipped.flags or clipped.due_at < plain.due_at else plain
