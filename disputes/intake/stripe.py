"""Owns Stripe's disputes, issuing disputes and events; its promise: an unknown word is no error.

Statuses, event types and objects that are not known here are kept as a record and flagged, so that
a new word of the sender never stops its messages.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from disputes.intake.errors import BadField, read_field
from disputes.intake.facts import MAX_CHARS, OUTCOME_OF_A_SNAPSHOT, Facts, Outcome, State, shortened
from disputes.intake.instants import TimeRules, parse_epoch_deadline_s, parse_epoch_s
from disputes.intake.money import from_minor_units, read_currency

SOURCE = "stripe"
ISSUING_SOURCE = "stripe-issuing"
DISPUTE, ISSUING, WARNING = "dispute", "issuing.dispute", "radar.early_fraud_warning"
EVENT = "event"

STATES: dict[str, tuple[State, str]] = {
    "warning_needs_response": (State.ACTIONABLE, ""),
    "needs_response": (State.ACTIONABLE, ""),
    "warning_under_review": (State.WAITING, ""),
    "under_review": (State.WAITING, ""),
    "won": (State.CLOSED, "won"),
    "lost": (State.CLOSED, "lost"),
    "warning_closed": (State.CLOSED, ""),
    "charge_refunded": (State.CLOSED, ""),
    "prevented": (State.CLOSED, ""),
}
ISSUING_STATES: dict[str, tuple[State, str]] = {
    "unsubmitted": (State.ACTIONABLE, ""),
    "submitted": (State.WAITING, ""),
    "won": (State.CLOSED, "won"),
    "lost": (State.CLOSED, "lost"),
    "expired": (State.CLOSED, "expired"),
}

EVENTS: dict[str, Outcome] = {
    "charge.dispute.created": Outcome.CREATE,
    "charge.dispute.updated": Outcome.UPDATE,
    "charge.dispute.closed": Outcome.CLOSE,
    "charge.dispute.funds_withdrawn": Outcome.UPSERT,
    "charge.dispute.funds_reinstated": Outcome.UPSERT,
    "issuing_dispute.created": Outcome.CREATE,
    "issuing_dispute.updated": Outcome.UPDATE,
    "issuing_dispute.submitted": Outcome.UPDATE,
    "issuing_dispute.closed": Outcome.CLOSE,
    "issuing_dispute.funds_reinstated": Outcome.UPSERT,
    "issuing_dispute.funds_rescinded": Outcome.UPSERT,
}
"""What an event about a dispute asks for; money movements never open a second item."""


def is_stripe(record: Mapping[str, Any]) -> bool:
    """Tell if a JSON object has the shape of Stripe's disputes or events."""
    kind = record.get("object")
    if kind == EVENT:
        return isinstance(record.get("data"), dict) and isinstance(record.get("type"), str)
    # What else Stripe has is passed over by its reader, and no dispute for another one.
    return kind in (DISPUTE, ISSUING, WARNING) or (isinstance(kind, str) and "livemode" in record)


def read_record(record: dict[str, Any], *, rules: TimeRules, source_hash: str) -> Facts:
    """Return the facts of an object or of the object inside an event."""
    event = record if record.get("object") == EVENT else None
    thing = _inside(record, "data", "object") if event else record
    if not isinstance(thing, dict):
        raise BadField("data.object", "is missing")
    kind = _word(thing, "object")
    if not kind:
        raise BadField("object", "is missing")
    if kind == DISPUTE:
        facts = _dispute(thing, rules)
    elif kind == ISSUING:
        facts = _issuing_dispute(thing, rules)
    else:
        facts = _something_else(thing, rules)
    flags = list(facts["flags"])
    for name in ("reason", "source_state"):
        facts[name] = shortened(name, facts[name], flags)
    facts |= {"flags": tuple(flags), "source_hash": source_hash, "payload": record}
    return Facts(**(_with_event(facts, event, rules) if event else facts))


def _dispute(thing: dict[str, Any], rules: TimeRules) -> dict[str, Any]:
    facts = _shared(thing, rules, STATES)
    status = facts["source_state"]
    due_by = _inside(thing, "evidence_details", "due_by")
    card = _inside(thing, "payment_method_details", "card")
    case_type = _inside(card, "case_type")
    inquiry = status.startswith("warning_") or case_type == "inquiry"
    fee, fee_currency = _fee(thing)
    details = {
        "network": _inside(card, "network") or _inside(card, "brand"),
        "network_reason_code": _inside(card, "network_reason_code")
        or thing.get("network_reason_code"),
        "case_type": case_type,
        "fee_currency": fee_currency,
        "is_charge_refundable": thing.get("is_charge_refundable"),
        "has_evidence": _inside(thing, "evidence_details", "has_evidence"),
        "submission_count": _inside(thing, "evidence_details", "submission_count"),
        "livemode": thing.get("livemode"),
    }
    return facts | {
        "source": SOURCE,
        "stage": "inquiry" if inquiry else "chargeback",
        "reason": _word(thing, "reason"),
        "fee": fee,
        "links": _links(thing, "charge", "payment_intent"),
        "external_due_at": read_field(
            "evidence_details.due_by", parse_epoch_deadline_s, due_by, rules=rules
        ),
        "details": _known(details),
    }


