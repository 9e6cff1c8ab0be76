"""Owns the comparison with the shared input files; its promise: every expected word is produced.

The files lie beside the project, not in it: some may not be redistributed.
"""

import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from disputes.intake.facts import Facts
from disputes.intake.formats import expected_words, open_records
from tests.intake.samples import NOW

INPUTS = Path(__file__).resolve().parents[3] / "shared" / "inputs"
EXPECTED = INPUTS / "EXPECTED.json"
COVERED = ("stripe/", "files/cfpb", "files/generic")
NOT_REPORTED = {"file", "record", "source_minor", "source_exponent"}

pytestmark = pytest.mark.skipif(
    not EXPECTED.exists(), reason="the shared input files are not beside this checkout"
)


def expected_records() -> list[dict[str, Any]]:
    if not EXPECTED.exists():
        return []
    records = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return [record for record in records if record["file"].startswith(COVERED)]


@cache
def words_of(name: str) -> dict[int, dict[str, Any]]:
    with (INPUTS / name).open("rb") as file:
        parsed = open_records(file, name=name, now=NOW)
        assert parsed.error is None
        return {number: expected_words(facts) for number, _, facts in parsed}


@pytest.mark.parametrize(
    "expected", expected_records(), ids=lambda record: f"{record['file']}:{record['record']}"
)
def test_a_shared_record_is_judged_as_expected(expected):
    words = words_of(expected["file"])[expected["record"]]
    for word, value in expected.items():
        if word in NOT_REPORTED:
            continue
        if word in ("amount", "fee") and value is not None:
            value = {name: value[name] for name in ("decimal", "currency")}
        assert words.get(word) == value, word


@pytest.mark.parametrize("name", sorted({record["file"] for record in expected_records()}))
def test_no_shared_file_gives_more_records_than_expected(name):
    numbers = {record["record"] for record in expected_records() if record["file"] == name}
    assert words_of(name).keys() == numbers


@cache
def expected_amounts() -> dict[tuple[str, int], str]:
    if not EXPECTED.exists():
        return {}
    return {
        (record["file"], record["record"]): record["amount"]["decimal"]
        for record in json.loads(EXPECTED.read_text(encoding="utf-8"))
        if record.get("amount")
    }


def test_no_file_of_any_sender_gives_a_dispute_with_another_amount_than_expected():
    """Most senders are not known here yet: better no dispute than one a hundred times too large."""
    judged = 0
    for (name, number), decimal in expected_amounts().items():
        with (INPUTS / name).open("rb") as file:
            records = {at: found for at, _, found in open_records(file, name=name, now=NOW)}
        if isinstance(found := records.get(number), Facts) and found.amount is not None:
            judged += 1
            assert found.amount == Decimal(decimal), name
    assert judged


@pytest.mark.skipif(
    not INPUTS.exists(), reason="the shared input files are not beside this checkout"
)
def test_every_shared_file_is_read_or_refused_without_a_crash():
    for path in sorted(INPUTS.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                list(open_records(file, name=path.name, now=NOW))
