"""Owns the plain record of a dispute; its promise: what is known is read, the rest is kept.

A reference is kept letter for letter, apart from blanks around it: two spellings (or two Unicode
forms) are two disputes.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from disputes.intake.columns import ALIASES, normal_name
from disputes.intake.errors import BadField, Unreadable, read_field
from disputes.intake.facts import MAX_CHARS, OUTCOME_OF_A_SNAPSHOT, Facts, State, shortened
from disputes.intake.instants import (
    A_DATE_OR_TIME,
    TimeRules,
    end_of_day,
    is_bare_date,
    parse_date,
    parse_instant,
    start_of_day,
)
from disputes.intake.money import exponent_of, parse_decimal_amount, read_currency, shown

DEFAULT_SOURCE = "csv"
MATERIALITY_INTEGER_DIGITS = 18  # numeric(20, 2)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
KINDS = frozenset({"chargeback", "reconciliation", "complaint", "other"})
BANDS = frozenset({"", "high", "medium", "low"})

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


def refuse_source(source: str) -> None:
    """Refuse a source that no row could have."""
    try:
        _Given({"source": source}, {"source": "source"}).required_label("source")
    except BadField as bad:
        raise Unreadable(f"the given source {source!r}: {bad.message}") from None


def read_record(
    record: dict[str, Any],
    *,
    fields: Mapping[str, str],
    rules: TimeRules,
    source: str,
    source_hash: str,
    is_guess: bool = False,
) -> Facts:
    """Return the facts of one row; `fields` tells which column gives which field.

    `is_guess`: nobody said that the record is of this format, it may be another system's.
    """
    in_units = partial(_surely_in_units, record) if is_guess else parse_decimal_amount
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
        amount=given.read("amount", in_units, currency, source=source),
        currency=currency,
        materiality_usd=given.optional(
            "materiality_usd",
            parse_decimal_amount,
            "USD",
            source="",
            max_integer_digits=MATERIALITY_INTEGER_DIGITS,
        ),
        fee=given.optional("fee", in_units, currency, source=source),
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


def _surely_in_units(record: dict[str, Any], text: str, currency: str, *, source: str) -> Decimal:
    """Return the amount, unless it may as well count cents.

    Other systems name a record by some id; one with a `reference` alone speaks our words.
    """
    amount = parse_decimal_amount(text, currency, source=source)
    if not amount or "." in text or not exponent_of(currency, source=source):
        return amount
    if [name for name in map(normal_name, record) if name in ALIASES["reference"]] == ["reference"]:
        return amount
    raise Unreadable(
        f"{shown(text)} may count minor units; write it as {amount}, or say --format generic"
    )


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
        return given.read(field, parse_instant, rules=rules, wanted=A_DATE_OR_TIME), None
    day = given.read(field, parse_date, rules=rules)
    return end_of_day(day, rules=rules), day


def _beginning(text: str, *, rules: TimeRules) -> datetime:
    if is_bare_date(text):
        return start_of_day(parse_date(text, rules=rules), rules=rules)
    return parse_instant(text, rules=rules, wanted=A_DATE_OR_TIME)
