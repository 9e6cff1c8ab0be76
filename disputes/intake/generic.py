"""Owns the plain table of disputes; its promise: the usual names are known, the rest is kept.

A reference is kept letter for letter, apart from blanks around it: two spellings (or two Unicode
forms) are two disputes.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from disputes.intake.errors import BadField, Unreadable, read_field
from disputes.intake.facts import MAX_CHARS, OUTCOME_OF_A_SNAPSHOT, Facts, State, shortened
from disputes.intake.instants import (
    TimeRules,
    end_of_day,
    is_bare_date,
    parse_date,
    parse_instant,
    start_of_day,
)
from disputes.intake.money import parse_decimal_amount, read_currency

DEFAULT_SOURCE = "csv"
REQUIRED = ("reference", "amount", "currency")
MATERIALITY_INTEGER_DIGITS = 18  # numeric(20, 2)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
KINDS = frozenset({"chargeback", "reconciliation", "complaint", "other"})
BANDS = frozenset({"", "high", "medium", "low"})

ALIASES: dict[str, tuple[str, ...]] = {
    "reference": (
        "reference", "dispute_id", "case_id", "dispute_reference", "case_reference", "case_number",
        "claim_id", "exception_id", "id",
    ),
    "amount": ("amount", "dispute_amount", "disputed_amount", "amount_disputed"),
    "currency": ("currency", "currency_code", "dispute_currency", "ccy"),
    "source": ("source",),
    "kind": ("kind", "dispute_kind"),
    "reason": ("reason", "dispute_reason", "reason_code"),
    "status": ("status", "state", "dispute_status"),
    "opened_at": (
        "opened_at", "created_at", "created", "opened", "opened_on", "created_on", "date_opened",
        "received_at",
    ),
    "due_at": ("due_at",),
    "external_due_at": (
        "external_due_at", "due_by", "respond_by", "evidence_due", "evidence_due_by",
        "evidence_due_at", "response_due", "reply_by", "reply_by_date", "due_date", "deadline",
    ),
    "materiality_usd": ("materiality_usd",),
    "fee": ("fee", "dispute_fee"),
    "ladder": ("ladder",),
    "tier": ("tier",),
    "band": ("band",),
}  # fmt: skip
"""Names under which each field is understood, the best first.

Capitals do not count; blanks, dashes and points count as underscores. Where two columns could be
one field, the better name wins and the other column is kept as detail.
"""

STATES: dict[str, tuple[State, str]] = {
    **dict.fromkeys(
        (
            "needs_response", "warning_needs_response", "open", "opened", "new", "pending",
            "action_required", "evidence_required", "actionable", "in_progress", "reopened",
        ),
        (State.ACTIONABLE, ""),
    ),
    **dict.fromkeys(
        (
            "under_review", "warning_under_review", "waiting", "submitted", "responded",
            "evidence_submitted", "disputed", "processing",
        ),
        (State.WAITING, ""),
    ),
    **dict.fromkeys(("closed", "resolved", "warning_closed", "withdrawn"), (State.CLOSED, "")),
    "won": (State.CLOSED, "won"),
    "lost": (State.CLOSED, "lost"),
    "accepted": (State.CLOSED, "accepted"),
    "expired": (State.CLOSED, "expired"),
}  # fmt: skip
"""What a status says: who has to act, and for closed disputes the result."""


def normal_name(name: str) -> str:
    """Return a column name or a status in the form the tables of this module use."""
    return re.sub(r"[\s.\-]+", "_", name.strip().lower())


def columns_of_fields(
    columns: Iterable[str], *, mapping: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return which column gives which field; what a person mapped (column to field) comes first."""
    mapping = mapping or {}
    named = [column for column in columns if column not in mapping]
    found = {field: column for column, field in mapping.items() if column in columns}
    by_name = {normal_name(column): column for column in reversed(named)}
    for field, aliases in ALIASES.items():
        alias = next((alias for alias in aliases if alias in by_name), None)
        if field not in found and alias is not None:
            found[field] = by_name[alias]
    return found


def missing_fields(fields: Mapping[str, str]) -> list[str]:
    """Return the required fields that no column gives."""
    return [field for field in REQUIRED if field not in fields]


def refuse_mapping(mapping: Mapping[str, str]) -> None:
    """Refuse a mapping to a field that does not exist, or of two columns to one field."""
    fields = list(mapping.values())
    for field in fields:
        if field not in ALIASES:
            raise Unreadable(f"the mapping names an unknown field {field!r}")
        if fields.count(field) > 1:
            raise Unreadable(f"the mapping gives {field!r} more than one column")


