"""What the table's cells do not show: restored numbers, lapsed holds, four eyes, times, facts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from disputes.exceptions import InvalidInput, NotPermitted, TransitionNotAllowed
from disputes.models import AuditEntry, Notification
from disputes.transitions.deadlines import promote
from disputes.transitions.facts import SourceFacts, apply_facts
from disputes.transitions.moving import escalate, pause, resume, send_back
from disputes.transitions.opening import open_dispute
from disputes.transitions.reasons import optional_reason
from disputes.transitions.resolving import approve, reopen, resolve, return_proposal
from disputes.transitions.reviewing import acknowledge, assign, extend_hold, release
from tests.disputes.stages import (
    ACT,
    APPROVAL_END,
    DUE,
    PAUSE_END,
    RIGHTS,
    dispute_that_is,
    everything,
    messages,
    scene,
)
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, again, default_ladder, new, opened, person

pytestmark = pytest.mark.django_db
FAR = NOON + 2400 * HOUR


@pytest.fixture
def people():
    return scene()


def facts(digit="b", **more) -> SourceFacts:
    return SourceFacts(**{"source_hash": digit * 64, "state": "actionable"} | more)


def hear(dispute, *, now=ACT, **more) -> bool:
    return apply_facts(dispute.pk, facts(**more), actor=SYSTEM, now=now)[1]


# Deadlines kept aside


def test_a_lapsed_hold_buys_nothing(people):
    """The deadline that passed under the hold counts at once, under its own number."""
    dispute = opened(tier="senior")
    acknowledge(dispute.pk, actor=people.sam, seen_version=1, now=DUE - MINUTE)
    late = DUE + 29 * MINUTE
    assert promote([dispute.pk], now=late) == {dispute.pk: "HOLD_EXPIRED"}
    assert (again(dispute).due_at, again(dispute).deadline_no) == (DUE, 1)
    assert promote([dispute.pk], now=late) == {dispute.pk: "PROMOTED_TO_COMPLIANCE"}
    entry = AuditEntry.objects.get(dispute=dispute, version=4)
    assert (entry.from_due_at, entry.deadline_no) == (DUE, 1)


def test_extending_and_assigning_keep_the_same_deadline_aside(people):
    dispute = dispute_that_is("acknowledged", people)
    extend_hold(dispute.pk, actor=people.sam, now=ACT)
    assign(dispute.pk, to=people.sue, actor=people.boss, now=ACT)
    after = release(dispute.pk, actor=people.sue, now=ACT)
    assert (after.due_at, after.deadline_no, after.deadlines_issued) == (DUE, 1, 4)


def test_an_exhausted_dispute_stays_exhausted_through_hold_release_and_pause(people):
    dispute = dispute_that_is("exhausted", people)
    later = DUE + HOUR
    acknowledge(dispute.pk, actor=people.cho, seen_version=2, now=later)
    after = release(dispute.pk, actor=people.cho, now=later)
    assert (after.status, after.due_at, after.exhausted_at) == ("open", None, DUE)
    pause(dispute.pk, actor=people.cho, reason="r", until=later + HOUR, now=later)
    assert promote([dispute.pk], now=later + HOUR) == {dispute.pk: "RESUMED"}
    after = again(dispute)
    assert (after.status, after.due_at, after.exhausted_at) == ("open", None, DUE)
    acknowledge(dispute.pk, actor=people.cho, seen_version=after.version, now=later + HOUR)
    assert promote([dispute.pk], now=later + 2 * HOUR) == {dispute.pk: "HOLD_EXPIRED"}
    assert again(dispute).exhausted_at == DUE


def test_time_used_before_a_pause_is_not_given_back(people):
    dispute = opened(tier="senior")
    for turn in range(1, 4):
        start = NOON + turn * 24 * HOUR
        now = NOON + 30 * MINUTE if turn == 1 else again(dispute).running_since + 30 * MINUTE
        pause(dispute.pk, actor=people.sam, reason="r", now=now)
        assert again(dispute).consumed == turn * 30 * MINUTE
        resume(dispute.pk, actor=people.sam, reason="r", now=start)
        assert again(dispute).due_at == start + 2 * HOUR - turn * 30 * MINUTE


def test_a_pause_after_the_deadline_is_due_the_moment_it_ends(people):
    dispute = opened(tier="senior")
    pause(dispute.pk, actor=people.sam, reason="r", now=DUE + MINUTE)
    after = resume(dispute.pk, actor=people.sam, reason="r", now=DUE + HOUR)
    assert after.due_at == DUE + HOUR


def test_what_remained_after_a_pause_still_ends_before_the_external_deadline(people):
    dispute = opened(tier="senior", external_due_at=NOON + 30 * HOUR)
    pause(dispute.pk, actor=people.sam, reason="r", now=NOON + MINUTE)
    after = resume(dispute.pk, actor=people.sam, reason="r", now=NOON + 27.5 * HOUR)
    assert after.due_at == NOON + 29 * HOUR


# Fresh deadlines


@pytest.mark.parametrize(
    ("state", "act"),
    [
        ("open", lambda d, p: escalate(d, actor=p.boss, reason="r", now=ACT)),
        ("open", lambda d, p: send_back(d, actor=p.boss, reason="r", now=ACT)),
        ("resolved", lambda d, p: reopen(d, actor=p.boss, reason="r", now=ACT)),
        ("proposed", lambda d, p: return_proposal(d, actor=p.boss, reason="r", now=ACT)),
    ],
    ids=["escalate", "send back", "reopen", "return"],
)
@pytest.mark.parametrize(
    ("external", "flag"),
    [(ACT + 30 * MINUTE, "late_on_arrival"), (ACT - HOUR, "external_deadline_past")],
)
def test_a_fresh_deadline_is_never_already_past(state, act, external, flag, people):
    dispute = dispute_that_is(state, people)
    hear(dispute, external_due_at=external, now=NOON + 45 * MINUTE)
    act(dispute.pk, people)
    after = again(dispute)
    # min(span, 4 h) with a span of two hours
    assert after.due_at == ACT + 2 * HOUR
    assert flag in after.flags


def test_the_fresh_deadline_of_a_long_span_is_four_hours(people):
    default_ladder(slug="slow", sla=timedelta(days=3))
    dispute = opened(ladder="slow", external_due_at=NOON - HOUR)
    assert dispute.due_at == NOON + 4 * HOUR
    after = escalate(dispute.pk, actor=people.boss, reason="r", now=ACT)
    assert after.due_at == ACT + 4 * HOUR


# Proposals and four eyes


@pytest.mark.parametrize(
    "act",
    [
        lambda d, who: approve(d, actor=who, now=NOON),
        lambda d, who: return_proposal(d, actor=who, reason="r", now=NOON),
    ],
    ids=["approve", "return"],
)
def test_nobody_decides_on_their_own_proposal_not_even_a_superuser(act, people):
    dispute = opened(tier="senior")
    root = person("root", "senior", rights=RIGHTS)
    root.is_superuser = True
    root.save()
    acknowledge(dispute.pk, actor=root, seen_version=1, now=NOON)
    resolve(dispute.pk, outcome="written_off", actor=root, reason="r", now=NOON)
    before = everything(dispute)
    with pytest.raises(NotPermitted, match="another person"):
        act(dispute.pk, root)
    assert everything(dispute) == before


def test_a_late_approval_is_refused_and_the_proposal_is_kept_as_a_draft(people):
    dispute = dispute_that_is("proposed", people)
    promote([dispute.pk], now=APPROVAL_END)
    with pytest.raises(TransitionNotAllowed, match="nothing waits for approval"):
        approve(dispute.pk, actor=people.boss, now=APPROVAL_END)
    after = again(dispute)
    assert (after.proposed_outcome, after.proposed_by) == ("written_off", people.sam)


def test_an_approval_before_the_clock_has_ended_it_still_counts(people):
    """The row's status rules until the promotion commits."""
    dispute = dispute_that_is("proposed", people)
    after = approve(dispute.pk, actor=people.boss, now=APPROVAL_END + MINUTE)
    assert (after.status, after.outcome) == ("resolved", "written_off")
    assert promote([dispute.pk], now=APPROVAL_END + HOUR) == {dispute.pk: "NO_LONGER_OPEN"}


