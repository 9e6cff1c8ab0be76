"""Writes decided changes: rows, audit entries and messages together, or not at all.

Every transition ends here. The caller holds the transaction and has read the rows in it;
the version in the WHERE makes a row that changed since simply not match.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from disputes.audit import (
    FOLDED,
    ZEROS,
    canonical,
    digest_of_note,
    entry_hash,
    new_salt,
)
from disputes.exceptions import LostRace
from disputes.failpoints import failpoint
from disputes.models import Dispute, Note
from disputes.outbox import Message, cancel_pending, queue_messages
from disputes.signals import announce
from disputes.transitions.rows import insert_entries, insert_rows, update_rows


class Person(Protocol):
    """What the log needs of a user."""

    pk: int

    def get_username(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Actor:
    """Who changes something: a person, or the system under a name of its own."""

    user_id: int | None
    label: str

    @classmethod
    def person(cls, user: Person) -> "Actor":
        """A signed-in person or the owner of an API token."""
        return cls(user.pk, user.get_username()[:160])


CLOCK = Actor(None, "clock")


@dataclass(frozen=True, slots=True)
class Change:
    """One decided change of one dispute, as read."""

    dispute: Dispute
    action: str
    new: dict[str, object]
    decision: str = ""
    # A short code; free text goes to `note`, and the log keeps its digest instead.
    reason: str = ""
    note: str = ""
    # The number of the deadline that the clock ended by this change.
    deadline_no: int | None = None
    messages: tuple[Message, ...] = ()
    # Events whose pending messages this change makes pointless.
    cancels: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sheet:
    """The canonical values of one change, ready to be written."""

    change: Change
    id: str
    version: int
    columns: dict[str, object] = field(default_factory=dict)
    entry: dict[str, object] = field(default_factory=dict)
    salt: str = ""


def _sheet(change: Change, *, actor: Actor, now: datetime) -> _Sheet:
    dispute = change.dispute
    is_new = dispute._state.adding
    version = 1 if is_new else dispute.version + 1
    sheet = _Sheet(change, str(dispute.id), version)
    # Never before the previous entry, even where the given clock went backwards.
    at = now if is_new else max(now, dispute.changed_at)
    new = dict(change.new, changed_at=at)
    changes = sheet.entry["changes"] = {}
    for name in FOLDED if is_new else new:
        before = None if is_new else getattr(dispute, name)
        after = new[name] if name in new else getattr(dispute, name)
        if before != after:
            sheet.columns[name] = written = canonical(name, after)
            changes[name] = [canonical(name, before), written]
    if change.note:
        sheet.salt = new_salt()

    def old(name: str) -> object:
        return None if is_new else canonical(name, getattr(dispute, name))

    def current(name: str) -> object:
        return canonical(name, new[name] if name in new else getattr(dispute, name))

    sheet.entry |= {
        "dispute_id": sheet.id,
        "version": version,
        "action": str(change.action),
        "actor_id": actor.user_id,
        "actor_label": actor.label,
        "at": canonical("at", at),
        "from_status": old("status") or "",
        "to_status": current("status"),
        "from_tier_id": old("tier_id"),
        "to_tier_id": current("tier_id"),
        "from_due_at": old("due_at"),
        "to_due_at": current("due_at"),
        "deadline_no": change.deadline_no,
        "match_decision": change.decision,
        "trace_id": sheet.id,
        "source_hash": current("source_hash"),
        "reason": digest_of_note(sheet.salt, change.note) if change.note else change.reason,
        "prev_hash": ZEROS if is_new else dispute.audit_head,
    }
    sheet.entry["hash"] = entry_hash(sheet.entry)
    return sheet


def _proof(sheet: _Sheet) -> dict[str, object]:
    return {"id": sheet.id, "version": sheet.version, "audit_head": sheet.entry["hash"]}


def _updates(sheets: Sequence[_Sheet]) -> list[dict[str, object]]:
    """The new values of each row, for every column that changes anywhere in the batch."""
    names = dict.fromkeys(name for sheet in sheets for name in sheet.columns)
    return [
        _proof(sheet)
        | {
            name: sheet.columns[name]
            if name in sheet.columns
            else canonical(name, getattr(sheet.change.dispute, name))
            for name in names
        }
        for sheet in sheets
    ]


def _insert_notes(sheets: Sequence[_Sheet]) -> None:
    notes = [
        Note(dispute_id=sheet.id, version=sheet.version, salt=sheet.salt, text=sheet.change.note)
        for sheet in sheets
        if sheet.change.note
    ]
    if notes:
        Note.objects.bulk_create(notes)


def _finish(sheets: Sequence[_Sheet], *, now: datetime) -> None:
    failpoint("journal.rows_written")
    insert_entries([sheet.entry for sheet in sheets])
    failpoint("journal.audit_written")
    _insert_notes(sheets)
    for events in {sheet.change.cancels for sheet in sheets if sheet.change.cancels}:
        ids = [sheet.change.dispute.id for sheet in sheets if sheet.change.cancels == events]
        cancel_pending(ids, events=events, now=now)
    queued = queue_messages(
        (
            (sheet.id, sheet.version, str(sheet.entry["hash"]), message)
            for sheet in sheets
            for message in sheet.change.messages
        ),
        now=now,
    )
    failpoint("journal.messages_written")
    announce([UUID(sheet.id) for sheet in sheets], messages=bool(queued))


def record(changes: Sequence[Change], *, actor: Actor, now: datetime) -> None:
    """Write the changes: all rows, entries, notes and messages, in the caller's transaction.

    Raises LostRace where a row is no longer at the version it was read at.
    """
    if not changes:
        return
    sheets = [_sheet(change, actor=actor, now=now) for change in changes]
    if update_rows(_updates(sheets)) != len(sheets):
        raise LostRace("the dispute changed since it was read")
    _finish(sheets, now=now)


def record_new(changes: Sequence[Change], *, actor: Actor, now: datetime) -> set[UUID]:
    """Insert new disputes with their first entry and messages.

    Returns the ids that were created; a source and reference that exists already is left alone.
    """
    if not changes:
        return set()
    sheets = [_sheet(change, actor=actor, now=now) for change in changes]
    created = insert_rows([_proof(sheet) | sheet.columns for sheet in sheets])
    sheets = [sheet for sheet in sheets if sheet.id in created]
    if sheets:
        _finish(sheets, now=now)
    return {UUID(id_) for id_ in created}
