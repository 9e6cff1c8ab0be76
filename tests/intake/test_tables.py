"""Owns the proof that any table is read row by row, and that a bad row costs that row alone."""

import io
import tempfile
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disputes.intake.facts import Outcome
from disputes.intake.formats import open_records
from tests.intake.samples import HEADER, NOW, errors_of, facts_of, judged, opened, references_of


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_and_told(delimiter):
    rows = [["reference", "amount", "currency"], ["A-1", "5.00", "EUR"]]
    content = "\n".join(delimiter.join(row) for row in rows).encode()
    names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
    assert references_of(content) == ["A-1"]
    assert any(names[delimiter] in notice for notice in opened(content).notices)


def test_a_semicolon_file_with_commas_in_its_cells_is_read_by_semicolons():
    content = b"reference;amount;currency;reason\nA;5.00;EUR;late, broken, lost\n"
    assert facts_of(content).reason == "late, broken, lost"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r\r\n", b"\r"])
def test_every_kind_of_line_end_gives_the_same_rows_lines_and_hashes(newline):
    content = HEADER + b'A-1,5.00,EUR\nA-2,x,EUR\n"A-3",6.00,EUR\n'
    plain, other = opened(content), opened(content.replace(b"\n", newline))
    assert list(plain) == list(other)
    assert [(number, line) for number, line, _ in other] == [(1, 2), (2, 3), (3, 4)]


def test_quoting_does_not_change_the_hash_of_a_row():
    quoted = b'"reference","amount","currency"\r\n"A-1","5.00","EUR"\r\n'
    assert facts_of(quoted).source_hash == facts_of(HEADER + b"A-1,5.00,EUR\n").source_hash


def test_the_order_of_columns_does_not_change_the_hash_of_a_row_but_a_cell_does():
    turned = b"currency,reference,amount\nEUR,A-1,5.00\n"
    assert facts_of(turned).source_hash == facts_of(HEADER + b"A-1,5.00,EUR\n").source_hash
    assert facts_of(turned).source_hash != facts_of(HEADER + b"A-1,5.01,EUR\n").source_hash


def test_lines_are_counted_as_an_editor_counts_them_across_quoted_newlines():
    content = HEADER + b'"A\n1",5.00,EUR\n"A-2","5.00",EUR\n\nA-3,bad,EUR\n'
    assert errors_of(content)[0][0] == 2
    assert errors_of(content)[1][0] == 6
    assert references_of(content) == ["A-2"]


def test_a_quoted_cell_keeps_its_newlines_quotes_and_delimiters():
    content = b'reference,amount,currency,note\nA,5.00,EUR,"one\r\n""two"", three"\n'
    assert facts_of(content).details["note"] == 'one\n"two", three'


def test_a_preamble_before_the_header_is_passed_over_and_told():
    content = b"sep=,\nDispute report\n\nMade on,2026-05-01\n" + HEADER + b"A-1,5.00,EUR\n"
    parsed = opened(content)
    assert [(number, line) for number, line, _ in parsed] == [(1, 6)]
    assert "Header: line 5." in parsed.notices[-1]


def test_a_header_after_the_twentieth_line_is_not_looked_for():
    assert opened(b"x\n" * 20 + HEADER).error_outcome is Outcome.NEEDS_MAPPING


def test_a_header_may_hold_a_quoted_newline():
    content = b'reference,amount,currency,"long\nname"\nA-1,5.00,EUR,x\n'
    parsed = opened(content)
    assert [line for _, line, _ in parsed] == [3]
    assert facts_of(content).details == {"long\nname": "x"}


def test_a_megabyte_of_line_ends_is_passed_over_in_one_go():
    content = HEADER + b"\r" * 1_000_000 + b"\nA-1,5.00,EUR\n"
    ((_, line, facts),) = opened(content)
    assert (line, facts.reference) == (1_000_001, "A-1")


def test_a_header_of_a_million_columns_is_refused():
    assert "at most 1000 columns" in opened(b"," * 900_000 + b"x\n").error


def test_repeated_columns_are_refused_by_name():
    parsed = opened(b"reference,amount,currency,note,note\nA,5.00,EUR,x,y\n")
    assert parsed.error == "the header repeats 'note'"
    assert parsed.error_outcome is Outcome.REFUSE
    assert list(parsed) == []


@pytest.mark.parametrize(
    ("row", "message"),
    [(b"A-2,5.00\n", "2 cells"), (b"A-2,5.00,EUR,x\n", "4 cells"), (b"A-2\n", "1 cells")],
)
def test_too_few_or_too_many_cells_are_an_error_of_that_row(row, message):
    content = HEADER + b"A-1,5.00,EUR\n" + row + b"A-3,5.00,EUR\n"
    ((line, _, found),) = errors_of(content)
    assert line == 3
    assert message in found
    assert references_of(content) == ["A-1", "A-3"]


def test_empty_cells_and_columns_at_the_end_are_no_error():
    content = b"reference,amount,currency,,\nA-1,5.00,EUR,,\n,,,,\nA-2,5.00,EUR,,\n"
    assert references_of(content) == ["A-1", "A-2"]


def test_a_nul_is_an_error_that_names_line_and_column():
    content = HEADER + b"A-1,5.00,EUR\nA\x00B,5.00,EUR\nA-3,5.00,EUR\n"
    assert errors_of(content) == [(3, "reference", "contains a NUL character")]
    assert references_of(content) == ["A-1", "A-3"]