def test_a_returned_proposal_is_kept_as_a_draft_and_gone_once_resolved(people):
    dispute = dispute_that_is("proposed", people)
    after = return_proposal(dispute.pk, actor=people.boss, reason="no", now=ACT)
    assert (after.proposed_outcome, after.proposed_by) == ("written_off", people.sam)
    acknowledge(dispute.pk, actor=people.sam, seen_version=after.version, now=ACT)
    after = resolve(dispute.pk, outcome="defended", actor=people.sam, reason="r", now=ACT)
    assert (after.outcome, after.proposed_outcome, after.proposed_by) == ("defended", "", None)


# Repeats


@pytest.mark.parametrize(
    ("state", "act"),
    [
        ("acknowledged", lambda d, p: acknowledge(d.pk, actor=p.sam, seen_version=1, now=ACT)),
        (
            "resolved",
            lambda d, p: resolve(d.pk, outcome="defended", actor=p.sam, reason="r", now=ACT),
        ),
        (
            "proposed",
            lambda d, p: resolve(d.pk, outcome="written_off", actor=p.sam, reason="r", now=ACT),
        ),
        ("acknowledged", lambda d, p: assign(d.pk, to=p.sam, actor=p.boss, now=ACT)),
    ],
    ids=["acknowledge", "resolve", "propose", "assign"],
)
def test_the_same_again_by_the_same_person_writes_nothing(state, act, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    assert act(dispute, people).version == dispute.version
    assert everything(dispute) == before


def test_another_outcome_by_the_same_person_is_refused(people):
    dispute = dispute_that_is("resolved", people)
    with pytest.raises(TransitionNotAllowed, match="resolved as defended"):
        resolve(dispute.pk, outcome="accepted", actor=people.sam, reason="r", now=ACT)


def test_an_approval_repeated_by_the_same_person_writes_nothing(people):
    dispute = dispute_that_is("proposed", people)
    approve(dispute.pk, actor=people.boss, now=ACT)
    before = everything(dispute)
    assert approve(dispute.pk, actor=people.boss, now=ACT).status == "resolved"
    assert everything(dispute) == before


# Who is told


def test_people_who_left_are_never_told(people):
    dispute = dispute_that_is("acknowledged", people)
    for who in (people.sam, people.cho):
        who.is_active = False
        who.save()
    escalate(dispute.pk, actor=people.boss, reason="r", now=ACT)
    assert [m for m in messages(dispute) if m[0] == 3] == [(3, "arrived", "sue", "pending")]


def test_f74_a_tier_without_active_people_is_noted_by_the_clock(people):
    dispute = opened(tier="standard")
    for who in (people.sam, people.sue):
        who.is_active = False
        who.save()
    promote([dispute.pk], now=DUE)
    entry = AuditEntry.objects.get(dispute=dispute, version=2)
    assert (entry.match_decision, entry.reason) == ("PROMOTED_TO_SENIOR", "NO_REVIEWERS")
    assert not Notification.objects.filter(version=2).exists()


# Reasons


@pytest.mark.parametrize("reason", ["a\x00b", "\ud800", "x" * 4001])
def test_a_reason_that_cannot_be_kept_is_refused_by_name(reason, people):
    dispute = dispute_that_is("acknowledged", people)
    before = everything(dispute)
    for act in (
        lambda: release(dispute.pk, actor=people.sam, reason=reason, now=ACT),
        lambda: assign(dispute.pk, to=people.sue, actor=people.boss, reason=reason, now=ACT),
        lambda: pause(dispute.pk, actor=people.sam, reason=reason, now=ACT),
    ):
        with pytest.raises(InvalidInput) as refusal:
            act()
        assert refusal.value.facts["field"] == "reason"
    assert everything(dispute) == before


@pytest.mark.parametrize(
    "until", [ACT, ACT - HOUR, datetime(2026, 6, 27), datetime(9999, 1, 1, tzinfo=UTC)]
)
def test_a_pause_ends_ahead_within_reason_and_in_a_time_zone(until, people):
    dispute = dispute_that_is("open", people)
    with pytest.raises(InvalidInput) as refusal:
        pause(dispute.pk, actor=people.sam, reason="r", until=until, now=ACT)
    assert refusal.value.facts["field"] == "until"


# What the source says


def test_a_repeat_a_no_change_and_an_older_event_write_nothing(people):
    dispute = dispute_that_is("open", people)
    assert hear(dispute, amount=Decimal("5"), source_at=NOON)
    before = everything(dispute)
    assert not hear(dispute, amount=Decimal("5"), source_at=NOON), "a repeat"
    assert not hear(dispute, digit="c", amount=Decimal("5.0000")), "no change"
    assert not hear(dispute, digit="d", amount=Decimal("9"), source_at=NOON - HOUR), "older"
    assert everything(dispute) == before


def test_a_repeated_event_does_not_undo_what_a_person_did_since(people):
    dispute = dispute_that_is("open", people)
    assert hear(dispute, state="waiting")
    resume(dispute.pk, actor=people.sam, reason="we know better", now=ACT)
    assert not hear(dispute, state="waiting")
    assert again(dispute).status == "open"


def test_waiting_for_others_stops_the_clock_until_the_source_says_otherwise(people):
    dispute = dispute_that_is("open", people)
    hear(dispute, state="waiting")
    after = again(dispute)
    assert (after.status, after.paused_by, after.due_at) == ("paused", "source", None)
    assert promote([dispute.pk], now=FAR) == {dispute.pk: "NO_LONGER_OPEN"}
    hear(dispute, digit="c", now=FAR)
    after = again(dispute)
    assert (after.status, after.due_at, after.deadline_no) == ("open", FAR + HOUR, 2)


def test_actionable_does_not_end_a_pause_that_a_person_made(people):
    dispute = dispute_that_is("paused", people)
    assert not hear(dispute)
    assert again(dispute).status == "paused"


def test_waiting_for_others_takes_the_end_from_a_persons_pause(people):
    dispute = dispute_that_is("paused", people)
    hear(dispute, state="waiting")
    assert promote([dispute.pk], now=PAUSE_END) == {dispute.pk: "NO_LONGER_OPEN"}


def test_a_new_external_deadline_moves_the_deadline_under_a_new_number(people):
    dispute = opened(tier="senior", external_due_at=NOON + 90 * MINUTE)
    assert dispute.due_at == NOON + 30 * MINUTE
    hear(dispute, external_due_at=FAR, now=NOON + MINUTE)
    after = again(dispute)
    assert (after.due_at, after.deadline_no, after.due_kind) == (DUE, 2, "escalate")


@pytest.mark.parametrize("state", ["acknowledged", "paused"])
def test_it_moves_the_deadline_kept_aside_and_leaves_the_hold_or_pause(state, people):
    dispute = dispute_that_is(state, people)
    hear(dispute, external_due_at=NOON + 165 * MINUTE, now=NOON + 45 * MINUTE)
    after = again(dispute)
    assert after.restore_due_at == NOON + 105 * MINUTE
    assert (after.restore_deadline_no, after.deadlines_issued) == (3, 3)
    assert (after.due_at, after.deadline_no) == (dispute.due_at, 2)
    hear(dispute, digit="c", external_due_at=FAR, now=NOON + 50 * MINUTE)
    assert again(dispute).restore_due_at == DUE, "the span that was left, no more and no less"


def test_it_gives_no_time_back_once_the_span_itself_is_over(people):
    dispute = dispute_that_is("open", people)
    hear(dispute, external_due_at=FAR, now=DUE + MINUTE)
    assert (again(dispute).due_at, again(dispute).deadline_no) == (DUE, 1)


def test_it_gives_no_time_back_to_a_long_pause(people):
    dispute = opened(tier="senior")
    pause(dispute.pk, actor=people.sam, reason="r", now=NOON + 90 * MINUTE)
    hear(dispute, external_due_at=FAR, now=NOON + 100 * HOUR)
    after = resume(dispute.pk, actor=people.sam, reason="r", now=NOON + 100 * HOUR)
    assert after.due_at == NOON + 100 * HOUR + 30 * MINUTE


def test_a_given_deadline_stays_as_it_was_given(people):
    dispute = opened(tier="senior", due_at=NOON + 9 * HOUR)
    hear(dispute, external_due_at=NOON + 5 * HOUR)
    assert (again(dispute).due_at, again(dispute).deadline_no) == (NOON + 9 * HOUR, 1)


def test_actionable_again_with_a_nearer_external_deadline_ends_before_that(people):
    dispute = dispute_that_is("open", people)
    hear(dispute, state="waiting", now=NOON + MINUTE)
    hear(dispute, digit="c", external_due_at=ACT + 2 * HOUR, flags=("amended",))
    after = again(dispute)
    assert after.due_at == ACT + HOUR
    assert after.flags == ["amended"]


def test_flags_of_the_source_survive_a_recomputed_deadline(people):
    dispute = dispute_that_is("open", people)
    hear(dispute, external_due_at=ACT + 30 * MINUTE, flags=("amended",))
    assert again(dispute).flags == ["amended", "late_on_arrival"]


def test_the_time_used_before_a_source_paused_it_at_intake_is_counted(people):
    dispute = opened(status="paused", opened_at=NOON - 30 * MINUTE)
    assert dispute.consumed == 30 * MINUTE
    hear(dispute, now=NOON + 24 * HOUR)
    assert again(dispute).due_at == NOON + 24 * HOUR + 90 * MINUTE
    hear(dispute, digit="c", external_due_at=FAR, now=NOON + 24 * HOUR + MINUTE)
    assert again(dispute).due_at == NOON + 24 * HOUR + 90 * MINUTE


def test_a_dispute_is_named_once_for_its_whole_life(people):
    first = opened(reference="same")
    second = open_dispute(
        replace(new(reference="same"), amount=Decimal("1")), actor=SYSTEM, now=ACT
    )
    assert (second.id, second.created) == (first.pk, False)
    assert again(first).amount == Decimal("129")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("currency", "EURO"),
        ("source_state", "x" * 81),
        ("stage", "a\x00"),
        ("reference", " "),
        ("amount", Decimal("NaN")),
        ("amount", Decimal("-0.01")),
        ("amount", Decimal(10) ** 20),
        ("band", "urgent"),
        ("due_at", datetime(2026, 6, 26)),
        ("due_at", datetime(9999, 1, 1, tzinfo=UTC)),
        ("external_due_at", datetime(1, 1, 2, tzinfo=UTC)),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused_by_name(field, value, people):
    with pytest.raises(InvalidInput) as refusal:
        open_dispute(new(**{field: value}), actor=SYSTEM, now=NOON)
    assert refusal.value.facts["field"] == field
    assert not AuditEntry.objects.exists()


def test_lines_of_a_reason_end_as_text_does_whatever_the_browser_sends():
    assert optional_reason("first\r\nsecond\r\n") == "first\nsecond"
