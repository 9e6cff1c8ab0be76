"""The transition table of the contract: every state and every action, cell by cell."""

from decimal import Decimal

import pytest

from disputes.audit import verify_dispute
from disputes.exceptions import AlreadyTaken, TransitionNotAllowed
from disputes.models import AuditEntry, Dispute, Note
from disputes.transitions.deadlines import promote
from disputes.transitions.facts import SourceFacts, apply_facts
from disputes.transitions.moving import (
    change_band,
    escalate,
    move_to_ladder,
    pause,
    resume,
    send_back,
)
from disputes.transitions.resolving import approve, reopen, resolve, return_proposal
from disputes.transitions.reviewing import acknowledge, assign, extend_hold, release
from tests.disputes.stages import (
    ACT,
    APPROVAL_END,
    DUE,
    HOLD_END,
    PAUSE_END,
    STATES,
    Cell,
    cell_of,
    columns,
    dispute_that_is,
    everything,
    messages,
    scene,
)
from tests.situations import HOUR, MINUTE, SYSTEM, again, default_ladder

pytestmark = pytest.mark.django_db


def said(state: str, **more) -> SourceFacts:
    return SourceFacts(source_hash="b" * 64, state=state, amount=Decimal("250"), **more)


def by_source(state: str, **more):
    return lambda d, p, now: apply_facts(d.pk, said(state, **more), actor=SYSTEM, now=now)


def seen(d: Dispute, now) -> dict:
    return {"seen_version": d.version, "now": now}


ACTIONS = {
    "deadline": lambda d, p, now: promote([d.pk], now=d.due_at or now + 100 * HOUR),
    "acknowledge": lambda d, p, now: acknowledge(d.pk, actor=p.sue, **seen(d, now)),
    "release": lambda d, p, now: release(d.pk, actor=p.boss, **seen(d, now)),
    "extend": lambda d, p, now: extend_hold(d.pk, actor=p.boss, **seen(d, now)),
    "assign": lambda d, p, now: assign(d.pk, to=p.sue, actor=p.boss, **seen(d, now)),
    "escalate": lambda d, p, now: escalate(d.pk, actor=p.boss, reason="r", **seen(d, now)),
    "send back": lambda d, p, now: send_back(d.pk, actor=p.boss, reason="r", **seen(d, now)),
    "pause": lambda d, p, now: pause(d.pk, actor=p.boss, reason="r", **seen(d, now)),
    "resume": lambda d, p, now: resume(d.pk, actor=p.boss, reason="r", **seen(d, now)),
    "resolve": lambda d, p, now: resolve(
        d.pk, outcome="defended", actor=p.boss, reason="r", **seen(d, now)
    ),
    "approve": lambda d, p, now: approve(d.pk, actor=p.boss, **seen(d, now)),
    "return": lambda d, p, now: return_proposal(d.pk, actor=p.boss, reason="r", **seen(d, now)),
    "reopen": lambda d, p, now: reopen(d.pk, actor=p.boss, reason="r", **seen(d, now)),
    "facts": by_source("actionable"),
    "source closes": by_source("closed", result="won"),
    "source waits": by_source("waiting"),
    "band": lambda d, p, now: change_band(
        d.pk, band="high", actor=p.boss, reason="r", **seen(d, now)
    ),
    "ladder": lambda d, p, now: move_to_ladder(
        d.pk, ladder="other", actor=p.boss, reason="r", **seen(d, now)
    ),
}


def instant_of(state: str):
    """When the person acts: the exhausted dispute got there at its deadline."""
    return DUE + HOUR if state == "exhausted" else ACT


ASIDE = (DUE, 1)
TOP = DUE + HOUR
ARRIVED = frozenset({"arrived"})
ALL_NEWS = frozenset({"arrived", "exhausted"})
TO_SENIOR = frozenset({("arrived", "sam"), ("arrived", "sue")})
TO_COMPLIANCE = frozenset({("arrived", "cho"), ("arrived", "sue")})
TO_STANDARD = frozenset({("arrived", "ada")})
SAM_LOSES_IT = frozenset({("released", "sam")})


def climbs(due, number, **more) -> dict:
    return {"status": "open", "due": due, "kind": "escalate", "number": number} | more


def held(due, number, holder, **more) -> dict:
    return {"status": "acknowledged", "due": due, "kind": "hold_end", "number": number} | {
        "holder": holder,
        **more,
    }


