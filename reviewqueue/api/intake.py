"""From the body of POST /disputes to a new dispute: every value checked, every fault named."""

from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal

from disputes.exceptions import InvalidInput
from disputes.intake.errors import Unreadable
from disputes.intake.facts import hash_of_record
from disputes.intake.instants import ISO_INSTANT, TimeRules, parse_instant
from disputes.intake.money import parse_decimal_amount, read_currency
from disputes.transitions.opening import NewDispute, refuse_bad
from reviewqueue.api.problems import Refused, invalid
from reviewqueue.api.schemas import NewFacts

# What numeric(20, 2) holds.
MOST_MATERIALITY = Decimal(10) ** 18


def read_new(facts: NewFacts, *, now: datetime) -> NewDispute:
    """The facts as the ground floor takes them. Raises Refused, naming all fields at fault."""
    reading = _Reading()
    rules = TimeRules.for_zone(None, now=now)
    instants = {
        field: reading.of(field, _instant, getattr(facts, field), rules)
        for field in ("opened_at", "due_at", "external_due_at")
    }
    new = NewDispute(
        source=facts.source,
        reference=facts.reference,
        source_hash=hash_of_record(facts.model_dump(mode="json", exclude_unset=True)),
        kind=facts.kind,
        amount=reading.of("amount", _amount, facts.amount, facts.currency, facts.source),
        currency=reading.of("currency", read_currency, facts.currency or None) or "",
        materiality_usd=reading.of("materiality_usd", _materiality, facts.materiality_usd),
        reason_code=facts.reason,
        ladder=facts.ladder,
        tier=facts.tier,
        band=facts.band,
        **instants,
    )
    reading.refuse()
    refuse_bad(new)
    return new


class _Reading:
    """Collects the faults of one body, so that a caller mends them all at once."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, str]] = []

    def of(self, field: str, parse: Callable, value: str | None, *rest: object):
        if value is None:
            return None
        try:
            return parse(value, *rest)
        except Unreadable as fault:
            self.faults.append((field, str(fault)))
            return None

    def refuse(self) -> None:
        if self.faults:
            raise Refused(invalid(self.faults))
