"""What happens when a deadline passes, and when to look at a dispute. Pure, stdlib only."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Outcome(StrEnum):
    """What looking at a dispute came to; `PROMOTED_TO_<TIER>` is made by `promoted_to`."""

    TERMINAL_ESCALATION = "TERMINAL_ESCALATION"
    HOLD_EXPIRED = "HOLD_EXPIRED"
    RESUMED = "RESUMED"
    PROPOSAL_EXPIRED = "PROPOSAL_EXPIRED"
    # Nothing was written:
    NOT_DUE = "NOT_DUE"
    NO_LONGER_OPEN = "NO_LONGER_OPEN"
    VERSION_CONFLICT = "VERSION_CONFLICT"
    LOCK_CONTENTION = "LOCK_CONTENTION"
    STUCK_MEMBER = "STUCK_MEMBER"
    PARKED = "PARKED"


def promoted_to(tier_slug: str) -> str:
    """The outcome of moving to a tier: its slug in capitals, `-` as `_`."""
    return f"PROMOTED_TO_{tier_slug.upper().replace('-', '_')}"


def microseconds(instant: datetime) -> int:
    """Whole microseconds since the Unix epoch; exact where a float's would be off by one."""
    return (instant - UNIX_EPOCH) // MICROSECOND


def look_at(
    due_at: datetime | None,
    parked_until: datetime | None,
    ladder_paused_until: datetime | None,
) -> int | None:
    """When the clock has to look at a dispute: its score on the timeline, or None for never.

    The latest of its deadline, the end of its parking and the end of its ladder's pause.
    """
    if due_at is None:
        return None
    return max(
        microseconds(instant)
        for instant in (due_at, parked_until, ladder_paused_until)
        if instant is not None
    )


class Step(StrEnum):
    """The five things a passed deadline can mean."""

    NEXT_TIER = "next_tier"
    EXHAUST = "exhaust"
    END_HOLD = "end_hold"
    END_PAUSE = "end_pause"
    END_PROPOSAL = "end_proposal"


@dataclass(frozen=True, slots=True)
class ClockDecision:
    """What to do with a dispute whose deadline has passed."""

    step: Step
    position: int


def decide_passed_deadline(*, status: str, position: int, tiers: int) -> ClockDecision:
    """Decide by status; `position` counts from 1, `tiers` is the length of the ladder.

    Raises ValueError for a status that has no deadline.
    """
    match status:
        case "open" if position < tiers:
            return ClockDecision(Step.NEXT_TIER, position + 1)
        case "open":
            return ClockDecision(Step.EXHAUST, position)
        case "acknowledged":
            return ClockDecision(Step.END_HOLD, position)
        case "paused":
            return ClockDecision(Step.END_PAUSE, position)
        case "proposed":
            return ClockDecision(Step.END_PROPOSAL, position)
    raise ValueError(f"a dispute that is {status} has no deadline")
