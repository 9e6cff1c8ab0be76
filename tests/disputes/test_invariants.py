"""Each invariant is silent on sound records and names the offender on unsound ones."""

import pytest

from config.stack import BASE_DIR
from disputes.invariants import NAMES, QUERIES, broken
from disputes.transitions.deadlines import promote
from disputes.transitions.reviewing import acknowledge
from tests.situations import HOUR, NOON, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

ENTRY = "UPDATE disputes_auditentry SET {} WHERE version = 3"
DAMAGE = {
    "every version has exactly one audit entry": (
        "UPDATE disputes_dispute SET version = version - 1"
    ),
    "the row names the hash of its latest entry": "UPDATE disputes_dispute SET audit_head = 'x'",
    "each entry follows the one before": ENTRY.format("prev_hash = repeat('f', 64)"),
    "no deadline is ended twice": (
        "ALTER TABLE disputes_auditentry DROP CONSTRAINT IF EXISTS x;"
        "DROP INDEX each_deadline_ends_at_most_once;"
        "UPDATE disputes_auditentry SET deadline_no = 1, from_due_at = at"
        " WHERE action = 'promoted'"
    ),
    "the clock is never early": (
        "ALTER TABLE disputes_auditentry DROP CONSTRAINT the_clock_is_never_early;"
        "UPDATE disputes_auditentry SET from_due_at = at + interval '1 s' WHERE version = 3"
    ),
    "the clock climbs one tier at a time": ENTRY.format("to_tier_id = from_tier_id"),
    "every dispute stands in a published revision": (
        "UPDATE disputes_ladderrevision SET state = 'draft'"
    ),
    "no message without its audit entry": "UPDATE disputes_notification SET version = version + 9",
    "an acknowledgement is followed by no arrival": (
        "UPDATE disputes_notification SET status = 'pending'"
    ),
    "no escalation message was made under an acknowledgement": (
        "UPDATE disputes_notification SET version = 4 WHERE version = 3"
    ),
    "nothing is told of a dispute that is over": (
        "ALTER TABLE disputes_dispute DROP CONSTRAINT acknowledged_dispute_has_a_holder,"
        " DROP CONSTRAINT deadline_kind_fits_the_status,"
        " DROP CONSTRAINT resolved_dispute_has_no_deadline,"
        " DROP CONSTRAINT resolved_dispute_has_an_outcome;"
        "UPDATE disputes_dispute SET status = 'resolved';"
        "UPDATE disputes_notification SET status = 'pending'"
    ),
}
SUPERUSERS_ONLY = {"every entry belongs to a dispute"}  # in test_audit


@pytest.fixture
def story():
    """Promoted twice, then acknowledged; everybody of each tier was told."""
    default_ladder()
    for slug in ("standard", "senior"):
        person(slug, slug)
    cho = person("cho", "compliance")
    dispute = opened()
    promote([dispute.pk], now=NOON + 2 * HOUR)
    promote([dispute.pk], now=NOON + 4 * HOUR)
    acknowledge(dispute.pk, actor=cho, seen_version=3, now=NOON + 5 * HOUR)
    return dispute


def test_sound_records_break_nothing(story):
    assert broken() == []


def test_every_invariant_has_its_damage_here():
    assert set(DAMAGE) | SUPERUSERS_ONLY == set(QUERIES)


@pytest.mark.parametrize("name", DAMAGE)
def test_the_damage_is_seen_and_the_dispute_named(name, story, owner_connection):
    """Done as owner with every guard off, and rolled back."""
    with owner_connection.transaction(force_rollback=True):
        for table in ("dispute", "auditentry", "ladderrevision"):
            owner_connection.execute(f"ALTER TABLE disputes_{table} DISABLE TRIGGER USER")
        owner_connection.execute("SET CONSTRAINTS ALL DEFERRED")
        for statement in DAMAGE[name].split(";"):
            owner_connection.execute(statement)
        offenders = owner_connection.execute(QUERIES[name]).fetchall()
    assert (str(story.pk),) in offenders


def test_the_operations_manual_shows_how_many_there_are():
    shown = (BASE_DIR / "docs" / "operations.md").read_text()
    assert f"    {len(NAMES)} invariants checked, 0 broken\n" in shown
