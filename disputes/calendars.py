"""From a span to a deadline, with the reason why. Pure, stdlib only.

Spans are elapsed time here; business calendars join behind the same function.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# A deadline that people cannot keep any more is not made: at most this much, but some.
SHORTEST_FRESH_SPAN = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant and the facts it was computed from, for the "Why?" beside the countdown."""

    due_at: datetime
    explanation: dict[str, str | int]
    flags: tuple[str, ...] = ()


def stamp(instant: datetime) -> str:
    """An instant as text in UTC, to the second, for explanations."""
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def external_target(external_due_at: datetime, *, margin: timedelta, now: datetime) -> datetime:
    """The latest instant a tier deadline may take before an external deadline.

    The margin is kept where 72 h or more remain; with less time it is a tenth of what remains
    and at least an hour (house rule, see docs/operations.md).
    """
    remaining = external_due_at - now
    if remaining < timedelta(hours=72):
        margin = min(margin, max(remaining / 10, timedelta(hours=1)))
    return external_due_at - margin


def span_deadline(
    *,
    start: datetime,
    span: timedelta,
    external_due_at: datetime | None,
    margin: timedelta,
    now: datetime,
) -> Deadline:
    """The deadline of a span that began at `start`: clipped to the external one, never past.

    Where what remains is already over, the dispute gets a fresh span of min(span, 4 h) from
    `now` and a flag, so that the people of the tier have a real chance to act.
    """
    explanation: dict[str, str | int] = {
        "rule": "span",
        "span_s": int(span.total_seconds()),
        "start": stamp(start),
    }
    due_at = start + span
    flags: tuple[str, ...] = ()
    if external_due_at is not None:
        target = external_target(external_due_at, margin=margin, now=now)
        if target < due_at:
            due_at = target
            explanation["clipped_to"] = stamp(target)
            explanation["external_due_at"] = stamp(external_due_at)
    if due_at <= now:
        due_at = now + min(span, SHORTEST_FRESH_SPAN)
        explanation = {
            "rule": "fresh",
            "span_s": int(min(span, SHORTEST_FRESH_SPAN).total_seconds()),
            "start": stamp(now),
        }
        flags = ("late_on_arrival",)
        if external_due_at is not None and external_due_at <= now:
            flags = ("external_deadline_past",)
    return Deadline(due_at=due_at, explanation=explanation, flags=flags)


def given_deadline(due_at: datetime) -> Deadline:
    """A deadline that the source or a person set: taken as it is."""
    return Deadline(due_at=due_at, explanation={"rule": "given"})


def plain_deadline(rule: str, *, start: datetime, span: timedelta) -> Deadline:
    """The end of a hold, pause or approval: start plus span, nothing else."""
    return Deadline(
        due_at=start + span,
        explanation={
            "rule": rule,
            "span_s": int(span.total_seconds()),
            "start": stamp(start),
        },
    )
