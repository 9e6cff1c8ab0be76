"""Owns the proof that complaints get their 15 and 60 days, in both layouts of the export."""

from datetime import UTC, date, datetime

import pytest

from disputes.intake.facts import Facts, Outcome, State
from tests.intake.samples import errors_of, facts_of, opened

COLUMNS = (
    "Date received,Product,Issue,Consumer complaint narrative,ZIP code,Tags,Submitted via,"
    "Date sent to company,Company response to consumer,Timely response?,Complaint ID\n"
)


def row(sent: str, response: str = "In progress", reference: str = "19900001") -> bytes:
    cells = f'9/19/19,Mortgage,"Late, lost",Dear sir,00907,None,Web,{sent},{response},Yes,'
    return f"{COLUMNS}{cells}{reference}\n".encode()


def complaint(sent: str, response: str = "In progress", **options: object) -> Facts:
    return facts_of(row(sent, response), **options)


def test_the_export_is_recognised_by_its_columns():
    assert opened(row("9/24/19")).format == "cfpb"


@pytest.mark.parametrize(
    ("sent", "due", "final", "opened_at"),
    [
        ("9/24/19", date(2019, 10, 9), date(2019, 11, 23), datetime(2019, 9, 24, tzinfo=UTC)),
        ("2026-02-12", date(2026, 2, 27), date(2026, 4, 13), datetime(2026, 2, 12, tzinfo=UTC)),
        (
            "2026-03-02T14:49:28.000Z",
            date(2026, 3, 17),
            date(2026, 5, 1),
            datetime(2026, 3, 2, 14, 49, 28, tzinfo=UTC),
        ),
    ],
)
def test_the_clock_starts_when_the_complaint_is_sent_to_the_company(sent, due, final, opened_at):
    facts = complaint(sent)
    assert (facts.external_due_date, facts.final_due_date) == (due, final)
    assert facts.external_due_at == datetime(due.year, due.month, due.day, 23, 59, 59, tzinfo=UTC)
    assert facts.opened_at == opened_at
    assert not facts.external_due_estimated


def test_days_are_counted_on_the_calendar_across_a_change_of_clocks():
    facts = complaint("3/1/26", zone="America/New_York")
    assert facts.external_due_date == date(2026, 3, 16)
    assert facts.external_due_at == datetime(2026, 3, 17, 3, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("response", "state", "outcome"),
    [
        ("In progress", State.ACTIONABLE, Outcome.CREATE),
        ("Closed with explanation", State.CLOSED, Outcome.CREATE_CLOSED),
        ("Closed with monetary relief", State.CLOSED, Outcome.CREATE_CLOSED),
        ("Untimely response", State.CLOSED, Outcome.CREATE_CLOSED),
    ],
)
def test_the_response_says_if_the_complaint_is_open(response, state, outcome):
    facts = complaint("9/24/19", response)
    assert (facts.state, facts.outcome, facts.source_state) == (state, outcome, response)
    assert facts.flags == ()


@pytest.mark.parametrize("response", ["", "Pondering"])
def test_an_unknown_response_is_recorded_and_flagged(response):
    facts = complaint("9/24/19", response)
    assert (facts.outcome, facts.flags) == (Outcome.RECORD_ONLY, ("unknown_status",))


def test_a_complaint_has_no_amount_and_keeps_its_other_cells_as_text():
    facts = complaint("9/24/19")
    assert (facts.amount, facts.currency, facts.kind) == (None, "", "complaint")
    assert facts.reason == "Late, lost"
    assert facts.details["ZIP code"] == "00907"
    assert "Tags" not in facts.details
    assert facts.payload["Tags"] == "None"


@pytest.mark.parametrize("sent", ["", "24/9/19", "soon", "2019-02-30", "2026-03-02T14:49:28"])
def test_a_bad_date_is_an_error_that_names_the_column(sent):
    ((line, field, _),) = errors_of(row(sent))
    assert (line, field) == (2, "Date sent to company")


def test_a_complaint_without_its_id_is_an_error():
    ((_, field, message),) = errors_of(row("9/24/19", reference=""))
    assert (field, message) == ("Complaint ID", "is missing")


def test_another_table_forced_to_be_a_complaint_export_is_refused():
    parsed = opened(b"reference,amount,currency\n", format="cfpb")
    assert parsed.error_outcome is Outcome.REFUSE
    assert "Complaint ID" in parsed.error
