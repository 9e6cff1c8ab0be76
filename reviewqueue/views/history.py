"""The audit log as people read it: who did what, when, from where to where, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from disputes.ladders import tier_facts
from disputes.models import AuditEntry, Dispute, Note
from disputes.permissions import User
from reviewqueue.templatetags.reviewer_words import amount_words
from reviewqueue.views.clocks import instant_words

SHOWN = 100
# The facts whose old and new value a reader wants to see, with their words.
FACTS = (
    "outcome",
    "proposed_outcome",
    "amount",
    "currency",
    "reason_code",
    "stage",
    "source_state",
    "band",
    "external_due_at",
)
WITH_CHOICES = {
    "outcome": Dispute.Outcome,
    "proposed_outcome": Dispute.Outcome,
    "band": Dispute.Band,
}
CODES = {
    "source_waits": _("the source waits for others"),
    "source_is_actionable": _("the source says it is actionable again"),
    "NO_REVIEWERS": _("nobody reviews that queue"),
}


@dataclass(frozen=True, slots=True)
class FactChange:
    """One field of one entry, in words."""

    label: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the history."""

    entry: AuditEntry
    from_tier: str
    to_tier: str
    note: str
    note_erased: bool
    code: str
    facts: Sequence[FactChange]
    assigned_to: str


@dataclass(frozen=True, slots=True)
class History:
    """Some entries, newest first, and the version before which older ones lie (0: none)."""

    events: Sequence[Event]
    older_than: int


def read_history(dispute: Dispute, *, before: int | None, now: datetime) -> History:
    """A page of the history in two queries."""
    entries = AuditEntry.objects.filter(dispute=dispute.pk).order_by("-version")
    if before is not None:
        entries = entries.filter(version__lt=before)
    found = list(entries[: SHOWN + 1])
    shown = found[:SHOWN]
    older = shown[-1].version if len(found) > SHOWN else 0
    return History(_in_words(shown, dispute=dispute, now=now), older)


def changes_since(dispute: Dispute, *, seen_version: int, now: datetime) -> Sequence[Event]:
    """What happened after a version somebody saw, newest first; what a conflict is about."""
    later = AuditEntry.objects.filter(dispute=dispute.pk, version__gt=seen_version)
    return _in_words(list(later.order_by("-version")[:5]), dispute=dispute, now=now)


def tier_seen(dispute_id: UUID, version: int) -> int | None:
    """The tier in which the dispute stood at a version, or None for a version never made."""
    return (
        AuditEntry.objects.filter(dispute=dispute_id, version=version)
        .values_list("to_tier", flat=True)
        .first()
    )


def _in_words(entries: Sequence[AuditEntry], *, dispute: Dispute, now: datetime) -> Sequence[Event]:
    versions = [entry.version for entry in entries]
    notes = {
        note.version: note for note in Note.objects.filter(dispute=dispute.pk, version__in=versions)
    }
    holders = {
        entry.version: entry.changes["holder_id"][1]
        for entry in entries
        if entry.action == AuditEntry.Action.ASSIGNED and "holder_id" in entry.changes
    }
    names = dict(User.objects.filter(pk__in=holders.values()).values_list("pk", "username"))
    assigned_to = {version: names.get(holder, "") for version, holder in holders.items()}
    return [
        _event(
            entry,
            notes.get(entry.version),
            dispute=dispute,
            assigned_to=assigned_to.get(entry.version, ""),
            now=now,
        )
        for entry in entries
    ]


def _event(
    entry: AuditEntry, note: Note | None, *, dispute: Dispute, assigned_to: str, now: datetime
) -> Event:
    has_note = entry.reason.startswith("sha256:")
    erased = has_note and (note is None or note.erased_at is not None)
    code = "" if has_note else entry.reason
    return Event(
        entry=entry,
        from_tier=tier_facts(entry.from_tier_id).name if entry.from_tier_id else "",
        to_tier=tier_facts(entry.to_tier_id).name,
        note="" if erased or note is None else note.text,
        note_erased=erased,
        code=str(CODES.get(code, code)),
        facts=[] if entry.version == 1 else _fact_changes(entry, dispute, now),
        assigned_to=assigned_to,
    )


def _fact_changes(entry: AuditEntry, dispute: Dispute, now: datetime) -> Sequence[FactChange]:
    return [
        FactChange(
            label=str(Dispute._meta.get_field(name).verbose_name),  # type: ignore[union-attr]
            old=_value(name, entry.changes[name][0], dispute, now),
            new=_value(name, entry.changes[name][1], dispute, now),
        )
        for name in FACTS
        if name in entry.changes
    ]


def _value(name: str, text: object, dispute: Dispute, now: datetime) -> str:
    if text in (None, ""):
        return "–"
    if name == "amount":
        return amount_words(Decimal(str(text)), dispute.currency, source=dispute.source)
    if name.endswith("_at"):
        return instant_words(datetime.fromisoformat(str(text)), now=now)
    return str(WITH_CHOICES[name](text).label if name in WITH_CHOICES else text)