def read_record(
    record: dict[str, Any],
    *,
    fields: Mapping[str, str],
    rules: TimeRules,
    source: str,
    source_hash: str,
) -> Facts:
    """Return the facts of one row; `fields` tells which column gives which field."""
    given = _Given(record, fields)
    flags: list[str] = []
    source = given.label("source").lower() or source
    currency = given.read("currency", read_currency)
    state, result = _state(given.text("status"), flags)
    due_at, _ = _deadline(given, "due_at", rules)
    external_due_at, external_due_date = _deadline(given, "external_due_at", rules)
    return Facts(
        outcome=OUTCOME_OF_A_SNAPSHOT[state],
        source=source,
        reference=given.required_label("reference"),
        kind=_kind(given.text("kind"), flags),
        amount=given.read("amount", parse_decimal_amount, currency, source=source),
        currency=currency,
        materiality_usd=given.optional(
            "materiality_usd",
            parse_decimal_amount,
            "USD",
            source="",
            max_integer_digits=MATERIALITY_INTEGER_DIGITS,
        ),
        fee=given.optional("fee", parse_decimal_amount, currency, source=source),
        reason=shortened("reason", given.text("reason"), flags),
        state=state,
        result=result,
        source_state=shortened("source_state", given.text("status"), flags),
        opened_at=given.optional("opened_at", _beginning, rules=rules),
        due_at=due_at,
        external_due_at=external_due_at,
        external_due_date=external_due_date,
        ladder=given.label("ladder"),
        tier=given.label("tier"),
        band=_band(given),
        details=given.rest(),
        source_hash=source_hash,
        flags=tuple(flags),
        payload=record,
    )


class _Given:
    """The values of one record by field; a refusal names the column the person knows."""

    def __init__(self, record: dict[str, Any], fields: Mapping[str, str]) -> None:
        self._record = record
        self._fields = fields

    def text(self, field: str) -> str:
        value = self._record.get(self._fields.get(field, ""))
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadField(self._column(field), "must be text or a number")
        return str(value).strip()

    def label(self, field: str) -> str:
        text = self.text(field)
        if len(text) > MAX_CHARS[field]:
            raise BadField(self._column(field), f"longer than {MAX_CHARS[field]} characters")
        if CONTROL.search(text):
            raise BadField(self._column(field), "contains control characters")
        return text

    def required_label(self, field: str) -> str:
        if text := self.label(field):
            return text
        raise BadField(self._column(field), "is missing")

    def read(self, field: str, parse: Any, *args: Any, **kwargs: Any) -> Any:
        return read_field(self._column(field), parse, self.text(field), *args, **kwargs)

    def optional(self, field: str, parse: Any, *args: Any, **kwargs: Any) -> Any:
        return self.read(field, parse, *args, **kwargs) if self.text(field) else None

    def rest(self) -> dict[str, Any]:
        used = set(self._fields.values())
        return {
            column: value
            for column, value in self._record.items()
            if column not in used and value not in ("", None)
        }

    def _column(self, field: str) -> str:
        return self._fields.get(field, field)


def _state(status: str, flags: list[str]) -> tuple[State, str]:
    if not status:
        return State.ACTIONABLE, ""
    if known := STATES.get(normal_name(status)):
        return known
    flags.append("unknown_status")
    return State.ACTIONABLE, ""


def _kind(kind: str, flags: list[str]) -> str:
    name = normal_name(kind) or "chargeback"
    if name in KINDS:
        return name
    flags.append("unknown_kind")
    return "other"


def _band(given: _Given) -> str:
    return given.optional("band", _known_band) or ""


def _known_band(text: str) -> str:
    if text.lower() not in BANDS:
        raise Unreadable("must be high, medium or low")
    return text.lower()


def _deadline(given: _Given, field: str, rules: TimeRules) -> tuple[datetime | None, date | None]:
    text = given.text(field)
    if not text:
        return None, None
    if not is_bare_date(text):
        return given.read(field, parse_instant, rules=rules), None
    day = given.read(field, parse_date, rules=rules)
    return end_of_day(day, rules=rules), day


def _beginning(text: str, *, rules: TimeRules) -> datetime:
    if is_bare_date(text):
        return start_of_day(parse_date(text, rules=rules), rules=rules)
    return parse_instant(text, rules=rules)
