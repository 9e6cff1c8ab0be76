"""Owns which column holds which field; its promise: a person's mapping counts or is refused."""

import re
from collections.abc import Iterable, Mapping

from disputes.intake.errors import Unreadable

REQUIRED = ("reference", "amount", "currency")

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


def normal_name(name: str) -> str:
    """Return a column name or a status in the form in which they are compared."""
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


def refuse_absent(mapping: Mapping[str, str], seen: Iterable[Iterable[str]]) -> None:
    """Refuse a mapping of a column that no record has; `seen` is read as far as need be."""
    absent = set(mapping)
    first: list[str] = []
    records = iter(seen)
    while absent and (columns := next(records, None)) is not None:
        names = list(columns)
        first = first or names
        absent.difference_update(names)
    if absent:
        named = ", ".join(map(repr, sorted(absent)))
        raise Unreadable(f"no such column: {named}, named by the mapping. {columns_seen(first)}")


def columns_seen(columns: list[str]) -> str:
    """Return the columns in words, however many there are."""
    named = ", ".join(name[:60] for name in columns[:30]) + (", ..." if columns[30:] else "")
    return f"Columns seen: {named or 'none'}."


def refuse_mapping(mapping: Mapping[str, str]) -> None:
    """Refuse a mapping to a field that does not exist, or of two columns to one field."""
    fields = list(mapping.values())
    for field in fields:
        if field not in ALIASES:
            raise Unreadable(f"the mapping names an unknown field {field!r}")
        if fields.count(field) > 1:
            raise Unreadable(f"the mapping gives {field!r} more than one column")
