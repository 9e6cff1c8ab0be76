"""The rule of the seen version: what may lie between a page and its acknowledgement."""

from uuid import uuid4

import pytest

from disputes.exceptions import (
    AlreadyTaken,
    DisputeNotFound,
    InvalidInput,
    NotPermitted,
    StaleDispute,
    TransitionNotAllowed,
)
from disputes.transitions.deadlines import promote
from disputes.transitions.facts import SourceFacts, apply_facts
from disputes.transitions.moving import change_band, escalate, pause
from disputes.transitions.reviewing import acknowledge, assign, release
from tests.disputes.stages import ACT, DUE, dispute_that_is, everything, scene
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, again, opened

pytestmark = pytest.mark.django_db


@pytest.fixture
def people():
    return scene()


@pytest.mark.parametrize("version", [0, -1, 2, 10**12])
def test_a_version_that_was_never_shown_is_bad_input(version, people):
    dispute = opened(tier="senior")
    with pytest.raises(InvalidInput) as refusal:
        acknowledge(dispute.pk, actor=people.sam, seen_version=version, now=ACT)
    assert refusal.value.facts["field"] == "seen_version"
    assert again(dispute).version == 1


def test_a_dispute_that_is_not_there(people):
    with pytest.raises(DisputeNotFound):
        acknowledge(uuid4(), actor=people.sam, seen_version=1, now=ACT)


def test_what_the_clock_did_since_is_neutral(people):
    dispute = dispute_that_is("acknowledged", people)
    promote([dispute.pk], now=dispute.due_at)
    after = acknowledge(dispute.pk, actor=people.sam, seen_version=2, now=dispute.due_at)
    assert (after.status, after.version) == ("acknowledged", 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda d, p: change_band(d, band="high", actor=p.sue, reason="r", now=ACT),
        lambda d, p: apply_facts(
            d,
            SourceFacts(source_hash="b" * 64, state="actionable", stage="x"),
            actor=SYSTEM,
            now=ACT,
        ),
    ],
    ids=["another person", "the source"],
)
def test_what_others_changed_since_must_be_seen_first(change, people):
    dispute = opened(tier="senior")
    change(dispute.pk, people)
    before = everything(dispute)
    with pytest.raises(StaleDispute, match="changed it since you saw it"):
        acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=ACT)
    assert everything(dispute) == before
    assert acknowledge(dispute.pk, actor=people.sam, seen_version=2, now=ACT).holder == people.sam


def test_what_the_person_changed_since_is_known_to_them(people):
    dispute = opened(tier="senior")
    change_band(dispute.pk, band="high", actor=people.sam, reason="r", now=ACT)
    assert acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=ACT).version == 3


def test_an_old_page_is_no_pass_into_the_queue_one_moved_it_to_long_ago(people):
    """Sam escalated it to compliance himself; an hour later his old page gives him nothing."""
    dispute = opened(tier="senior")
    escalate(dispute.pk, actor=people.sam, reason="r", now=ACT)
    with pytest.raises(NotPermitted, match="“Compliance”"):
        acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=ACT + HOUR)


def test_the_grace_counts_from_the_entry_that_moved_it_to_the_second(people):
    dispute = opened(tier="senior")
    promote([dispute.pk], now=DUE)
    late = DUE + MINUTE + MINUTE / 60_000_000
    with pytest.raises(NotPermitted):
        acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=late)
    assert acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=DUE + MINUTE).version == 3


def test_the_status_is_judged_before_the_seen_version_and_that_before_the_right(people):
    dispute = dispute_that_is("acknowledged", people)
    with pytest.raises(AlreadyTaken):
        acknowledge(dispute.pk, actor=people.eve, seen_version=99, now=ACT)
    other = opened(tier="senior")
    with pytest.raises(InvalidInput):
        acknowledge(other.pk, actor=people.eve, seen_version=99, now=ACT)


def test_who_resolved_it_is_named_even_after_later_facts_of_the_source(people):
    dispute = dispute_that_is("resolved", people)
    facts = SourceFacts(source_hash="b" * 64, state="closed", stage="arbitration")
    apply_facts(dispute.pk, facts, actor=SYSTEM, now=ACT)
    with pytest.raises(TransitionNotAllowed, match="by sam at 2026-06-26 12:40"):
        acknowledge(dispute.pk, actor=people.sue, seen_version=4, now=ACT)


def test_the_loser_hears_who_when_and_the_version(people):
    dispute = dispute_that_is("acknowledged", people)
    with pytest.raises(AlreadyTaken) as refusal:
        acknowledge(dispute.pk, actor=people.sue, seen_version=1, now=ACT)
    assert refusal.value.facts == {
        "holder": "sam",
        "since": NOON + 40 * MINUTE,
        "version": 2,
    }


# Who may act on what somebody holds


@pytest.mark.parametrize(
    "act",
    [
        lambda d, who: release(d, actor=who, now=ACT),
        lambda d, who: pause(d, actor=who, reason="r", now=ACT),
        lambda d, who: escalate(d, actor=who, reason="r", now=ACT),
    ],
    ids=["release", "pause", "escalate"],
)
def test_a_colleague_of_the_same_queue_may_not_act_on_what_sam_holds(act, people):
    dispute = dispute_that_is("acknowledged", people)
    before = everything(dispute)
    with pytest.raises(NotPermitted, match="override_hold"):
        act(dispute.pk, people.sue)
    assert everything(dispute) == before


def test_it_is_assigned_only_to_people_who_review_its_queue(people):
    dispute = opened(tier="senior")
    for who in (people.ada, people.eve):
        with pytest.raises(InvalidInput, match="does not review"):
            assign(dispute.pk, to=who, actor=people.boss, now=ACT)
    people.sue.is_active = False
    with pytest.raises(InvalidInput):
        assign(dispute.pk, to=people.sue, actor=people.boss, now=ACT)
    assert again(dispute).version == 1
