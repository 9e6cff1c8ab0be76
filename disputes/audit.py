"""The hash chain: one canonical text for writer and verifier, and the checks that recompute it."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
from django.db import connection, models, transaction
from django.db.models import Exists, OuterRef

from disputes.failpoints import failpoint
from disputes.models import AuditEntry, Dispute, Note, Notification, SourceRecord

ZEROS = "0" * 64
DIGEST = "sha256:"
_MICROSECOND = timedelta(microseconds=1)

# Every column that folding the log must give back; the row's own proof columns are left out.
FOLDED: dict[str, models.Field] = {
    field.attname: field
    for field in Dispute._meta.concrete_fields
    if field.attname not in {"id", "version", "audit_head"}
}
_SCALE = {
    name: Decimal(1).scaleb(-field.decimal_places)
    for name, field in FOLDED.items()
    if isinstance(field, models.DecimalField)
}


def _instant(name: str, value: datetime) -> str:
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat(timespec="microseconds")[:-6] + "Z"


# By exact type, because this runs twenty times for every promotion.
_WRITERS: dict[type, Callable[[str, Any], object]] = {
    datetime: _instant,
    # Plus zero: Postgres knows no minus zero, so the log must not either.
    Decimal: lambda name, value: f"{value.quantize(_SCALE[name]) + 0:f}",
    timedelta: lambda name, value: f"{value // _MICROSECOND} microseconds",
    UUID: lambda name, value: str(value),
}


def canonical(name: str, value: object) -> object:
    """A column's value as the log and the chain write it: JSON that reads back the same.

    Instants are UTC with six digits, amounts carry the column's decimals, spans are whole
    microseconds in words that Postgres reads as an interval.
    """
    write = _WRITERS.get(type(value))
    return value if write is None else write(name, value)


# The columns of an entry that the hash seals, in this order; recorded_at and id are not sealed.
SEALED = (
    "dispute_id",
    "version",
    "action",
    "actor_id",
    "actor_label",
    "at",
    "from_status",
    "to_status",
    "from_tier_id",
    "to_tier_id",
    "from_due_at",
    "to_due_at",
    "deadline_no",
    "match_decision",
    "trace_id",
    "source_hash",
    "reason",
    "changes",
    "prev_hash",
)


def entry_hash(entry: Mapping[str, object]) -> str:
    """sha-256 (hex) of the entry's canonical text; `entry` holds canonical values of SEALED."""
    # Byte for byte what json.dumps(…, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    # gives, so that anybody can recompute it; a test holds the two together.
    text = orjson.dumps([entry[name] for name in SEALED], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


def sealed_values(entry: AuditEntry) -> dict[str, object]:
    """A stored entry as `entry_hash` wants it."""
    return {name: canonical(name, getattr(entry, name)) for name in SEALED}


def digest_of_note(salt: str, text: str) -> str:
    """What the chain keeps of a free text that may be erased later."""
    return DIGEST + hashlib.sha256(f"{salt}:{text}".encode()).hexdigest()


def new_salt() -> str:
    """A random salt, so that short notes cannot be guessed from their digest."""
    return secrets.token_hex(16)


def fold(entries: Iterator[AuditEntry] | list[AuditEntry]) -> dict[str, object]:
    """The canonical row that the entries of one dispute, in order, add up to."""
    row: dict[str, object] = dict.fromkeys(FOLDED)
    for entry in entries:
        for name, (_, new) in entry.changes.items():
            row[name] = new
    return row


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong with a dispute's log."""

    dispute_id: UUID
    version: int
    what: str


def verify_dispute(
    dispute: Dispute, entries: list[AuditEntry], notes: Mapping[int, Note]
) -> Fault | None:
    """Recompute one dispute's chain: gapless versions, hashes, and the fold equal to the row.

    `notes` are its free texts by version; an erased one is no fault, another text is.
    """
    prev_hash, prev_id = ZEROS, 0
    for expected, entry in enumerate(entries, start=1):
        if entry.version != expected:
            return Fault(dispute.id, expected, "the entry is missing")
        if entry.prev_hash != prev_hash:
            return Fault(dispute.id, expected, "does not follow the entry before it")
        if entry.hash != entry_hash(sealed_values(entry)):
            return Fault(dispute.id, expected, "was altered after it was written")
        # Not sealed, but always in order: the next version's entry begins after this one's commit.
        if entry.id <= prev_id:
            return Fault(dispute.id, expected, "its id is not after that of the entry before it")
        if wrong := _wrong_note(entry, notes.get(expected)):
            return Fault(dispute.id, expected, wrong)
        prev_hash, prev_id = entry.hash, entry.id
    if len(entries) < dispute.version:
        return Fault(dispute.id, len(entries) + 1, "the entry is missing")
    if len(entries) > dispute.version:
        return Fault(dispute.id, dispute.version + 1, "its row never had this version")
    if dispute.audit_head != prev_hash:
        return Fault(dispute.id, dispute.version, "is not the entry that its row names")
    folded = fold(entries)
    for name in FOLDED:
        value = canonical(name, getattr(dispute, name))
        if folded[name] != value:
            return Fault(
                dispute.id, dispute.version, f"{name} is {value!r}, the log says {folded[name]!r}"
            )
    if stray := [version for version in notes if not 1 <= version <= len(entries)]:
        return Fault(dispute.id, min(stray), "there is a note and no entry")
    return None


def _wrong_note(entry: AuditEntry, note: Note | None) -> str:
    """What is wrong with the free text of an entry; empty where nothing is."""
    if note is None:
        return "its note is missing" if entry.reason.startswith(DIGEST) else ""
    if note.erased_at and entry.reason.startswith(DIGEST):
        return "its note was erased and has a text" if note.text or note.salt else ""
    if digest_of_note(note.salt, note.text) != entry.reason:
        return "its note was altered after it was written"
    return ""


def verify(dispute_id: UUID | None = None, *, batch: int = 500) -> Iterator[Fault | None]:
    """Verify one dispute or all, in bounded memory: yields a Fault or None for each dispute.

    A dispute that is gone and left something behind is a fault as well.
    """
    disputes = Dispute.objects.order_by("id")
    if dispute_id is not None:
        disputes = disputes.filter(id=dispute_id)
    last: UUID | None = None
    while found := _verify_page((disputes.filter(id__gt=last) if last else disputes)[:batch]):
        yield from found.values()
        last = max(found)
    yield from _left_behind(dispute_id)


def _verify_page(page: models.QuerySet[Dispute]) -> dict[UUID, Fault | None]:
    """Rows and their log as of one moment: a change between two reads is no fault."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        rows = list(page)
        failpoint("verify.rows_read")
        entries: dict[UUID, list[AuditEntry]] = {row.id: [] for row in rows}
        for entry in AuditEntry.objects.filter(dispute__in=entries).order_by("dispute", "version"):
            entries[entry.dispute_id].append(entry)
        notes: dict[UUID, dict[int, Note]] = {row.id: {} for row in rows}
        for note in Note.objects.filter(dispute__in=notes):
            notes[note.dispute_id][note.version] = note
    return {row.id: verify_dispute(row, entries[row.id], notes[row.id]) for row in rows}


def _left_behind(dispute_id: UUID | None) -> Iterator[Fault]:
    """A fault for each dispute whose row is gone, whatever there still is of it."""
    rows = Dispute.objects.filter(pk=OuterRef("dispute_id"))
    only = {"dispute": dispute_id} if dispute_id else {"dispute__isnull": False}
    ids = [
        model._default_manager.filter(~Exists(rows), **only).order_by().values_list("dispute_id")
        for model in (AuditEntry, Note, Notification, SourceRecord)
    ]
    for (id_,) in ids[0].union(*ids[1:]).order_by("dispute_id"):
        yield Fault(id_, 1, "the dispute's row is gone")
