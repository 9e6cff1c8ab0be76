"""Owns the facts a source states about one dispute; its promise: the same record, the same facts.

Whatever the format, a record ends here as `Facts` or as a `RowError`. Facts judge the record alone:
what is already stored is for the store to compare.
"""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What a record alone asks for; the words are those of the import report."""

    CREATE = "create"
    CREATE_CLOSED = "create_closed"
    UPSERT = "upsert"
    UPDATE = "update"
    CLOSE = "close"
    RECORD_ONLY = "record_only"
    IGNORE = "ignore"
    DUPLICATE = "duplicate"
    NO_OP = "no_op"
    QUARANTINE = "quarantine"
    REFUSE = "refuse"
    ROW_ERROR = "row_error"
    NEEDS_CHOICE = "needs_choice"
    NEEDS_MAPPING = "needs_mapping"
    FLAG = "flag"


class State(StrEnum):
    """Who has to act: we (actionable), the other side (waiting), or nobody."""

    ACTIONABLE = "actionable"
    WAITING = "waiting"
    CLOSED = "closed"
    INFORMATIONAL = "informational"


OUTCOME_OF_A_SNAPSHOT = {
    State.ACTIONABLE: Outcome.CREATE,
    State.WAITING: Outcome.UPSERT,
    State.CLOSED: Outcome.CREATE_CLOSED,
    State.INFORMATIONAL: Outcome.RECORD_ONLY,
}
"""What a record asks for when it is a dispute as it stands, not news about one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What one record says about one dispute.

    A deadline given as a bare date keeps the date in `external_due_date`; `external_due_at` is then
    23:59:59 of that day in the source's zone. Every instant is aware and in UTC.
    """

    outcome: Outcome
    source: str
    reference: str
    state: State
    source_hash: str
    payload: dict[str, Any]
    kind: str = "chargeback"
    amount: Decimal | None = None
    currency: str = ""
    materiality_usd: Decimal | None = None
    fee: Decimal | None = None
    reason: str = ""
    result: str = ""
    stage: str = ""
    source_state: str = ""
    event_id: str = ""
    event_at: datetime | None = None
    opened_at: datetime | None = None
    due_at: datetime | None = None
    external_due_at: datetime | None = None
    external_due_date: date | None = None
    external_due_estimated: bool = False
    final_due_date: date | None = None
    ladder: str = ""
    tier: str = ""
    band: str = ""
    links: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """A record that cannot be taken, where it starts (physical line, from 1) and why."""

    line: int
    record: int
    field: str
    message: str


MAX_CHARS = {
    "reference": 200,
    "event_id": 200,
    "source": 40,
    "ladder": 40,
    "tier": 40,
    "reason": 200,
    "source_state": 80,
}
"""Longest text of each field. Identities beyond it are refused, words of the source shortened."""


def shortened(field_name: str, text: str, flags: list[str]) -> str:
    """Return the words on one line; cut to fit if need be, and flagged: the payload has all."""
    line = " ".join(text.split())
    if len(line) <= MAX_CHARS[field_name]:
        return line
    flags.append(f"{field_name}_shortened")
    return line[: MAX_CHARS[field_name]]


Record = tuple[int, int, Facts | RowError]
"""Record number, physical line where it starts, and what was made of it.

Rows of a table and lines of JSON Lines count from 1; items of a JSON document count from 0.
"""


def hash_of_record(record: dict[str, Any]) -> str:
    """Return the sha-256 of the canonical record: line ends, quoting and key order do not count."""
    canonical = json.dumps(record, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