FACTS = "facts_changed"
CLOSED = "closed_at_source"
BOTH_HEAR = frozenset({("proposal_expired", "sam"), ("proposal_expired", "sue")})
UP = {"tier": "compliance", "told": TO_COMPLIANCE}
DOWN = {"tier": "standard", "told": TO_STANDARD}
TOP_TIER = {"tier": "compliance"}
PAUSED_TILL = {"status": "paused", "due": PAUSE_END, "kind": "pause_end", "number": 2}
PROPOSED_TILL = {"status": "proposed", "due": APPROVAL_END, "kind": "approval_end", "number": 3}
UNTOUCHED_HOLD = held(HOLD_END, 2, "sam", aside=ASIDE)
ELSEWHERE = {"tier": "standard", "told": frozenset()}

CELLS = {
    ("open", "deadline"): Cell("promoted", **climbs(DUE + 2 * HOUR, 2, **UP, cancelled=ARRIVED)),
    ("acknowledged", "deadline"): Cell(
        "hold_expired", **climbs(DUE, 1, told=frozenset({("hold_expired", "sam")}))
    ),
    # 80 minutes of the span remained when it was paused.
    ("paused", "deadline"): Cell("pause_expired", **climbs(PAUSE_END + 80 * MINUTE, 3)),
    ("proposed", "deadline"): Cell(
        "proposal_expired", **climbs(APPROVAL_END + 2 * HOUR, 4, told=BOTH_HEAR)
    ),
    ("open", "acknowledge"): Cell(
        "acknowledged", **held(ACT + 30 * MINUTE, 2, "sue", aside=ASIDE, cancelled=ARRIVED)
    ),
    ("exhausted", "acknowledge"): Cell(
        "acknowledged", **held(TOP + 30 * MINUTE, 2, "sue", **TOP_TIER, cancelled=ALL_NEWS)
    ),
    ("acknowledged", "release"): Cell("released", **climbs(DUE, 1, told=SAM_LOSES_IT)),
    ("acknowledged", "extend"): Cell(
        "hold_extended", **held(ACT + 30 * MINUTE, 3, "sam", aside=ASIDE)
    ),
    ("open", "assign"): Cell(
        "assigned",
        **held(ACT + 30 * MINUTE, 2, "sue", aside=ASIDE, cancelled=ARRIVED),
        told=frozenset({("assigned", "sue")}),
    ),
    ("exhausted", "assign"): Cell(
        "assigned",
        **held(TOP + 30 * MINUTE, 2, "sue", **TOP_TIER, cancelled=ALL_NEWS),
        told=frozenset({("assigned", "sue")}),
    ),
    ("acknowledged", "assign"): Cell(
        "assigned",
        **held(ACT + 30 * MINUTE, 3, "sue", aside=ASIDE),
        told=frozenset({("assigned", "sue")}) | SAM_LOSES_IT,
    ),
    ("open", "escalate"): Cell("escalated", **climbs(ACT + 2 * HOUR, 2, **UP, cancelled=ARRIVED)),
    ("acknowledged", "escalate"): Cell(
        "escalated", **climbs(ACT + 2 * HOUR, 3, **UP | {"told": TO_COMPLIANCE | SAM_LOSES_IT})
    ),
    ("paused", "escalate"): Cell("escalated", **climbs(ACT + 2 * HOUR, 3, **UP)),
    ("open", "send back"): Cell(
        "sent_back", **climbs(ACT + 2 * HOUR, 2, **DOWN, cancelled=ARRIVED)
    ),
    ("exhausted", "send back"): Cell(
        "sent_back", **climbs(TOP + 2 * HOUR, 2, told=TO_SENIOR, cancelled=ALL_NEWS)
    ),
    ("acknowledged", "send back"): Cell(
        "sent_back", **climbs(ACT + 2 * HOUR, 3, **DOWN | {"told": TO_STANDARD | SAM_LOSES_IT})
    ),
    ("paused", "send back"): Cell("sent_back", **climbs(ACT + 2 * HOUR, 3, **DOWN)),
    ("open", "pause"): Cell("paused", "paused", aside=ASIDE, cancelled=ARRIVED),
    ("exhausted", "pause"): Cell("paused", "paused", **TOP_TIER, cancelled=ALL_NEWS),
    ("acknowledged", "pause"): Cell("paused", "paused", aside=ASIDE, told=SAM_LOSES_IT),
    # Pausing again sets another end: here none.
    ("paused", "pause"): Cell("paused", "paused", aside=ASIDE),
    ("paused", "resume"): Cell("resumed", **climbs(ACT + 80 * MINUTE, 3)),
    ("acknowledged", "resolve"): Cell("resolved", "resolved"),
    ("proposed", "approve"): Cell("approved", "resolved", told=frozenset({("resolved", "sam")})),
    ("proposed", "return"): Cell(
        "returned", **climbs(ACT + 2 * HOUR, 4, told=frozenset({("returned", "sam")}))
    ),
    ("resolved", "reopen"): Cell("reopened", **climbs(ACT + 2 * HOUR, 3, told=TO_SENIOR)),
    ("open", "facts"): Cell(FACTS, **climbs(DUE, 1)),
    ("exhausted", "facts"): Cell(FACTS, "open", **TOP_TIER),
    ("acknowledged", "facts"): Cell(
        FACTS, **UNTOUCHED_HOLD, told=frozenset({("facts_changed", "sam")})
    ),
    ("paused", "facts"): Cell(FACTS, **PAUSED_TILL, aside=ASIDE),
    ("proposed", "facts"): Cell(FACTS, **PROPOSED_TILL),
    ("resolved", "facts"): Cell(FACTS, "resolved"),
    ("open", "source closes"): Cell(CLOSED, "resolved", cancelled=ARRIVED),
    ("exhausted", "source closes"): Cell(CLOSED, "resolved", **TOP_TIER, cancelled=ALL_NEWS),
    ("acknowledged", "source closes"): Cell(
        CLOSED, "resolved", told=frozenset({("resolved", "sam")})
    ),
    ("paused", "source closes"): Cell(CLOSED, "resolved"),
    ("proposed", "source closes"): Cell(CLOSED, "resolved"),
    ("resolved", "source closes"): Cell(FACTS, "resolved"),
    ("open", "source waits"): Cell("paused", "paused", aside=ASIDE, cancelled=ARRIVED),
    ("exhausted", "source waits"): Cell("paused", "paused", **TOP_TIER, cancelled=ALL_NEWS),
    ("acknowledged", "source waits"): Cell("paused", "paused", aside=ASIDE, told=SAM_LOSES_IT),
    # A person's pause had an end; the source's has none.
    ("paused", "source waits"): Cell("paused", "paused", aside=ASIDE),
    ("proposed", "source waits"): Cell("paused", "paused"),
    ("resolved", "source waits"): Cell(FACTS, "resolved"),
    ("open", "band"): Cell("band_changed", **climbs(DUE, 1)),
    ("exhausted", "band"): Cell("band_changed", "open", **TOP_TIER),
    ("acknowledged", "band"): Cell("band_changed", **UNTOUCHED_HOLD),
    ("paused", "band"): Cell("band_changed", **PAUSED_TILL, aside=ASIDE),
    ("open", "ladder"): Cell(
        "ladder_moved", **climbs(ACT + 2 * HOUR, 2, **ELSEWHERE, cancelled=ARRIVED)
    ),
    ("exhausted", "ladder"): Cell(
        "ladder_moved", **climbs(TOP + 2 * HOUR, 2, **ELSEWHERE, cancelled=ALL_NEWS)
    ),
    ("acknowledged", "ladder"): Cell(
        "ladder_moved", **climbs(ACT + 2 * HOUR, 3, **ELSEWHERE | {"told": SAM_LOSES_IT})
    ),
    ("paused", "ladder"): Cell("ladder_moved", **climbs(ACT + 2 * HOUR, 3, **ELSEWHERE)),
}
NO_DEADLINE = {("exhausted", "deadline"), ("resolved", "deadline")}
ALL = [(state, action) for state in STATES for action in ACTIONS]
REFUSED = [pair for pair in ALL if pair not in CELLS and pair not in NO_DEADLINE]
WORDS = {
    ("acknowledged", "acknowledge"): "sam acknowledged this at 12:40:00 UTC",
    ("paused", "acknowledge"): "resume it first",
    ("proposed", "acknowledge"): "waits for approval by another person",
    ("resolved", "acknowledge"): "resolved as defended by sam at 2026-06-26 12:40 UTC",
    ("open", "resolve"): "acknowledge it first",
    ("exhausted", "resolve"): "acknowledge it first",
    ("exhausted", "escalate"): "at the top of its ladder",
}


