"""One dispute from the day it comes in to the day it comes back, told in order."""

import pytest

from disputes.invariants import broken
from disputes.models import AuditEntry
from disputes.transitions.deadlines import promote
from disputes.transitions.resolving import reopen, resolve
from disputes.transitions.reviewing import acknowledge, release
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_life_of_a_dispute():
    default_ladder()
    ada = person("ada", "standard", rights=("reopen",))
    sam = person("sam", "senior")
    cho = person("cho", "compliance")

    # It comes in at noon; nobody in standard looks at it for two hours.
    dispute = opened()
    two = NOON + 2 * HOUR
    assert promote([dispute.pk], now=two) == {dispute.pk: "PROMOTED_TO_SENIOR"}

    # Ada's page is a little old: she takes it all the same, within the grace.
    taken = acknowledge(dispute.pk, actor=ada, seen_version=1, now=two + MINUTE)
    assert (taken.holder, taken.tier.slug, taken.due_at) == (ada, "senior", two + 31 * MINUTE)
    assert promote([dispute.pk], now=two + 30 * MINUTE) == {dispute.pk: "NOT_DUE"}

    # She forgets it: her hold lapses, and the senior deadline is what it was: four o'clock.
    assert promote([dispute.pk], now=two + 31 * MINUTE) == {dispute.pk: "HOLD_EXPIRED"}
    assert again(dispute).due_at == two + 2 * HOUR

    # Sam takes it late, too late: his hold ends after four, and it climbs at once.
    version = again(dispute).version
    acknowledge(dispute.pk, actor=sam, seen_version=version, now=two + 119 * MINUTE)
    over = two + 149 * MINUTE
    assert promote([dispute.pk], now=over) == {dispute.pk: "HOLD_EXPIRED"}
    assert promote([dispute.pk], now=over) == {dispute.pk: "PROMOTED_TO_COMPLIANCE"}

    # Compliance takes it, gives it back, and lets the last deadline pass: the top of the ladder.
    version = again(dispute).version
    acknowledge(dispute.pk, actor=cho, seen_version=version, now=over + MINUTE)
    back = release(dispute.pk, actor=cho, reason="lunch", now=over + 2 * MINUTE)
    assert (back.status, back.due_at) == ("open", over + 2 * HOUR)
    top = over + 2 * HOUR
    assert promote([dispute.pk], now=top) == {dispute.pk: "TERMINAL_ESCALATION"}
    assert promote([dispute.pk], now=top + 100 * HOUR) == {dispute.pk: "NO_LONGER_OPEN"}

    # Cho takes it for good and accepts it.
    version = again(dispute).version
    acknowledge(dispute.pk, actor=cho, seen_version=version, now=top + HOUR)
    resolve(dispute.pk, outcome="accepted", actor=cho, reason="no case", now=top + HOUR)
    assert promote([dispute.pk], now=top + 100 * HOUR) == {dispute.pk: "NO_LONGER_OPEN"}

    # The bank writes again: it is reopened where it was, with a fresh span and nobody's hold.
    day = NOON + 24 * HOUR
    after = reopen(dispute.pk, actor=ada, reason="new evidence", now=day)
    assert (after.status, after.tier.slug, after.holder, after.outcome, after.due_at) == (
        "open",
        "compliance",
        None,
        "",
        day + 2 * HOUR,
    )

    entries = AuditEntry.objects.filter(dispute=dispute).order_by("version")
    assert [(entry.action, entry.actor_label, entry.deadline_no) for entry in entries] == [
        ("created", "test", None),
        ("promoted", "clock", 1),
        ("acknowledged", "ada", None),
        ("hold_expired", "clock", 3),
        ("acknowledged", "sam", None),
        ("hold_expired", "clock", 4),
        ("promoted", "clock", 2),
        ("acknowledged", "cho", None),
        ("released", "cho", None),
        ("exhausted", "clock", 5),
        ("acknowledged", "cho", None),
        ("resolved", "cho", None),
        ("reopened", "ada", None),
    ]
    assert broken() == []
