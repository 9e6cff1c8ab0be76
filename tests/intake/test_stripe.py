"""Owns the proof that Stripe's objects and events are judged as their status and type say."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from disputes.intake.facts import Facts, Outcome, State
from tests.intake.samples import errors_of, facts_of, opened

DUE_BY_S = 1779321599
CREATED_S = 1777626000


def dispute(**changes: Any) -> dict[str, Any]:
    return {
        "id": "dp_1",
        "object": "dispute",
        "amount": 1000,
        "currency": "usd",
        "charge": "ch_1",
        "payment_intent": None,
        "created": CREATED_S,
        "evidence": {"customer_name": "A Person"},
        "evidence_details": {"due_by": DUE_BY_S, "has_evidence": False},
        "livemode": False,
        "reason": "fraudulent",
        "status": "needs_response",
    } | changes


def event(kind: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": "evt_1",
        "object": "event",
        "type": kind,
        "created": CREATED_S + 60,
        "data": {"object": dispute(**changes)},
    }


def judge(record: dict[str, Any]) -> Facts:
    return facts_of(json.dumps(record).encode(), name="stripe.json")


def refusals(record: dict[str, Any]) -> list[str]:
    content = json.dumps(record).encode()
    return [field for _, field, _ in errors_of(content, name="stripe.json", format="stripe")]


def test_a_dispute_is_taken_with_its_amount_deadline_and_links():
    facts = judge(dispute())
    assert (facts.source, facts.reference, facts.kind) == ("stripe", "dp_1", "chargeback")
    assert (str(facts.amount), facts.currency) == ("10.00", "USD")
    assert facts.external_due_at == datetime(2026, 5, 20, 23, 59, 59, tzinfo=UTC)
    assert facts.external_due_date is None
    assert facts.opened_at == datetime.fromtimestamp(CREATED_S, UTC)
    assert facts.links == {"charge": "ch_1"}
    assert (facts.event_id, facts.event_at) == ("", None)


def test_personal_evidence_stays_in_the_payload_alone():
    facts = judge(dispute())
    assert "A Person" not in str(facts.details)
    assert facts.payload["evidence"] == {"customer_name": "A Person"}


@pytest.mark.parametrize(
    ("status", "state", "outcome", "result", "stage"),
    [
        ("warning_needs_response", State.ACTIONABLE, Outcome.CREATE, "", "inquiry"),
        ("needs_response", State.ACTIONABLE, Outcome.CREATE, "", "chargeback"),
        ("warning_under_review", State.WAITING, Outcome.UPSERT, "", "inquiry"),
        ("under_review", State.WAITING, Outcome.UPSERT, "", "chargeback"),
        ("won", State.CLOSED, Outcome.CREATE_CLOSED, "won", "chargeback"),
        ("lost", State.CLOSED, Outcome.CREATE_CLOSED, "lost", "chargeback"),
        ("warning_closed", State.CLOSED, Outcome.CREATE_CLOSED, "", "inquiry"),
        ("charge_refunded", State.CLOSED, Outcome.CREATE_CLOSED, "", "chargeback"),
    ],
)
def test_a_status_says_who_has_to_act(status, state, outcome, result, stage):
    facts = judge(dispute(status=status))
    assert (facts.state, facts.outcome, facts.result, facts.stage) == (
        state,
        outcome,
        result,
        stage,
    )


@pytest.mark.parametrize(
    ("kind", "status", "outcome"),
    [
        ("charge.dispute.created", "needs_response", Outcome.CREATE),
        ("charge.dispute.created", "won", Outcome.CREATE_CLOSED),
        ("charge.dispute.updated", "under_review", Outcome.UPDATE),
        ("charge.dispute.updated", "needs_response", Outcome.UPDATE),
        ("charge.dispute.updated", "lost", Outcome.CLOSE),
        ("charge.dispute.closed", "won", Outcome.CLOSE),
        ("charge.dispute.funds_withdrawn", "needs_response", Outcome.UPSERT),
        ("charge.dispute.funds_reinstated", "under_review", Outcome.UPSERT),
        ("charge.dispute.funds_reinstated", "won", Outcome.CLOSE),
    ],
)
def test_an_event_says_what_to_do(kind, status, outcome):
    facts = judge(event(kind, status=status))
    assert facts.outcome is outcome
    assert (facts.event_id, facts.details["event_type"]) == ("evt_1", kind)
    assert facts.event_at == datetime.fromtimestamp(CREATED_S + 60, UTC)


def test_an_unknown_status_is_recorded_and_flagged():
    for record in (dispute(status="pondering"), event("charge.dispute.updated", status="new")):
        facts = judge(record)
        assert (facts.outcome, facts.state) == (Outcome.RECORD_ONLY, State.INFORMATIONAL)
        assert facts.flags == ("unknown_status",)


def test_a_long_word_of_the_sender_is_shortened_and_flagged():
    facts = judge(event("charge.dispute.updated", reason="r" * 300))
    assert (len(facts.reason), facts.flags) == (200, ("reason_shortened",))


def test_an_unknown_event_about_a_dispute_is_recorded_and_flagged():
    facts = judge(event("charge.dispute.pondered"))
    assert (facts.outcome, facts.flags) == (Outcome.RECORD_ONLY, ("unknown_event",))


def test_an_event_about_something_else_is_ignored_and_flagged():
    other = event("charge.succeeded", object="charge", id="ch_1")
    facts = judge(other)
    assert (facts.outcome, facts.flags) == (Outcome.IGNORE, ("not_a_dispute",))
    assert facts.state is State.INFORMATIONAL


def test_another_object_of_stripe_is_never_taken_for_a_plain_dispute():
    charge = {"id": "ch_1", "object": "charge", "amount": 1000, "currency": "jpy", "livemode": True}
    assert judge(charge).outcome is Outcome.IGNORE


def test_a_fraud_warning_is_information_and_never_queued():
    warning = event(
        "radar.early_fraud_warning.created",
        object="radar.early_fraud_warning",
        id="issfr_1",
        fraud_type="made_with_stolen_card",
    )
    facts = judge(warning)
    assert (facts.outcome, facts.state) == (Outcome.RECORD_ONLY, State.INFORMATIONAL)
    assert (facts.reference, facts.reason, facts.flags) == ("issfr_1", "made_with_stolen_card", ())


@pytest.mark.parametrize("due_by", [None, 0])
def test_null_and_zero_mean_no_deadline(due_by):
    assert judge(dispute(evidence_details={"due_by": due_by})).external_due_at is None
    assert judge(dispute(evidence_details=None)).external_due_at is None


def test_an_issuing_dispute_is_another_source_without_deadline():
    record = {
        "id": "idp_1",
        "object": "issuing.dispute",
        "amount": 100,
        "currency": "usd",
        "created": CREATED_S,
        "evidence": {"reason": "fraudulent", "fraudulent": {"explanation": "lost card"}},
        "status": "unsubmitted",
        "transaction": {"id": "ipi_1", "object": "issuing.transaction"},
    }
    facts = judge(record)
    assert (facts.source, facts.stage, facts.reason) == ("stripe-issuing", "issuing", "fraudulent")
    assert (facts.state, facts.external_due_at) == (State.ACTIONABLE, None)
    assert (facts.links, facts.details) == ({"transaction": "ipi_1"}, {"explanation": "lost card"})
    assert judge(record | {"status": "expired"}).result == "expired"


def test_the_fee_is_net_of_refunds_and_in_the_currency_of_the_settlement():
    withdrawn = {"amount": -1000, "fee": 1500, "currency": "eur"}
    facts = judge(dispute(balance_transactions=[withdrawn]))
    assert (str(facts.fee), facts.details["fee_currency"]) == ("15.00", "EUR")
    assert str(facts.amount) == "10.00"
    returned = {"amount": 1000, "fee": -1500, "currency": "eur"}
    assert judge(dispute(balance_transactions=[withdrawn, returned])).fee == 0


def test_the_card_network_and_its_reason_are_kept():
    card = {"brand": "visa", "network": "visa", "network_reason_code": "10.4"}
    facts = judge(dispute(payment_method_details={"card": card, "type": "card"}))
    assert facts.details["network"] == "visa"
    assert facts.details["network_reason_code"] == "10.4"


def test_kronur_are_counted_in_hundredths():
    assert str(judge(dispute(currency="isk", amount=1000)).amount) == "10.00"
    assert str(judge(dispute(currency="jpy", amount=1000)).amount) == "1000"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": None}, "id"),
        ({"id": 7}, "id"),
        ({"id": "x" * 300}, "id"),
        ({"amount": None}, "amount"),
        ({"amount": "ten"}, "amount"),
        ({"amount": 10.5}, "amount"),
        ({"amount": -1000}, "amount"),
        ({"amount": True}, "amount"),
        ({"currency": None}, "currency"),
        ({"currency": "xxx"}, "currency"),
        ({"currency": ["usd"]}, "currency"),
        ({"status": {}}, "status"),
        ({"created": CREATED_S * 1000}, "created"),
        ({"created": None}, "created"),
        ({"evidence_details": {"due_by": DUE_BY_S * 1000}}, "evidence_details.due_by"),
        ({"evidence_details": {"due_by": "soon"}}, "evidence_details.due_by"),
        ({"balance_transactions": [7]}, "balance_transactions.currency"),
        ({"balance_transactions": [{"currency": "usd", "fee": "x"}]}, "balance_transactions.fee"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_field(changes, field):
    assert refusals(dispute(**changes)) == [field]
    assert refusals(event("charge.dispute.created", **changes)) == [field]


@pytest.mark.parametrize(
    "record",
    [
        {"object": "event"},
        {"object": "event", "data": {"object": None}},
        {"object": "event", "type": 7, "id": "evt_1", "created": 0, "data": {"object": dispute()}},
        {"object": None},
        {"object": ["dispute"]},
        {},
    ],
)
def test_a_broken_envelope_is_an_error(record):
    assert len(refusals(record)) == 1


def test_a_table_forced_to_be_stripe_is_refused():
    assert opened(b"reference,amount,currency\n", format="stripe").error_outcome is Outcome.REFUSE