@pytest.fixture
def people():
    people = scene()
    default_ladder(slug="other")
    return people


@pytest.mark.parametrize(("state", "action"), CELLS)
def test_f94_the_cell_is_exactly_what_the_table_says(state, action, people):
    dispute = dispute_that_is(state, people)
    pending = messages(dispute)
    instant = (dispute.due_at or instant_of(state)) if action == "deadline" else instant_of(state)
    ACTIONS[action](dispute, people, instant)

    assert cell_of(dispute, pending) == CELLS[state, action]
    after = again(dispute)
    assert after.version == dispute.version + 1
    entries = list(AuditEntry.objects.filter(dispute=dispute).order_by("version"))
    notes = {note.version: note for note in Note.objects.filter(dispute=dispute)}
    assert verify_dispute(again(dispute), entries, notes) is None
    before, now = columns(dispute), columns(after)
    entry = AuditEntry.objects.get(dispute=dispute, version=after.version)
    assert entry.changes == {
        name: [before[name], now[name]] for name in now if before[name] != now[name]
    }
    assert (entry.at, after.changed_at) == (instant, instant)
    assert entry.deadline_no == (dispute.deadline_no if action == "deadline" else None)
    assert (entry.from_status, entry.from_tier_id, entry.from_due_at) == (
        dispute.status,
        dispute.tier_id,
        dispute.due_at,
    )
    fresh = after.deadline_no is not None and after.deadline_no > dispute.deadlines_issued
    assert after.deadlines_issued == dispute.deadlines_issued + fresh


