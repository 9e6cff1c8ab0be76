"""docs/faults.md has every known fault, with a test that is there or the reason for having none."""

import ast
import re

import pytest

from config.stack import BASE_DIR

DOCUMENT = (BASE_DIR / "docs" / "faults.md").read_text()
ROW = re.compile(r"^\| (.+?) \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NUMBER = re.compile(r"^F(\d+) ")
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
ROWS = [row for row in ROW.findall(DOCUMENT) if row[0] != "Fault" and "---" not in row[0]]


def test_every_known_fault_has_its_row_once() -> None:
    numbers = [int(found[1]) for row in ROWS if (found := NUMBER.match(row[0]))]
    assert sorted(numbers) == sorted(KNOWN)


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_row_names_a_test_that_is_there_or_the_reason_for_none(row: tuple[str, str, str]) -> None:
    fault, expected, proof = row
    named = TEST_ID.findall(proof)
    assert named or expected.startswith(REASONS), f"{fault}: neither test nor reason"
    for path, name in named:
        tree = ast.parse((BASE_DIR / path).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{fault}: {path} has no {name}"
