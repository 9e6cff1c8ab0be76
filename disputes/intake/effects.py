"""Owns the words for what an import did with a record; its promise: one word for each record."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from disputes.intake.facts import Outcome, RowError
from disputes.models import AuditEntry
from disputes.transitions.journal import Change


class Effect(StrEnum):
    """What was done with a record."""

    CREATED = "created"
    UPDATED = "updated"
    CLOSED = "closed"
    UNCHANGED = "unchanged"
    RECORDED = "recorded"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a record: `outcome` judges it alone, `effect` says what was done."""

    outcome: Outcome
    effect: Effect
    dispute_id: UUID | None = None
    error: RowError | None = None
    flags: tuple[str, ...] = ()


def effect_of(change: Change | None) -> Effect:
    """The word for a decided change of a dispute that exists."""
    if change is None:
        return Effect.UNCHANGED
    closed = change.action == AuditEntry.Action.CLOSED_AT_SOURCE
    return Effect.CLOSED if closed else Effect.UPDATED
