"""What the source says later: changed facts, waiting for others, actionable again, over."""

from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from disputes.calendars import span_deadline
from disputes.ladders import tier_facts
from disputes.models import AuditEntry, Dispute, Notification
from disputes.outbox import Message, messages_to_person
from disputes.permissions import active_people
from disputes.transitions.attempts import in_attempts, locked, unlocked
from disputes.transitions.columns import issued, resumed, with_flags
from disputes.transitions.journal import Actor, Change, record
from disputes.transitions.moving import stopped
from disputes.transitions.resolving import over

UNDATED_MAY_FILL = (
    "amount",
    "currency",
    "materiality_usd",
    "reason_code",
    "stage",
    "external_due_at",
)
"""What facts without a date may add to a dispute that has dated ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What the source says now. `state` is actionable, waiting, closed or informational."""

    source_hash: str
    state: str
    source_state: str = ""
    result: str = ""
    amount: Decimal | None = None
    currency: str = ""
    materiality_usd: Decimal | None = None
    reason_code: str = ""
    stage: str = ""
    external_due_at: datetime | None = None
    external_due_estimated: bool = False
    source_at: datetime | None = None
    flags: tuple[str, ...] = ()


def is_older(dispute: Dispute, facts: SourceFacts) -> bool:
    """Whether the dispute already knows something newer than these facts."""
    return (
        facts.source_at is not None
        and dispute.source_at is not None
        and facts.source_at < dispute.source_at
    )


def _what_is_missing(dispute: Dispute, facts: SourceFacts) -> SourceFacts:
    """Of facts without a date, what nobody said yet: they may be older than what is stored."""
    kept: dict[str, Any] = {
        name: "" if isinstance(value, str) else None
        for name in UNDATED_MAY_FILL
        if (value := getattr(dispute, name)) not in (None, "")
    }
    if dispute.currency not in ("", facts.currency):
        kept["amount"] = None
    return replace(facts, state="informational", source_state="", flags=(), **kept)


def _changed_facts(dispute: Dispute, facts: SourceFacts) -> dict[str, object]:
    """The fact columns that differ; what the source leaves out stays as it was."""
    said: dict[str, object] = {
        "amount": facts.amount,
        "currency": facts.currency,
        "materiality_usd": facts.materiality_usd,
        "reason_code": facts.reason_code,
        "stage": facts.stage,
        "source_state": facts.source_state,
    }
    changed = {
        name: value
        for name, value in said.items()
        if value not in (None, "") and value != getattr(dispute, name)
    }
    if facts.external_due_at and facts.external_due_at != dispute.external_due_at:
        changed["external_due_at"] = facts.external_due_at
        changed["external_due_estimated"] = facts.external_due_estimated
    return changed | with_flags(dispute, *facts.flags)


def _as_if(dispute: Dispute, new: dict[str, object]) -> Dispute:
    """The dispute as it will be with these columns; a copy that is never written itself."""
    informed = copy(dispute)
    for name, value in new.items():
        setattr(informed, name, value)
    return informed


def _recomputed(dispute: Dispute, new: dict[str, object], *, now: datetime) -> dict[str, object]:
    """Deadlines that follow from a new external deadline, with new numbers.

    A deadline that was given as it is stays; an exhausted dispute has none to compute.
    """
    if "external_due_at" not in new or dispute.exhausted_at is not None:
        return {}
    if dispute.status in (Dispute.Status.PROPOSED, Dispute.Status.RESOLVED):
        return {}
    on_row = dispute.due_kind == Dispute.DueKind.ESCALATE
    explanation = dispute.due_explanation if on_row else dispute.restore_explanation
    if explanation.get("rule") == "given" or not (on_row or dispute.restore_due_at):
        return {}
    tier = tier_facts(dispute.tier_id)
    # The clock of a paused dispute stands where it was stopped.
    start, as_of = dispute.running_since, now
    if dispute.paused_at is not None:
        start = as_of = dispute.paused_at
    span = tier.sla - dispute.consumed
    if start + span <= as_of:
        # Its own span is used up: no external date brings it back.
        return {}
    deadline = span_deadline(
        start=start,
        span=span,
        external_due_at=new["external_due_at"],  # type: ignore[arg-type]
        margin=tier.margin,
        now=as_of,
    )
    flagged = with_flags(_as_if(dispute, new), *deadline.flags)
    if on_row:
        if deadline.due_at == dispute.due_at:
            return {}
        return flagged | issued(dispute, deadline, kind=Dispute.DueKind.ESCALATE)
    if deadline.due_at == dispute.restore_due_at:
        return {}
    number = dispute.deadlines_issued + 1
    return flagged | {
        "restore_due_at": deadline.due_at,
        "restore_deadline_no": number,
        "restore_explanation": deadline.explanation,
        "deadlines_issued": number,
    }


