"""Owns the proof that JSON is read strictly, record by record, and that a bad record is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disputes.intake.documents import decode_record
from disputes.intake.errors import Unreadable
from disputes.intake.facts import Facts, Outcome, RowError
from tests.intake.samples import errors_of, facts_of, judged, opened, references_of


def record(reference: str, **more: object) -> dict[str, object]:
    return {"reference": reference, "amount": "5.00", "currency": "EUR", **more}


def line(reference: str, **more: object) -> bytes:
    return json.dumps(record(reference, **more)).encode() + b"\n"


def test_one_object_is_record_zero():
    ((number, at_line, facts),) = opened(json.dumps(record("A"), indent=1).encode(), name="a.json")
    assert (number, at_line, facts.reference) == (0, 1, "A")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda items: items,
        lambda items: {"object": "list", "data": items},
        lambda items: {"data": items, "has_more": False},
        lambda items: {"disputes": items},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_records_is_found_however_it_is_wrapped(wrap, indent):
    content = json.dumps(wrap([record("A"), record("B")]), indent=indent).encode()
    parsed = list(opened(content, name="a.json"))
    assert [(number, facts.reference) for number, _, facts in parsed] == [(0, "A"), (1, "B")]


@pytest.mark.parametrize("content", [b"[]", b'{"data": []}', b' {"object": "list", "data": [ ] } '])
def test_an_empty_list_has_no_records(content):
    assert judged(content, name="a.json") == []


def test_json_lines_are_found_by_content_and_counted_from_one():
    content = b"\n" + line("A") + b"\n" + line("B")
    parsed = list(opened(content, name="upload"))
    assert [(number, at, facts.reference) for number, at, facts in parsed] == [
        (1, 2, "A"),
        (2, 4, "B"),
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"reference": ', "not valid JSON"),
        (b"{'reference': 1}", "not valid JSON"),
        (b'{"reference": "B"} x', "more text"),
        (b"[1]", "not a JSON object"),
        (b"12", "not a JSON object"),
        (b'{"amount": NaN}', "NaN is not JSON"),
        (b'{"amount": -Infinity}', "-Infinity is not JSON"),
        (b'{"amount": 1, "amount": 2}', "repeated"),
        (b'{"reference": "\\u0000"}', "NUL"),
        (b'{"x\\u0000": 1}', "NUL"),
        (b'{"reference": "\\ud800"}', "surrogate"),
        (b'{"x": ' + b"9" * 5000 + b"}", "too large"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"x": ' + b"[" * 65 + b"]" * 65 + b"}", "nested too deeply"),
        (b'{"x": "' + b"y" * (1024 * 1024) + b'"}', "larger than"),
    ],
)
def test_a_bad_line_is_an_error_of_that_line(bad, message):
    content = line("A") + bad + b"\n" + line("C")
    ((at_line, _, found),) = errors_of(content, name="a.jsonl")
    assert at_line == 2
    assert message in found
    assert references_of(content, name="a.jsonl") == ["A", "C"]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"amount": NaN}',
        b'{"amount": 1, "amount": 2}',
        b'{"reference": "\\ud800"}',
        b"17",
        b'{"x": ' + b"9" * 5000 + b"}",
        b'{"x": ' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"x": "' + b"y" * (1024 * 1024) + b'"}',
    ],
)
def test_a_bad_item_of_a_list_leaves_the_others_alone(bad):
    content = b'{"data": [\n' + line("A") + b",\n" + bad + b",\n" + line("C") + b"]}"
    ((at_line, _, _),) = errors_of(content, name="a.json")
    assert at_line == 4
    assert references_of(content, name="a.json") == ["A", "C"]


@pytest.mark.parametrize("end", [b"", b",", b", {", b"]", b"] }}", b"]} x", b' , "unfinished'])
def test_a_document_that_breaks_off_keeps_what_came_before_and_says_where(end):
    content = b'{"data": [\n' + line("A") + end
    results = judged(content, name="a.json")
    assert isinstance(results[0], Facts)
    assert isinstance(results[-1], RowError)
    assert results[-1].line in (2, 3)


def test_a_document_of_brackets_is_one_error():
    for bomb in (b"[" * 100_000, b'{"a":' * 100_000):
        assert len(errors_of(bomb, name="a.json")) == 1


def test_an_item_too_large_to_hold_ends_the_document_with_an_error():
    content = b"[" + line("A") + b', {"x": "' + b"y" * (3 * 1024 * 1024) + b'"}]'
    assert references_of(content, name="a.json") == ["A"]
    ((_, _, message),) = errors_of(content, name="a.json")
    assert "larger than" in message


def test_thousands_of_items_are_read_through_a_moving_window_with_their_lines():
    content = b"[\n" + b",\n".join(line(f"R-{at}", note="é" * 300).strip() for at in range(9000))
    parsed = list(opened(content + b"\n]", name="a.json"))
    assert [(number, at_line) for number, at_line, _ in parsed] == [
        (number, number + 2) for number in range(9000)
    ]
    assert parsed[-1][2].reference == "R-8999"


def test_a_number_with_decimals_is_never_a_float():
    content = b'{"reference": 7, "amount": 129.10, "currency": "USD", "rate": 0.1000}'
    facts = facts_of(content, name="a.json")
    assert str(facts.amount) == "129.10"
    assert (facts.reference, facts.details) == ("7", {"rate": "0.1000"})


def test_a_long_list_on_one_line_is_a_document_too():
    content = b"[" + b",".join(line(f"R-{at}", note="x" * 300).strip() for at in range(5000)) + b"]"
    assert len(references_of(content, name="upload")) == 5000


def test_a_large_value_after_megabytes_of_blanks_is_read_whole():
    head = b'{"reference": "A", "amount": "5.00", "currency": "EUR", "note":'
    content = head + b" " * (2 * 1024 * 1024) + b'"' + b"x" * 900_000 + b'"}'
    assert references_of(content, name="a.json") == ["A"]


def test_an_object_of_many_large_members_is_refused_before_it_is_held():
    members = b", ".join(b'"m%d": "%s"' % (at, b"x" * 900_000) for at in range(5))
    ((_, _, message),) = errors_of(b"{" + members + b"}", name="a.json")
    assert "too large" in message


@pytest.mark.parametrize("amount", [b"1e2", b"1E400", b"1e-400", b"true", b"[5]", b"{}", b"null"])
def test_a_json_amount_obeys_the_rules_of_amounts(amount):
    content = b'{"reference": "A", "amount": ' + amount + b', "currency": "USD"}'
    ((_, field, _),) = errors_of(content, name="a.json")
    assert field == "amount"


def test_the_hash_of_an_object_does_not_depend_on_spacing_or_order():
    turned = b'{ "currency":"EUR",\n "amount":"5.00", "reference":"A"}'
    plain = facts_of(line("A"), name="a.json")
    assert facts_of(turned, name="a.json").source_hash == plain.source_hash


def test_records_of_json_may_each_have_other_fields():
    content = line("A") + line("B", due_by="2026-05-20") + line("C", respond_by="2026-05-21")
    dates = [facts.external_due_date for facts in judged(content, name="a.jsonl")]
    assert [str(day) for day in dates] == ["None", "2026-05-20", "2026-05-21"]


def test_a_row_without_a_required_field_is_an_error_when_the_first_had_it():
    content = line("A") + b'{"reference": "B", "amount": "5.00"}\n'
    assert errors_of(content, name="a.jsonl") == [(2, "currency", "the currency is missing")]


def test_json_without_the_required_fields_asks_for_a_mapping():
    parsed = opened(b'{"case": "A", "sum": "5.00"}', name="a.json")
    assert parsed.error_outcome is Outcome.NEEDS_MAPPING
    assert parsed.columns == ["case", "sum"]
    assert parsed.missing == ["reference", "amount", "currency"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**38), 10**38) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


@given(JSON)
def test_any_json_comes_back_as_it_was_or_is_refused(value):
    text = json.dumps(value)
    try:
        assert decode_record(text) == value
    except Unreadable:
        assert "\\u0000" in text or "\\ud" in text
