"""A crew of real processes for each test that asks for one, and a clock that a test may move."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.database_clock import DatabaseClock, movable_clock
from tests.faults.harness import KNOBS, Crew, crew_in


@pytest.fixture
def crew(transactional_db: None, settings, tmp_path: Path) -> Iterator[Crew]:
    """With the same settings as the test.

    Ends before the tables are emptied, so that nobody writes into the next test.
    """
    settings.ESCALATION = dict(KNOBS)
    with crew_in(tmp_path) as members:
        yield members


@pytest.fixture
def clock(transactional_db: None) -> Iterator[DatabaseClock]:
    with movable_clock() as moved:
        yield moved


@pytest.fixture
def crews_clock(crew: Crew) -> Iterator[DatabaseClock]:
    """A movable clock for a crew, which ends before the clock does."""
    with movable_clock() as moved:
        yield moved
        crew.end()
