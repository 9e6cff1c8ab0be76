"""The timeline says what Postgres says after the very first change of any kind, not the second."""

import pytest

from disputes.models import Dispute
from disputes.rules import microseconds
from escalation import timeline_survey as survey
from tests.disputes.stages import dispute_that_is, scene
from tests.disputes.test_transitions_table import ACTIONS, CELLS, instant_of
from tests.situations import HOUR, NOON, again, default_ladder, opened

pytestmark = pytest.mark.django_db(transaction=True)


def on_the_timeline(dispute: Dispute) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Its score and the version of its payload; empty where it is not there."""
    id_ = str(dispute.pk)
    return survey.scores([id_]), survey.payload_versions([id_])


def expected(dispute: Dispute, due: object, version: int) -> tuple[dict, dict]:
    id_ = str(dispute.pk)
    return ({id_: microseconds(due)}, {id_: version}) if due else ({}, {id_: None})


@pytest.mark.parametrize(("state", "action"), CELLS)
def test_bug_36_deadline_and_score_are_right_after_the_first_action(state: str, action: str):
    """The right deadline is the table's, written down beforehand."""
    people = scene()
    default_ladder(slug="other")
    dispute = dispute_that_is(state, people)
    instant = dispute.due_at if action == "deadline" else instant_of(state)

    ACTIONS[action](dispute, people, instant)

    due = CELLS[state, action].due
    assert again(dispute).due_at == due
    assert on_the_timeline(dispute) == expected(dispute, due, dispute.version + 1)


@pytest.mark.parametrize(
    ("facts", "due"),
    [
        ({}, NOON + 2 * HOUR),
        ({"due_at": NOON + 9 * HOUR}, NOON + 9 * HOUR),
        ({"opened_at": NOON - HOUR}, NOON + HOUR),
        ({"status": "paused"}, None),
        ({"status": "resolved"}, None),
    ],
    ids=["span", "given", "opened before", "paused", "closed"],
)
def test_bug_36_deadline_and_score_are_right_from_the_intake_on(facts, due):
    default_ladder()
    dispute = opened(**facts)
    assert dispute.due_at == due
    assert on_the_timeline(dispute) == expected(dispute, due, 1)
