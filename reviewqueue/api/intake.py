"""From the body of POST /disputes to a new dispute: every value checked, every fault named."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import TypeVar

from disputes.intake.errors import Unreadable
from disputes.intake.facts import hash_of_record
from disputes.intake.instants import ISO_INSTANT, TimeRules, parse_instant
from disputes.intake.money import parse_decimal_amount, read_currency
from disputes.models import Dispute
from disputes.transitions.opening import NewDispute, refuse_bad
from reviewqueue.api.problems import Refused, invalid
from reviewqueue.api.schemas import NewFacts

# What numeric(20, 2) holds.
MOST_MATERIALITY = Decimal(10) ** 18

# Where a field of the body stands in a row read with SHOWN, where not under its own name.
STANDS_IN = {"reason": "reason_code", "ladder": "tier.queue.ladder.slug", "tier": "tier.slug"}

T = TypeVar("T")


def read_new(facts: NewFacts, *, now: datetime) -> NewDispute:
    """The facts as the ground floor takes them.

    Raises Refused, naming all fields at fault, or InvalidInput.
    """
    reading = _Reading()
    instant = partial(_instant, rules=TimeRules.for_zone(None, now=now))
    new = NewDispute(
        source=facts.source,
        reference=facts.reference,
        source_hash=hash_of_record(facts.model_dump(mode="json", exclude_unset=True)),
        kind=facts.kind,
        currency=reading.of("currency", read_currency, facts.currency or None) or "",
        amount=_amount(facts, reading),
        materiality_usd=reading.of("materiality_usd", _materiality, facts.materiality_usd),
        reason_code=facts.reason,
        opened_at=reading.of("opened_at", instant, facts.opened_at),
        due_at=reading.of("due_at", instant, facts.due_at),
        external_due_at=reading.of("external_due_at", instant, facts.external_due_at),
        ladder=facts.ladder,
        tier=facts.tier,
        band=facts.band,
    )
    if reading.faults:
        raise Refused(invalid(reading.faults))
    refuse_bad(new, now=now)
    return new


def differing(new: NewDispute, dispute: Dispute, *, sent: AbstractSet[str]) -> list[str]:
    """The fields that were sent with another value than the dispute has now."""
    found = []
    for name in NewFacts.model_fields:
        said = getattr(new, "reason_code" if name == "reason" else name)
        stands = attrgetter(STANDS_IN.get(name, name))(dispute)
        if name in sent and said not in (None, "") and said != stands:
            found.append(name)
    return found


class _Reading:
    """Collects the faults of one body, so that a caller mends them all at once."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, str]] = []

    def of(self, field: str, parse: Callable[[str], T], value: str | None) -> T | None:
        """The value, or None where there is none or it is at fault."""
        if value is None:
            return None
        try:
            return parse(value)
        except Unreadable as fault:
            self.faults.append((field, str(fault)))
            return None


def _amount(facts: NewFacts, reading: _Reading) -> Decimal | None:
    """How many decimals are right depends on the currency, so that one is judged first."""
    if facts.amount is None or any(field == "currency" for field, _ in reading.faults):
        return None
    if not facts.currency:
        reading.faults.append(("currency", "is missing: an amount needs one"))
        return None
    parse = partial(parse_decimal_amount, currency=facts.currency, source=facts.source)
    return reading.of("amount", parse, facts.amount)


def _materiality(text: str) -> Decimal:
    amount = parse_decimal_amount(text, "USD", source="")
    if amount >= MOST_MATERIALITY:
        raise Unreadable("the amount is too large")
    return amount


def _instant(text: str, *, rules: TimeRules) -> datetime:
    parts = ISO_INSTANT.fullmatch(text.strip())
    if parts is not None and parts.groups()[-1] is None:
        raise Unreadable("has no time zone: end it with Z or an offset such as +02:00")
    return parse_instant(text, rules=rules)
