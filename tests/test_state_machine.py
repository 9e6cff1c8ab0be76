"""Any order of transitions, and of the clock, leaves the records sound.

Refusals are part of the game: each rule may be refused, and then nothing may be written. The
cheap invariants are asked after every step, all of them with the hash chains at the end.
`HYPOTHESIS_PROFILE=long` looks much longer.
"""

import os
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from disputes import outbox
from disputes.exceptions import DisputeError
from disputes.invariants import QUERIES, broken
from disputes.models import AuditEntry, Dispute, Notification
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
from disputes.transitions.opening import open_dispute
from disputes.transitions.resolving import approve, reopen, resolve, return_proposal
from disputes.transitions.reviewing import acknowledge, assign, extend_hold, release
from tests.conftest import empty_all_tables
from tests.disputes.stages import scene
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, default_ladder, new

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
LIMITS = settings(
    max_examples=200 if LONG else 25,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=not LONG,
    database=None,
    print_blob=True,
)
PEOPLE = st.sampled_from(["ada", "sam", "sue", "cho", "eve", "boss"])


def ladder_and_people():
    people = scene()
    default_ladder(slug="other")
    return people


class Disputes(RuleBasedStateMachine):
    """Disputes, people and an explicit clock that only this machine moves."""

    disputes = Bundle("disputes")
    claimed = Bundle("claimed")

    def __init__(self) -> None:
        super().__init__()
        empty_all_tables()
        self.people = ladder_and_people()
        self.now = NOON
        self.events = 0

    def attempt(self, call, **words):
        """The call at the machine's own now; a refusal has written nothing at all."""
        before = self.written()
        try:
            call(now=self.now, **words)
        except DisputeError:
            assert self.written() == before, "a refusal wrote something"

    def written(self) -> list:
        rows = Dispute.objects.order_by("pk").values_list("pk", "version", "audit_head")
        return [list(rows), AuditEntry.objects.count(), Notification.objects.count()]

    def by(self, name: str, call, dispute, **words):
        self.attempt(call, dispute_id=dispute, actor=getattr(self.people, name), **words)

    @initialize(target=disputes)
    def two_disputes(self):
        return multiple(self.opened(), self.opened())

    def opened(self, **facts):
        return open_dispute(new(**facts), actor=SYSTEM, now=self.now).id

    @rule(
        target=disputes,
        tier=st.sampled_from(["standard", "senior", "compliance"]),
        band=st.sampled_from(["high", "medium", "low"]),
        external=st.none() | st.integers(-5, 200),
        status=st.sampled_from(["open", "open", "paused", "resolved"]),
    )
    def open(self, tier, band, external, status):
        lost = None if external is None else self.now + external * HOUR
        return self.opened(tier=tier, band=band, external_due_at=lost, status=status)

    @rule(dispute=disputes)
    def open_again(self, dispute):
        row = Dispute.objects.get(pk=dispute)
        again = open_dispute(new(reference=row.reference), actor=SYSTEM, now=self.now)
        assert (again.id, again.created) == (dispute, False)

    @rule(dispute=disputes, who=PEOPLE, behind=st.integers(0, 3))
    def acknowledge(self, dispute, who, behind):
        seen = max(1, Dispute.objects.get(pk=dispute).version - behind)
        self.by(who, acknowledge, dispute, seen_version=seen)

    @rule(dispute=disputes, who=PEOPLE)
    def release(self, dispute, who):
        self.by(who, release, dispute)

    @rule(dispute=disputes, who=PEOPLE)
    def extend(self, dispute, who):
        self.by(who, extend_hold, dispute)

    @rule(dispute=disputes, who=PEOPLE, to=PEOPLE)
    def assign(self, dispute, who, to):
        self.by(who, assign, dispute, to=getattr(self.people, to))

    @rule(dispute=disputes, who=PEOPLE, up=st.booleans())
    def move(self, dispute, who, up):
        self.by(who, escalate if up else send_back, dispute, reason="because")

    @rule(dispute=disputes, who=PEOPLE, minutes=st.none() | st.integers(1, 600))
    def pause(self, dispute, who, minutes):
        until = None if minutes is None else self.now + minutes * MINUTE
        self.by(who, pause, dispute, reason="asked", until=until)

    @rule(dispute=disputes, who=PEOPLE)
    def resume(self, dispute, who):
        self.by(who, resume, dispute, reason="answered")

    @rule(dispute=disputes, who=PEOPLE, outcome=st.sampled_from(["defended", "written_off"]))
    def resolve(self, dispute, who, outcome):
        self.by(who, resolve, dispute, outcome=outcome, reason="looked")

    @rule(dispute=disputes, who=PEOPLE)
    def approve(self, dispute, who):
        self.by(who, approve, dispute)

    @rule(dispute=disputes, who=PEOPLE)
    def send_proposal_back(self, dispute, who):
        self.by(who, return_proposal, dispute, reason="no")

    @rule(dispute=disputes, who=PEOPLE)
    def reopen(self, dispute, who):
        self.by(who, reopen, dispute, reason="new evidence")

    @rule(dispute=disputes, who=PEOPLE, band=st.sampled_from(["high", "low"]))
    def change_band(self, dispute, who, band):
        self.by(who, change_band, dispute, band=band, reason="large")

    @rule(dispute=disputes, ladder=st.sampled_from(["default", "other"]))
    def move_to_ladder(self, dispute, ladder):
        self.by("boss", move_to_ladder, dispute, ladder=ladder, reason="wrong one")

    @rule(
        dispute=disputes,
        state=st.sampled_from(["actionable", "waiting", "closed", "informational"]),
        external=st.none() | st.integers(-5, 200),
        amount=st.none() | st.integers(0, 10**6),
        age=st.integers(0, 3),
    )
    def hear_from_the_source(self, dispute, state, external, amount, age):
        self.events += 1
        facts = SourceFacts(
            source_hash=f"{self.events:064x}",
            state=state,
            amount=None if amount is None else Decimal(amount) / 100,
            external_due_at=None if external is None else self.now + external * HOUR,
            source_at=self.now - age * HOUR,
        )
        apply_facts(dispute, facts, actor=SYSTEM, now=self.now)

    @rule(minutes=st.sampled_from([1, 29, 30, 31, 60, 119, 120, 121, 1500]))
    def let_time_pass(self, minutes):
        self.now += minutes * MINUTE

    @rule()
    def one_round_of_the_clock(self):
        due = Dispute.objects.filter(due_at__lte=self.now)
        expected = set(due.values_list("pk", flat=True))
        before = dict(Dispute.objects.values_list("pk", "version"))
        outcomes = promote(list(before), now=self.now)
        after = dict(Dispute.objects.values_list("pk", "version"))
        assert {pk for pk in after if after[pk] != before[pk]} == expected
        assert all(after[pk] - before[pk] == 1 for pk in expected)
        assert all(outcomes[pk] in ("NOT_DUE", "NO_LONGER_OPEN") for pk in set(after) - expected)

    @rule(target=claimed)
    def claim_messages(self):
        lease = timedelta(minutes=5)
        return multiple(*outbox.claim_messages(now=self.now, limit=3, lease=lease))

    @rule(message=consumes(claimed), sent=st.booleans())
    def mark(self, message, sent):
        if sent:
            outbox.mark_sent([message], now=self.now)
            message.refresh_from_db()
            assert message.status == Notification.Status.SENT
        else:
            outbox.mark_unsent(message, now=self.now, error="busy", retry_at=self.now + MINUTE)

    @invariant()
    def the_records_are_sound(self):
        with connection.cursor() as cursor:
            for name, query in QUERIES.items():
                cursor.execute(query)
                assert cursor.fetchall() == [], name

    def teardown(self):
        assert broken() == []


@pytest.mark.django_db(transaction=True)
def test_any_order_of_transitions_leaves_the_records_sound(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    run_state_machine_as_test(Disputes, settings=LIMITS)
