"""Owns the complaint export of the CFPB; its promise: 15 days to respond, 60 to finish.

Both layouts are read: 18 columns with dates like 9/24/19, and 16 columns with ISO dates or times.
Days are counted on the calendar, from `Date sent to company`, as that date is written.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from disputes.intake.errors import BadField, read_field
from disputes.intake.facts import MAX_CHARS, OUTCOME_OF_A_SNAPSHOT, Facts, State, shortened
from disputes.intake.instants import (
    TimeRules,
    end_of_day,
    parse_date,
    parse_instant,
    start_of_day,
)

SOURCE = "cfpb"
RESPONSE_DAYS = 15
FINAL_RESPONSE_DAYS = 60
REFERENCE = "Complaint ID"
SENT = "Date sent to company"
RESPONSE = "Company response to consumer"
ISSUE = "Issue"
REQUIRED = frozenset({REFERENCE, SENT, RESPONSE, ISSUE})
NOTHING = frozenset({"", "None"})
"""The newer export writes the word None where the older one leaves a cell empty."""


def is_header(columns: Iterable[str]) -> bool:
    """Tell if these are the columns of a complaint export."""
    return REQUIRED <= set(columns)


def read_record(record: dict[str, Any], *, rules: TimeRules, source_hash: str) -> Facts:
    """Return the facts of one complaint."""
    reference = _text(record, REFERENCE)
    if not reference or len(reference) > MAX_CHARS["reference"] or not reference.isprintable():
        raise BadField(REFERENCE, "is missing" if not reference else "is not a usable reference")
    sent, opened_at = _sent(_text(record, SENT), rules)
    due_date = sent + timedelta(days=RESPONSE_DAYS)
    response = _text(record, RESPONSE)
    state = _state(response)
    flags = ["unknown_status"] if state is State.INFORMATIONAL else []
    used = REQUIRED - {RESPONSE}
    return Facts(
        outcome=OUTCOME_OF_A_SNAPSHOT[state],
        source=SOURCE,
        reference=reference,
        kind="complaint",
        reason=shortened("reason", _text(record, ISSUE), flags),
        state=state,
        source_state=shortened("source_state", response, flags),
        opened_at=opened_at,
        external_due_at=end_of_day(due_date, rules=rules),
        external_due_date=due_date,
        final_due_date=sent + timedelta(days=FINAL_RESPONSE_DAYS),
        details={
            column: cell
            for column, cell in record.items()
            if column not in used and cell not in NOTHING
        },
        source_hash=source_hash,
        flags=tuple(flags),
        payload=record,
    )


def _text(record: dict[str, Any], column: str) -> str:
    value = record.get(column)
    return "" if value is None else str(value).strip()


def _state(response: str) -> State:
    if response == "In progress":
        return State.ACTIONABLE
    if response.startswith("Closed") or response == "Untimely response":
        return State.CLOSED
    return State.INFORMATIONAL


def _sent(text: str, rules: TimeRules) -> tuple[date, datetime]:
    """Return the day the clock starts, as written, and the instant."""
    if not text:
        raise BadField(SENT, "is missing")
    if "T" not in text and " " not in text:
        day = read_field(SENT, parse_date, text, rules=rules)
        return day, start_of_day(day, rules=rules)
    instant = read_field(SENT, parse_instant, text, rules=rules)
    return read_field(SENT, parse_date, text[:10], rules=rules), instant.astimezone(UTC)
