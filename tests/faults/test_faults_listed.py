"""docs/faults.md and docs/reports.md have every known fault and every report from a neighbour.

Each with a test that is there and bears its number, or with the reason for having none.
"""

import ast
import re

import pytest

from config.stack import BASE_DIR

FAULTS = (BASE_DIR / "docs" / "faults.md").read_text()
REPORTS = (BASE_DIR / "docs" / "reports.md").read_text()
ROW = re.compile(r"^\| (.+?) \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NUMBER = re.compile(r"^(F|BUG-)(\d+) ")
REASONS = ("Does not apply", "Not provoked", "Open")
# Numbers that the collection of faults leaves out are left out here as well.
KNOWN = {
    *range(1, 15),
    *(20, 21, 22, 24, 25, 26, 27, 29, 30, 32, 33, 35, 36),
    *(40, *range(43, 50)),
    *range(50, 57),
    *(60, 61, 62, 63, 65, 66, 67, 69, 70, 71, 72, 74, 75),
    *(80, *range(82, 92), 94, 95, 96, 97, 99, 100),
}
REPORTED = {
    *(6, 7, 8, 9, 14, *range(16, 22), 23, 24, 26, 28, 29, *range(31, 37), 38),
    *(41, *range(46, 58), *range(59, 63)),
}


def rows_of(document: str) -> list[tuple[str, str, str]]:
    heads = ("Fault", "Report")
    return [row for row in ROW.findall(document) if row[0] not in heads and "---" not in row[0]]


ROWS = [*rows_of(FAULTS), *rows_of(REPORTS)]


@pytest.mark.parametrize(("document", "known"), [(FAULTS, KNOWN), (REPORTS, REPORTED)])
def test_every_known_number_has_its_row_once(document: str, known: set[int]) -> None:
    numbers = [int(found[2]) for row in rows_of(document) if (found := NUMBER.match(row[0]))]
    assert sorted(numbers) == sorted(known)


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_row_names_a_test_that_is_there_or_the_reason_for_none(row: tuple[str, str, str]) -> None:
    fault, expected, proof = row
    named = TEST_ID.findall(proof)
    assert named or expected.startswith(REASONS), f"{fault}: neither test nor reason"
    for path, name in named:
        tree = ast.parse((BASE_DIR / path).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{fault}: {path} has no {name}"
    if number := NUMBER.match(fault):
        tag = f"_{number[1].lower().replace('-', '_')}{number[2]}_"
        assert not named or any(tag in name for _, name in named), f"{fault}: no test bears {tag}"
