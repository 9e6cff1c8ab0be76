"""A dispute in each state of the transition table, and everything that a change wrote.

The scene: tier senior of three; sam and sue review senior, cho and sue compliance, ada standard;
boss holds every right and reviews every queue, so boss is never told of arrivals.
"""

from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace

from django.contrib.auth import get_user_model

from disputes.audit import FOLDED, canonical
from disputes.ladders import copy_to_draft, publish
from disputes.models import AuditEntry, Dispute, LadderRevision, Notification
from disputes.transitions.deadlines import promote
from disputes.transitions.moving import pause
from disputes.transitions.resolving import resolve
from disputes.transitions.reviewing import acknowledge
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

# Instants of the scene, in minutes after noon.
DUE = NOON + 2 * HOUR
BEGUN = NOON + 30 * MINUTE
DONE = NOON + 40 * MINUTE
ACT = NOON + HOUR
HOLD_END = DONE + 30 * MINUTE
PAUSE_END = NOON + 90 * MINUTE
APPROVAL_END = DONE + 2 * HOUR
RIGHTS = ("review", "assign", "override_hold", "reopen", "approve")
STATES = ("open", "exhausted", "acknowledged", "paused", "proposed", "resolved")


def scene() -> SimpleNamespace:
    """The ladder, where four eyes apply to write-offs, and the people."""
    ladder = default_ladder()
    draft = copy_to_draft(LadderRevision.objects.get(ladder=ladder))
    draft.tiers.update(four_eyes=["written_off"])
    publish(draft, by=None, now=NOON)
    return SimpleNamespace(
        ada=person("ada", "standard"),
        sam=person("sam", "senior"),
        sue=person("sue", "senior", "compliance"),
        cho=person("cho", "compliance"),
        eve=person("eve"),
        boss=person("boss", rights=RIGHTS),
    )


def dispute_that_is(state: str, people: SimpleNamespace) -> Dispute:
    """A dispute of tier senior in this state by sam's hand; the exhausted one is in compliance."""
    if state == "exhausted":
        dispute = opened(tier="compliance")
        promote([dispute.pk], now=DUE)
        return again(dispute)
    dispute = opened(tier="senior")
    if state == "acknowledged":
        acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=DONE)
    if state == "paused":
        pause(dispute.pk, actor=people.sam, reason="asked", until=PAUSE_END, now=DONE)
    if state in ("proposed", "resolved"):
        acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=BEGUN)
        outcome = "written_off" if state == "proposed" else "defended"
        resolve(dispute.pk, outcome=outcome, actor=people.sam, reason="seen", now=DONE)
    return again(dispute)


def columns(dispute: Dispute) -> dict[str, object]:
    """Every column of the row but its proof, in canonical text."""
    return {name: canonical(name, getattr(dispute, name)) for name in FOLDED}


def messages(dispute: Dispute) -> list[tuple[int, str, str, str]]:
    """(version, event, name of the person, status) of every message."""
    names = {f"user:{u.pk}": u.get_username() for u in get_user_model().objects.all()}
    return sorted(
        (m.version, m.event, names.get(m.recipient, m.recipient), m.status)
        for m in Notification.objects.filter(dispute=dispute)
    )


def everything(dispute: Dispute) -> tuple:
    """All that a refusal must leave as it was."""
    row = again(dispute)
    return (
        row.version,
        row.audit_head,
        columns(row),
        messages(row),
        AuditEntry.objects.filter(dispute=row).count(),
        row.notes.count(),
    )


@dataclass(frozen=True)
class Cell:
    """What one cell of the table makes of the dispute."""

    action: str
    status: str
    tier: str = "senior"
    due: datetime | None = None
    kind: str = ""
    number: int | None = None
    # The deadline kept aside: instant and number.
    aside: tuple[datetime, int] | None = None
    holder: str = ""
    told: frozenset[tuple[str, str]] = field(default=frozenset())
    cancelled: frozenset[str] = field(default=frozenset())


def cell_of(before: Dispute, pending: list[tuple[int, str, str, str]]) -> Cell:
    """What was really made of it."""
    after = again(before)
    entry = AuditEntry.objects.get(dispute=before, version=after.version)
    now = messages(after)
    aside = (after.restore_due_at, after.restore_deadline_no)
    return Cell(
        action=entry.action,
        status=after.status,
        tier=after.tier.slug,
        due=after.due_at,
        kind=after.due_kind,
        number=after.deadline_no,
        aside=aside if any(aside) else None,
        holder=after.holder.get_username() if after.holder else "",
        told=frozenset((event, who) for version, event, who, _ in now if version == after.version),
        cancelled=frozenset(
            event
            for version, event, who, status in now
            if status == "cancelled" and (version, event, who, "pending") in pending
        ),
    )