@pytest.mark.parametrize(("state", "action"), REFUSED)
def test_every_other_cell_is_refused_with_nothing_written(state, action, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    error = AlreadyTaken if (state, action) == ("acknowledged", "acknowledge") else None
    with pytest.raises(error or TransitionNotAllowed, match=WORDS.get((state, action), ".")):
        ACTIONS[action](dispute, people, instant_of(state))
    assert everything(dispute) == before


@pytest.mark.parametrize(("state", "action"), sorted(NO_DEADLINE))
def test_where_no_deadline_is_the_clock_writes_nothing(state, action, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    assert ACTIONS[action](dispute, people, instant_of(state)) == {dispute.pk: "NO_LONGER_OPEN"}
    assert everything(dispute) == before


@pytest.mark.parametrize("state", [s for s in STATES if (s, "deadline") in CELLS])
def test_nothing_is_due_a_microsecond_before_its_instant(state, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    early = dispute.due_at - MINUTE / 60_000_000
    assert promote([dispute.pk], now=early) == {dispute.pk: "NOT_DUE"}
    assert everything(dispute) == before


# Every action by an eye that saw another version, and by one who may not: what is asked first?
HUMAN = [a for a in ACTIONS if a not in ("deadline", "facts", "source closes", "source waits")]


# The status of an exhausted dispute allows to escalate it; its ladder ends.
BY_STATUS = [p for p in REFUSED if p[1] in HUMAN and p != ("exhausted", "escalate")]


@pytest.mark.parametrize(("state", "action"), BY_STATUS)
def test_the_status_is_judged_before_the_seen_version(state, action, people):
    dispute = dispute_that_is(state, people)
    dispute.version += 7
    with pytest.raises(TransitionNotAllowed):
        ACTIONS[action](dispute, people, instant_of(state))


@pytest.mark.parametrize(
    ("state", "action"), [p for p in CELLS if p[1] in HUMAN and p[1] != "acknowledge"]
)
def test_a_stale_version_is_judged_before_the_right(state, action, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    stale = again(dispute)
    stale.version += 1
    people.boss = people.eve
    with pytest.raises(Exception, match="you saw") as refusal:
        ACTIONS[action](stale, people, instant_of(state))
    assert refusal.value.code == "version_conflict"
    assert everything(dispute) == before


@pytest.mark.parametrize(("state", "action"), [p for p in CELLS if p[1] in HUMAN])
def test_a_stranger_is_refused_with_nothing_written(state, action, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    people.boss = people.eve
    if action == "acknowledge":
        people.sue = people.eve
    with pytest.raises(Exception, match="right|review|holds it") as refusal:
        ACTIONS[action](dispute, people, instant_of(state))
    assert refusal.value.code == "not_permitted"
    assert everything(dispute) == before


@pytest.mark.parametrize(("state", "action"), [p for p in CELLS if p[1] in HUMAN])
def test_somebody_who_left_is_refused_whatever_rights_they_held(state, action, people):
    dispute = dispute_that_is(state, people)
    before = everything(dispute)
    actor = people.sue if action == "acknowledge" else people.boss
    actor.is_active = False
    with pytest.raises(Exception, match=".") as refusal:
        ACTIONS[action](dispute, people, instant_of(state))
    assert refusal.value.code == "not_permitted"
    assert everything(dispute) == before


def test_the_table_covers_every_state_that_a_row_can_have():
    assert {s for s in STATES if s != "exhausted"} == set(Dispute.Status.values)
