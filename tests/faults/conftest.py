"""A crew of real processes for each test that asks for one, with the same settings as the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import KNOBS, Crew, crew_in


@pytest.fixture
def crew(transactional_db: None, settings, tmp_path: Path) -> Iterator[Crew]:
    """Ends before the tables are emptied, so that nobody writes into the next test."""
    settings.ESCALATION = dict(KNOBS)
    with crew_in(tmp_path) as members:
        yield members
