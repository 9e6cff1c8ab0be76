"""Owns the proof that the plain table is understood by its usual column names."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from disputes.intake.columns import ALIASES
from disputes.intake.facts import Facts, Outcome, State
from tests.intake.samples import HEADER, errors_of, facts_of, judged, opened


def one(columns: str, cells: str, **options: object) -> Facts:
    content = f"reference,amount,currency,{columns}\nA-1,5.00,EUR,{cells}\n"
    return facts_of(content.encode(), **options)


def error(columns: str, cells: str, **options: object) -> tuple[int, str, str]:
    content = f"reference,amount,currency,{columns}\nA-1,5.00,EUR,{cells}\n"
    (found,) = errors_of(content.encode(), **options)
    return found


def test_a_full_row_fills_every_field():
    facts = one(
        "source,kind,reason,status,opened_at,due_at,external_due_at,materiality_usd,fee,ladder,"
        "tier,band,order",
        "Stripe,complaint,fraud,under_review,2026-05-01T09:00:00Z,2026-05-03T09:00:00Z,"
        "2026-05-20,7.25,15.00,card-chargeback,senior,High,SO-1",
    )
    assert facts == Facts(
        outcome=Outcome.UPSERT,
        source="stripe",
        reference="A-1",
        kind="complaint",
        amount=Decimal("5.00"),
        currency="EUR",
        materiality_usd=Decimal("7.25"),
        fee=Decimal("15.00"),
        reason="fraud",
        state=State.WAITING,
        source_state="under_review",
        opened_at=datetime(2026, 5, 1, 9, tzinfo=UTC),
        due_at=datetime(2026, 5, 3, 9, tzinfo=UTC),
        external_due_at=datetime(2026, 5, 20, 23, 59, 59, tzinfo=UTC),
        external_due_date=datetime(2026, 5, 20).date(),
        ladder="card-chargeback",
        tier="senior",
        band="high",
        details={"order": "SO-1"},
        source_hash=facts.source_hash,
        payload=facts.payload,
    )
    assert facts.payload["source"] == "Stripe"


def test_a_bare_row_has_plain_defaults():
    facts = facts_of(HEADER + b"A-1,5.00,EUR\n")
    assert (facts.source, facts.kind, facts.band, facts.state) == (
        "csv",
        "chargeback",
        "",
        State.ACTIONABLE,
    )
    assert (facts.opened_at, facts.due_at, facts.external_due_at) == (None, None, None)
    assert (facts.details, facts.flags) == ({}, ())


@pytest.mark.parametrize("alias", sorted(ALIASES["reference"]))
def test_every_name_of_the_reference_is_understood(alias):
    content = f"{alias.upper().replace('_', ' ')};amount;currency\nA-1;5.00;EUR\n".encode()
    assert facts_of(content).reference == "A-1"


@pytest.mark.parametrize("alias", sorted(ALIASES["external_due_at"]))
def test_every_name_of_the_external_deadline_is_understood(alias):
    assert str(one(alias, "2026-05-20").external_due_date) == "2026-05-20"


def test_our_own_deadline_is_never_taken_for_the_external_one():
    facts = one("due_at,due_by", "2026-05-10T00:00:00Z,2026-05-20T00:00:00Z")
    assert (facts.due_at.day, facts.external_due_at.day) == (10, 20)


def test_of_two_columns_for_one_field_the_better_name_wins_and_the_other_stays():
    facts = facts_of(b"id,dispute_id,amount,currency\n7,A-1,5.00,EUR\n")
    assert (facts.reference, facts.details) == ("A-1", {"id": "7"})


def test_a_mapping_wins_over_the_usual_names():
    content = b"exception_id,reference,difference,currency\nEXC-1,REF-7,0.50,BRL\n"
    assert opened(content).error_outcome is Outcome.NEEDS_MAPPING
    facts = facts_of(content, mapping={"exception_id": "reference", "difference": "amount"})
    assert (facts.reference, facts.details) == ("EXC-1", {"reference": "REF-7"})


@pytest.mark.parametrize(
    "mapping", [{"a": "nonsense"}, {"a": "reference", "b": "reference"}, {"a": ""}]
)
def test_a_mapping_that_makes_no_sense_is_refused(mapping):
    parsed = opened(b"a,b,amount,currency\n", mapping=mapping)
    assert parsed.error_outcome is Outcome.REFUSE


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (HEADER + b"A-1,5.00,EUR\n", "a.csv"),
        (b'{"reference": "A-1", "amount": "5.00", "currency": "EUR"}\n' * 99, "a.jsonl"),
    ],
)
def test_a_mapping_of_a_column_that_is_not_there_is_refused_with_those_that_are(content, name):
    parsed = opened(content, name=name, mapping={"nocol": "fee", "amount": "amount"})
    assert parsed.error_outcome is Outcome.REFUSE
    assert "no such column: 'nocol'" in parsed.error
    assert "Columns seen: reference, amount, currency." in parsed.error
    assert list(parsed) == []


def test_a_mapped_name_that_only_a_late_record_of_json_has_is_found():
    early = b'{"reference": "A-1", "amount": "5.00", "currency": "EUR"}\n'
    late = b'{"reference": "A-2", "amount": "5.00", "currency": "EUR", "why": "late"}\n'
    content = early * 99 + late
    assert judged(content, name="a.jsonl", mapping={"why": "reason"})[-1].reason == "late"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"id": "dp_1", "object": "dispute", "amount": 500, "currency": "eur"}', "a.json"),
        (
            b"Complaint ID,Date sent to company,Company response to consumer,Issue\n"
            b"1,9/24/19,In progress,Fees\n",
            "a.csv",
        ),
    ],
)
def test_a_mapping_for_a_file_of_another_format_is_refused_not_ignored(content, name):
    parsed = opened(content, name=name, mapping={"amount": "fee"})
    assert parsed.error_outcome is Outcome.REFUSE
    assert "--format generic" in parsed.error


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"id": "r", "amount": 30870, "currency": "TND"}, "amount"),
        ({"dispute_id": "r", "amount": "6500", "currency": "USD"}, "amount"),
        ({"id": "r", "reference": "ORD-1", "amount": 6500, "currency": "USD"}, "amount"),
        ({"id": "r", "amount": "65.00", "fee": 1500, "currency": "USD"}, "fee"),
    ],
)
def test_a_whole_amount_in_json_that_may_count_minor_units_is_refused(record, field):
    """Another system's document looks like ours, and most of them count cents."""
    content = json.dumps(record).encode()
    ((_, found, message),) = errors_of(content, name="a.json")
    assert found == field
    assert "minor units" in message
    assert "--format generic" in message
    assert facts_of(content, name="a.json", format="generic").reference