def _issuing_dispute(thing: dict[str, Any], rules: TimeRules) -> dict[str, Any]:
    reason = _inside(thing, "evidence", "reason")
    details = {
        "loss_reason": thing.get("loss_reason"),
        "explanation": _inside(thing, "evidence", reason, "explanation"),
        "livemode": thing.get("livemode"),
    }
    return _shared(thing, rules, ISSUING_STATES) | {
        "source": ISSUING_SOURCE,
        "stage": "issuing",
        "reason": reason if isinstance(reason, str) else "",
        "links": _links(thing, "transaction"),
        "details": _known(details),
    }


def _something_else(thing: dict[str, Any], rules: TimeRules) -> dict[str, Any]:
    """Return a fraud warning as information; anything else is passed over, flagged."""
    warning = thing.get("object") == WARNING
    return {
        "outcome": Outcome.RECORD_ONLY if warning else Outcome.IGNORE,
        "source": SOURCE,
        "reference": _id(thing, required=warning),
        "kind": "other",
        "state": State.INFORMATIONAL,
        "source_state": _word(thing, "object"),
        "reason": _word(thing, "fraud_type"),
        "opened_at": _created(thing, rules) if warning else None,
        "links": _links(thing, "charge", "payment_intent"),
        "flags": () if warning else ("not_a_dispute",),
    }


def _shared(
    thing: dict[str, Any], rules: TimeRules, states: dict[str, tuple[State, str]]
) -> dict[str, Any]:
    status = _word(thing, "status")
    state, result = states.get(status, (State.INFORMATIONAL, ""))
    currency = read_field("currency", read_currency, _word(thing, "currency"))
    return {
        "outcome": OUTCOME_OF_A_SNAPSHOT[state],
        "reference": _id(thing, required=True),
        "state": state,
        "result": result,
        "source_state": status,
        "currency": currency,
        "amount": read_field(
            "amount", from_minor_units, thing.get("amount"), currency, source=SOURCE
        ),
        "opened_at": _created(thing, rules),
        "flags": () if status in states else ("unknown_status",),
    }


def _with_event(facts: dict[str, Any], event: dict[str, Any], rules: TimeRules) -> dict[str, Any]:
    kind, state = _word(event, "type"), facts["state"]
    outcome, flags = facts["outcome"], facts["flags"]
    if outcome is not Outcome.IGNORE and state is not State.INFORMATIONAL:
        if kind not in EVENTS:
            outcome, flags = Outcome.RECORD_ONLY, (*flags, "unknown_event")
        elif kind.endswith(".created"):
            outcome = OUTCOME_OF_A_SNAPSHOT[state]
        else:
            outcome = Outcome.CLOSE if state is State.CLOSED else EVENTS[kind]
    event_at = read_field("created", parse_epoch_s, event.get("created"), rules=rules)
    return facts | {
        "outcome": outcome,
        "flags": flags,
        "event_id": _id(event, required=True),
        "event_at": event_at,
        "details": facts.get("details", {}) | {"event_type": kind},
    }


def _fee(thing: dict[str, Any]) -> tuple[Decimal | None, str | None]:
    """Return the dispute fee net of refunds, in the currency of the settlement."""
    movements = thing.get("balance_transactions")
    total, currency = Decimal(0), None
    for movement in movements if isinstance(movements, list) else ():
        code = read_field(
            "balance_transactions.currency", read_currency, _word(movement, "currency")
        )
        if currency not in (None, code):
            raise BadField("balance_transactions", "the fees are in more than one currency")
        currency = code
        total += read_field(
            "balance_transactions.fee",
            from_minor_units,
            movement.get("fee"),
            code,
            source=SOURCE,
            may_be_negative=True,
        )
    return (total, currency) if currency else (None, None)


def _created(thing: dict[str, Any], rules: TimeRules) -> datetime:
    return read_field("created", parse_epoch_s, thing.get("created"), rules=rules)


def _id(thing: dict[str, Any], *, required: bool) -> str:
    value = _word(thing, "id")
    if len(value) > MAX_CHARS["reference"] or not value.isprintable() or (required and not value):
        raise BadField("id", "is not a usable id" if value else "is missing")
    return value


def _word(thing: Any, key: str) -> str:
    value = _inside(thing, key)
    if value is None or isinstance(value, str):
        return (value or "").strip()
    raise BadField(key, "must be text")


def _links(thing: dict[str, Any], *names: str) -> dict[str, str]:
    """Return ids of related objects; Stripe sends an id, or the object itself when expanded."""
    found = {name: _inside(thing, name, "id") or thing.get(name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, str) and value}


def _inside(value: Any, *path: Any) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) and isinstance(key, str) else None
    return value


def _known(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if value is not None}
