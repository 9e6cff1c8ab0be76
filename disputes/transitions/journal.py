"""Writes decided changes: row, audit entry and messages together, over arrays, or not at all.

Every transition ends here. The caller holds the transaction and has read the rows in it;
the version in the WHERE makes a row that changed since simply not match.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from django.db import connection

from disputes.audit import (
    FOLDED,
    SEALED,
    ZEROS,
    canonical,
    digest_of_note,
    entry_hash,
    new_salt,
)
from disputes.exceptions import LostRace
from disputes.failpoints import failpoint
from disputes.models import AuditEntry, Dispute, Note
from disputes.outbox import Message, cancel_pending, queue_messages
from disputes.signals import announce


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
    """The canonical values of one change, ready for the arrays."""

    change: Change
    id: str
    version: int
    columns: dict[str, object] = field(default_factory=dict)
    entry: dict[str, object] = field(default_factory=dict)
    salt: str = ""


_ARRAY_TYPES = {name: f.db_type(connection).split("(")[0] for name, f in FOLDED.items()} | {
    "id": "uuid",
    "version": "integer",
    "audit_head": "text",
}
_ENTRY_FIELDS = {f.attname: f for f in AuditEntry._meta.concrete_fields}
_ENTRY_COLUMNS = (*SEALED, "hash")
_ENTRY_TYPES = [_ENTRY_FIELDS[name].db_type(connection).split("(")[0] for name in _ENTRY_COLUMNS]
_JSON_COLUMNS = {name for name, type_ in _ARRAY_TYPES.items() if type_ == "jsonb"}


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
        before = None if is_new else canonical(name, getattr(dispute, name))
        after = canonical(name, new[name] if name in new else getattr(dispute, name))
        if before != after:
            changes[name] = [before, after]
            sheet.columns[name] = after
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


def _array(name: str, values: Iterable[object]) -> list[object]:
    if name in _JSON_COLUMNS or name == "changes":
        return [json.dumps(value, ensure_ascii=False) for value in values]
    return list(values)


def _update_rows(sheets: Sequence[_Sheet]) -> int:
    """One UPDATE over arrays of the columns that change anywhere in the batch."""
    names = [name for name in FOLDED if any(name in sheet.columns for sheet in sheets)]
    arrays: list[list[object]] = [
        [sheet.id for sheet in sheets],
        [sheet.version for sheet in sheets],
        [sheet.entry["hash"] for sheet in sheets],
    ]
    for name in names:
        arrays.append(
            _array(
                name,
                (
                    sheet.columns[name]
                    if name in sheet.columns
                    else canonical(name, getattr(sheet.change.dispute, name))
                    for sheet in sheets
                ),
            )
        )
    columns = ["id", "version", "audit_head", *names]
    unnest = ", ".join(f"%s::{_ARRAY_TYPES[name]}[]" for name in columns)
    assignments = ", ".join(f"{name} = new.{name}" for name in columns if name != "id")
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE disputes_dispute AS d SET {assignments} "  # noqa: S608 (own column names)
            f"FROM unnest({unnest}) AS new({', '.join(columns)}) "
            "WHERE d.id = new.id AND d.version = new.version - 1",
            arrays,
        )
        return cursor.rowcount


def _insert_rows(sheets: Sequence[_Sheet]) -> set[str]:
    """Insert new disputes; those whose source and reference exist already are left out."""
    columns = ["id", "version", "audit_head", *FOLDED]
    arrays: list[list[object]] = [
        [sheet.id for sheet in sheets],
        [sheet.version for sheet in sheets],
        [sheet.entry["hash"] for sheet in sheets],
    ]
    for name in FOLDED:
        arrays.append(_array(name, (sheet.columns.get(name) for sheet in sheets)))
    unnest = ", ".join(f"%s::{_ARRAY_TYPES[name]}[]" for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO disputes_dispute ({', '.join(columns)}) "  # noqa: S608 (own names)
            f"SELECT * FROM unnest({unnest}) "
            "ON CONFLICT (source, reference) DO NOTHING RETURNING id::text",
            arrays,
        )
        return {id_ for (id_,) in cursor.fetchall()}


def _insert_entries(sheets: Sequence[_Sheet]) -> None:
    unnest = ", ".join(f"%s::{type_}[]" for type_ in _ENTRY_TYPES)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO disputes_auditentry ({', '.join(_ENTRY_COLUMNS)}) "  # noqa: S608
            f"SELECT * FROM unnest({unnest})",
            [_array(name, (sheet.entry[name] for sheet in sheets)) for name in _ENTRY_COLUMNS],
        )


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
    _insert_entries(sheets)
    failpoint("journal.audit_written")
    _insert_notes(sheets)
    for sheet in sheets:
        if sheet.change.cancels:
            cancel_pending(sheet.change.dispute.id, events=sheet.change.cancels, now=now)
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
    if _update_rows(sheets) != len(sheets):
        raise LostRace("the dispute changed since it was read")
    _finish(sheets, now=now)


def record_new(changes: Sequence[Change], *, actor: Actor, now: datetime) -> set[UUID]:
    """Insert new disputes with their first entry and messages.

    Returns the ids that were created; a source and reference that exists already is left alone.
    """
    if not changes:
        return set()
    sheets = [_sheet(change, actor=actor, now=now) for change in changes]
    created = _insert_rows(sheets)
    sheets = [sheet for sheet in sheets if sheet.id in created]
    if sheets:
        _finish(sheets, now=now)
    return {UUID(id_) for id_ in created}
