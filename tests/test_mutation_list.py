"""The list of mutants follows the code: every text still stands once, every test still exists."""

import ast
from functools import cache

import pytest

from config.stack import BASE_DIR
from tests.mutants import MUTANTS, Mutant
from tests.mutation import mutated


@cache
def text_of(file: str) -> str:
    return (BASE_DIR / file).read_text(encoding="utf-8")


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse(text_of(file))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_a_mutant_stands_once_and_its_tests_exist(mutant: Mutant) -> None:
    changed = mutated(text_of(mutant.file), mutant)
    assert changed != text_of(mutant.file)
    ast.parse(changed)
    assert bool(mutant.tests) != bool(mutant.equivalent), "either tests or the reason why none"
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or name in names_in(file)
        assert names_in(file)


def test_no_two_mutants_have_the_same_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