@pytest.mark.parametrize(
    "record",
    [
        {"reference": "r", "amount": 6500, "currency": "USD"},
        {"id": "r", "amount": "6500.00", "currency": "USD"},
        {"id": "r", "amount": 6500.5, "currency": "USD"},
        {"id": "r", "amount": 6500, "currency": "JPY"},
        {"id": "r", "amount": 0, "currency": "USD"},
    ],
)
def test_an_amount_in_json_that_can_only_mean_units_is_taken(record):
    assert facts_of(json.dumps(record).encode(), name="a.json").reference == "r"


def test_a_whole_amount_in_a_table_is_in_units():
    assert str(facts_of(b"id,amount,currency\nA-1,6500,USD\n").amount) == "6500.00"


def test_missing_columns_are_named_with_those_that_were_seen():
    parsed = opened(b"case;sum;ccy\nA;5;EUR\nB;6;EUR\n")
    assert parsed.error == "No column gives reference, amount. Columns seen: case, sum, ccy."
    assert (parsed.missing, parsed.columns) == (["reference", "amount"], ["case", "sum", "ccy"])
    assert list(parsed) == []


@pytest.mark.parametrize(
    ("status", "state", "outcome", "result"),
    [
        ("needs_response", State.ACTIONABLE, Outcome.CREATE, ""),
        ("Needs Response", State.ACTIONABLE, Outcome.CREATE, ""),
        ("open", State.ACTIONABLE, Outcome.CREATE, ""),
        ("under_review", State.WAITING, Outcome.UPSERT, ""),
        ("won", State.CLOSED, Outcome.CREATE_CLOSED, "won"),
        ("LOST", State.CLOSED, Outcome.CREATE_CLOSED, "lost"),
        ("accepted", State.CLOSED, Outcome.CREATE_CLOSED, "accepted"),
        ("expired", State.CLOSED, Outcome.CREATE_CLOSED, "expired"),
        ("closed", State.CLOSED, Outcome.CREATE_CLOSED, ""),
        ("", State.ACTIONABLE, Outcome.CREATE, ""),
    ],
)
def test_a_status_says_who_has_to_act(status, state, outcome, result):
    facts = one("status", status)
    assert (facts.state, facts.outcome, facts.result) == (state, outcome, result)
    assert (facts.source_state, facts.flags) == (status, ())


def test_an_unknown_status_or_kind_is_flagged_and_never_refused():
    facts = one("status,kind", "pondering,riddle")
    assert (facts.state, facts.kind) == (State.ACTIONABLE, "other")
    assert facts.flags == ("unknown_status", "unknown_kind")


def test_long_words_of_the_source_are_shortened_and_flagged():
    facts = one("status,reason", f"{'s' * 81},{'r' * 201}")
    assert (len(facts.source_state), len(facts.reason)) == (80, 200)
    assert facts.flags == ("unknown_status", "reason_shortened", "source_state_shortened")
    assert facts.payload["reason"] == "r" * 201


