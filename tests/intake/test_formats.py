"""Owns the proof of the one door: detection, refusal of a whole file, the words of the report."""

import io
import json
from datetime import UTC, datetime

import pytest

from disputes.intake.duplicates import SeenRecords
from disputes.intake.facts import Outcome, RowError
from disputes.intake.formats import expected_words, open_records
from tests.intake.samples import HEADER, NOW, facts_of, opened


def test_an_unknown_format_or_zone_is_refused_with_a_reason():
    assert "unknown format" in opened(HEADER, format="xls").error
    assert "unknown time zone" in opened(HEADER, zone="Mars/Olympus").error
    assert "unknown time zone" in opened(HEADER, zone="").error


def test_a_name_that_says_table_wins_over_a_bracket_at_the_start():
    content = b"[export]\n" + HEADER + b"A-1,5.00,EUR\n"
    assert facts_of(content, name="a.csv").reference == "A-1"


def test_the_file_may_have_been_read_before():
    file = io.BytesIO(HEADER + b"A-1,5.00,EUR\n")
    file.read()
    assert len(list(open_records(file, name="a.csv", now=NOW))) == 1


def test_ten_years_ahead_are_counted_from_now():
    content = b"reference,amount,currency,due_by\nA-1,5.00,EUR,2036-01-01T00:00:00Z\n"
    assert facts_of(content).external_due_at == datetime(2036, 1, 1, tzinfo=UTC)
    earlier = open_records(io.BytesIO(content), name="a.csv", now=datetime(2025, 1, 1, tzinfo=UTC))
    ((_, _, error),) = earlier
    assert isinstance(error, RowError)
    assert "implausible" in error.message


def test_the_words_of_a_record_are_those_of_the_report():
    content = (
        b"reference,amount,currency,status,reason,due_by,network_reason_code\n"
        b"A-1,8800,JPY,won,fraud,2026-05-20T23:59:59Z,13.1\n"
    )
    assert expected_words(facts_of(content)) == {
        "outcome": "create_closed",
        "source": "csv",
        "reference": "A-1",
        "event_id": None,
        "amount": {"decimal": "8800", "currency": "JPY"},
        "deadline_utc": "2026-05-20T23:59:59Z",
        "state": "closed",
        "source_state": "won",
        "reason": "fraud",
        "result": "won",
        "network_reason_code": "13.1",
    }


def test_the_words_of_a_bare_date_are_the_date():
    content = b"reference,amount,currency,due_by\nA-1,5.00,EUR,2026-05-20\n"
    words = expected_words(facts_of(content))
    assert words["deadline_date"] == "2026-05-20"
    assert "deadline_utc" not in words


def test_the_words_of_an_error_name_line_field_and_reason():
    ((_, _, error),) = opened(HEADER + b"A-1,NaN,EUR\n")
    assert expected_words(error) == {
        "outcome": "row_error",
        "line": 2,
        "field": "amount",
        "message": "'NaN' is not a plain decimal number such as 1234.50",
    }


def test_words_and_payloads_are_ready_for_json():
    content = b'{"reference": "A", "amount": 5.10, "currency": "EUR", "more": [1, 0.5, null, true]}'
    facts = facts_of(content, name="a.json")
    assert json.loads(json.dumps([expected_words(facts), facts.details, facts.payload]))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_an_object_ignored_twice_is_ignored_twice(name):
    record = json.dumps({"object": "charge", "id": "ch_1"}).encode()
    content = record + b"\n" + record if name == "a.jsonl" else b"[" + record + b"," + record + b"]"
    parsed = opened(content, name=name, format="stripe")
    assert [facts.outcome for _, _, facts in parsed] == [Outcome.IGNORE, Outcome.IGNORE]


def test_hashes_are_remembered_even_when_they_share_a_bucket():
    seen = SeenRecords()
    hashes = [f"abcd{number:028x}" + "0" * 32 for number in range(2000)]
    assert all(seen.add(source_hash) for source_hash in hashes)
    assert not any(seen.add(source_hash) for source_hash in hashes)


def test_a_digest_that_only_appears_across_two_neighbours_is_new():
    seen = SeenRecords()
    tail = "00" * 16
    assert seen.add("aaaa" * 7 + "aabb" + tail)
    assert seen.add("aaaa" + "cc" * 14 + tail)
    assert seen.add("aaaa" + "aa" * 11 + "bbaaaa" + tail)
    assert not seen.add("aaaa" + "cc" * 14 + tail)