def _tell_holder(dispute: Dispute, event: str) -> tuple[Message, ...]:
    holder = dispute.holder_id
    if holder is None or not active_people([holder]):
        return ()
    return messages_to_person(event, tier_id=dispute.tier_id, user_id=holder)


def _close(dispute: Dispute, facts: SourceFacts, changed: dict[str, object]) -> Change:
    outcome = facts.result if facts.result in Dispute.Outcome.values and facts.result else "closed"
    return Change(
        dispute,
        AuditEntry.Action.CLOSED_AT_SOURCE,
        changed | over(dispute, outcome=outcome, by=None),
        messages=_tell_holder(dispute, Notification.Event.RESOLVED),
        cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
    )


def decide_facts(dispute: Dispute, facts: SourceFacts, *, now: datetime) -> Change | None:
    """The change that these facts make to the fresh row, or None where they change nothing."""
    if is_older(dispute, facts):
        return None
    if facts.source_at is None and dispute.source_at is not None:
        facts = _what_is_missing(dispute, facts)
    changed = _changed_facts(dispute, facts)
    any_fact = bool(changed)
    status = dispute.status
    if facts.state == "closed" and status != Dispute.Status.RESOLVED:
        return _close(dispute, facts, _stamped(dispute, facts, changed))
    changed |= _recomputed(dispute, changed, now=now)
    informed = _as_if(dispute, changed)
    waits = dispute.paused_by == Dispute.PausedBy.SOURCE or status == Dispute.Status.RESOLVED
    if facts.state == "waiting" and not waits:
        new = changed | stopped(informed, by=Dispute.PausedBy.SOURCE, until=None, now=now)
        return Change(
            dispute,
            AuditEntry.Action.PAUSED,
            _stamped(dispute, facts, new),
            reason="source_waits",
            messages=_tell_holder(dispute, Notification.Event.RELEASED),
            cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,
        )
    if facts.state == "actionable" and dispute.paused_by == Dispute.PausedBy.SOURCE:
        new = changed | resumed(informed, now=now)
        return Change(
            dispute,
            AuditEntry.Action.RESUMED,
            _stamped(dispute, facts, new),
            reason="source_is_actionable",
        )
    if not any_fact:
        return None
    return Change(
        dispute,
        AuditEntry.Action.FACTS_CHANGED,
        _stamped(dispute, facts, changed),
        messages=_tell_holder(dispute, Notification.Event.FACTS_CHANGED),
    )


def _stamped(dispute: Dispute, facts: SourceFacts, new: dict[str, object]) -> dict[str, object]:
    stamped = new | {"source_hash": facts.source_hash}
    return stamped | ({"source_at": facts.source_at} if facts.source_at else {})


def apply_facts(
    dispute_id: UUID, facts: SourceFacts, *, actor: Actor, now: datetime
) -> tuple[Dispute, bool]:
    """Bring a dispute up to what its source says; second value: whether anything was written.

    A repeat, an older event or a no-change writes nothing, no version either.
    """

    def attempt(number: int) -> tuple[Dispute, bool]:
        dispute = locked(dispute_id)
        if facts.source_hash == dispute.source_hash:
            return dispute, False
        change = decide_facts(dispute, facts, now=now)
        if change is None:
            return dispute, False
        record([change], actor=actor, now=now)
        return unlocked(dispute_id), True

    return in_attempts(attempt)