def test_a_reason_of_several_lines_becomes_one_line():
    assert one("reason", '"late,\n and lost"').reason == "late, and lost"


def test_the_source_given_for_the_file_is_the_default_of_its_rows():
    assert one("order", "1", source="bank").source == "bank"
    assert one("source", "stripe", source="bank").source == "stripe"


@pytest.mark.parametrize("source", ["", "  ", "x" * 41, "a\x07b"])
def test_a_source_for_the_file_that_no_row_could_have_is_refused(source):
    parsed = opened(HEADER + b"A-1,5.00,EUR\n", source=source)
    assert parsed.error_outcome is Outcome.REFUSE
    assert "source" in parsed.error


def test_the_source_decides_how_many_decimals_a_currency_has():
    row = b"source,reference,amount,currency\n%s,A-1,10.50,ISK\n"
    assert str(facts_of(row % b"stripe").amount) == "10.50"
    assert errors_of(row % b"bank")[0][1] == "amount"


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("opened_at", "2026-05-01T09:00:00"),
        ("due_at", "2026-13-01"),
        ("due_by", "0001-01-01"),
        ("due_by", "9999-12-31T00:00:00Z"),
        ("due_by", "1779271199000"),
        ("materiality_usd", "NaN"),
        ("fee", "-1.00"),
        ("band", "urgent"),
        ("source", "x" * 41),
        ("ladder", "x" * 41),
        ("tier", "a\x07b"),
        ("materiality_usd", "1" + "0" * 18),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_column(column, cell):
    line, field, message = error(column, cell)
    assert (line, field) == (2, column)
    assert message


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (",5.00,EUR", "dispute_id"),
        ("x" * 201 + ",5.00,EUR", "dispute_id"),
        ('"A\n1",5.00,EUR', "dispute_id"),
        ("A-1,,EUR", "dispute_amount"),
        ("A-1,5.00,", "ccy"),
        ("A-1,5.00,XXX", "ccy"),
    ],
)
def test_an_error_in_a_required_field_names_the_column_as_it_is_in_the_file(row, field):
    content = f"dispute_id,dispute_amount,ccy\n{row}\n".encode()
    assert [found for _, found, _ in errors_of(content)] == [field]


def test_times_without_a_zone_are_read_in_the_zone_of_the_file():
    facts = one("created,due_by", "2026-05-01 09:00:00,2026-05-20", zone="America/New_York")
    assert facts.opened_at == datetime(2026, 5, 1, 13, tzinfo=UTC)
    assert facts.external_due_at == datetime(2026, 5, 21, 3, 59, 59, tzinfo=UTC)


def test_a_beginning_given_as_a_date_is_the_start_of_that_day():
    assert one("created", "2026-05-01").opened_at == datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize("column", ["due_at", "due_by", "opened_at"])
def test_a_date_that_is_not_iso_is_refused_in_words_that_name_both_forms(column):
    """9/4/29 is one day in America and another in Europe; a day is never guessed."""
    _, _, message = error(column, "9/4/29")
    assert "such as 2026-05-01 or a date and time such as 2026-05-01T09:30:00Z" in message


def test_a_time_without_a_zone_is_refused_with_the_option_that_helps():
    assert "--zone" in error("due_by", "2026-05-20 09:00:00")[2]


def test_a_row_that_repeats_an_earlier_one_exactly_is_a_duplicate():
    rows = b"A-1,5.00,EUR\nA-2,5.00,EUR\nA-1,5.00,EUR\nA-1,6.00,EUR\n"
    assert [facts.outcome for facts in judged(HEADER + rows)] == [
        Outcome.CREATE,
        Outcome.CREATE,
        Outcome.DUPLICATE,
        Outcome.CREATE,
    ]


def test_an_emoji_and_right_to_left_text_are_kept():
    facts = facts_of(HEADER + "\u202eA-1😀,5.00,EUR\n".encode())
    assert facts.reference == "\u202eA-1😀"


def test_two_unicode_forms_of_a_reference_are_two_references():
    rows = "e\u0301-1,5.00,EUR\n\u00e9-1,5.00,EUR\n".encode()
    first, second = judged(HEADER + rows)
    assert first.reference != second.reference


def test_the_reconciliation_export_asks_for_a_mapping_instead_of_failing():
    columns = b"exception_id,ledger_tx_id,reference,ledger_amount,currency,difference,break_type\n"
    parsed = opened(columns + b"EXC-1,LED-1,,1250.00,BRL,-314.22,mismatch\n")
    assert (parsed.error_outcome, parsed.missing) == (Outcome.NEEDS_MAPPING, ["amount"])
    mapping = {"exception_id": "reference", "difference": "amount"}
    ((_, field, message),) = errors_of(
        columns + b"EXC-1,LED-1,,1250.00,BRL,-314.22,mismatch\n", mapping=mapping
    )
    assert field == "difference"
    assert "negative" in message