def test_a_large_cell_is_an_error_of_its_row():
    content = b"reference,amount,currency,note\nA-1,5.00,EUR," + b"x" * 65537 + b"\nA-2,5.00,EUR,\n"
    assert errors_of(content) == [(2, "note", "the cell is larger than 65536 bytes")]
    assert references_of(content) == ["A-2"]


def test_the_size_of_a_cell_is_measured_in_bytes():
    fits, too_large = "é" * 32768, "é" * 32769
    header = b"reference,amount,currency,note\n"
    assert errors_of(header + f"A-1,5.00,EUR,{fits}\n".encode()) == []
    assert len(errors_of(header + f"A-1,5.00,EUR,{too_large}\n".encode())) == 1


def test_a_record_of_many_megabytes_is_an_error_without_being_held():
    with tempfile.TemporaryFile() as file:
        file.write(b"reference,amount,currency,note\nA-1,5.00,EUR,")
        for _ in range(64):
            file.write(b"x" * 1024 * 1024)
        file.write(b"\nA-2,5.00,EUR,\n")
        tracemalloc.start()
        try:
            results = list(open_records(file, name="large.csv", now=NOW))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [line for _, line, _ in results] == [2, 3]
    assert "larger than" in results[0][2].message
    assert results[1][2].reference == "A-2"
    assert peak_bytes < 24 * 1024 * 1024


def test_a_quote_that_is_never_closed_costs_its_own_row_only():
    content = HEADER + b'A-1,5.00,EUR\n"A-2,5.00,EUR\nA-3,5.00,EUR\nA-4,5.00,EUR\n'
    assert errors_of(content) == [(3, "", "a quote opened here is never closed")]
    assert references_of(content) == ["A-1", "A-3", "A-4"]


def test_a_quote_closed_by_a_later_row_costs_its_own_row_only():
    content = HEADER + b'"A-1,5.00,EUR\n"A-2","5.00","EUR"\nA-3,5.00,EUR\n'
    assert errors_of(content) == [(2, "", "a closing quote is followed by more text")]
    assert references_of(content) == ["A-2", "A-3"]


def test_an_open_quote_before_megabytes_of_rows_costs_its_own_row_only():
    rows = b"".join(b"B-%d,5.00,EUR\n" % number for number in range(120_000))
    content = HEADER + b'"A-1,5.00,EUR\n' + rows
    ((line, _, message),) = errors_of(content)
    assert line == 2
    assert "larger than" in message
    assert len(references_of(content)) == 120_000


def test_a_quote_inside_an_unquoted_cell_is_a_letter_like_others():
    content = b'reference,amount,currency,note\nA-1,5.00,EUR,6" pipe\n'
    assert facts_of(content).details["note"] == '6" pipe'


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-32-le", b"\xff\xfe\x00\x00"),
        ("iso-8859-1", b""),
    ],
)
def test_the_encoding_is_found(encoding, mark):
    text = "reference,amount,currency,reason\nÄ-1,5.00,EUR,café\n"
    facts = facts_of(mark + text.encode(encoding))
    assert (facts.reference, facts.reason) == ("Ä-1", "café")


def test_a_file_read_as_latin_1_says_so():
    assert any("ISO-8859-1" in notice for notice in opened(HEADER + b"\xe9,5.00,EUR\n").notices)
    assert not any("ISO-8859-1" in notice for notice in opened(HEADER).notices)


def test_a_character_across_two_chunks_is_not_broken():
    rows = "".join(f"A-{number},5.00,EUR,é€😀\n" for number in range(40_000))
    results = judged(b"reference,amount,currency,note\n" + rows.encode())
    assert len(results) == 40_000
    assert {result.details["note"] for result in results} == {"é€😀"}


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04rest", b"\x1f\x8brest", b"%PDF-1.7", b"<disputes/>", b"\n\n\n", b"\xff\xfea"],
)
def test_what_is_no_table_is_refused_with_a_reason(content):
    parsed = opened(content, name="upload")
    assert parsed.error
    assert list(parsed) == []


@given(st.binary(max_size=400), st.sampled_from(["a.csv", "a.json", "a.jsonl", "a"]))
def test_no_bytes_make_anything_but_records_row_errors_or_one_refusal(content, name):
    for whole in (content, HEADER + content, b'{"data": [' + content):
        list(opened(whole, name=name))


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=6))
def test_any_cells_come_back_as_they_were_written(rows):
    def quoted(cell):
        return '"' + cell.replace('"', '""') + '"'

    body = "".join(f"R-{at},1.00,EUR,{quoted(a)},{quoted(b)}\n" for at, (a, b) in enumerate(rows))
    results = judged(b"reference,amount,currency,a,b\n" + body.encode())
    assert [(r.payload["a"], r.payload["b"]) for r in results] == rows


def test_a_file_can_be_read_twice():
    parsed = opened(HEADER + b"A-1,5.00,EUR\nA-1,5.00,EUR\n")
    assert list(parsed) == list(parsed)
    assert [result.outcome for _, _, result in parsed] == [Outcome.CREATE, Outcome.DUPLICATE]


@pytest.mark.parametrize("header", ["reference,Reference,amount", "reference,reference ,amount"])
def test_names_that_differ_only_in_case_or_blanks_are_repeats(header):
    parsed = open_records(io.BytesIO(f"{header},currency\n1,2,3,EUR\n".encode()), name="x.csv")
    assert "the header repeats" in (parsed.error or "")
