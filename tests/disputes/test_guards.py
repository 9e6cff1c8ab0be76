"""What the database itself refuses, asked in SQL as the application's role and as the owner."""

import threading
from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, transaction

from disputes.ladders import copy_to_draft, live_tiers, publish
from disputes.models import AuditEntry, Dispute, LadderRevision, Notification, Tier
from disputes.transitions.deadlines import promote
from tests.disputes.stages import everything
from tests.situations import HOUR, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

GUARD = "23001"  # restrict_violation: what our triggers raise
FORBIDDEN = "42501"  # insufficient_privilege


@pytest.fixture
def dispute():
    default_ladder()
    return opened()


def refused_with(call) -> str:
    """The five characters Postgres refuses with."""
    with pytest.raises((DatabaseError, psycopg.Error)) as refusal:
        call()
    error = refusal.value
    return getattr(error, "sqlstate", None) or error.__cause__.sqlstate


def as_application(statement: str):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: Dispute.objects.filter(pk=d.pk).update(band="high"),
        lambda d: Dispute.objects.filter(pk=d.pk).update(tier=Tier.objects.get(slug="senior")),
        lambda d: Dispute.objects.bulk_update([_with_band(d)], ["band"]),
        lambda d: Dispute.objects.bulk_create(
            [_with_band(d)], update_conflicts=True, unique_fields=["id"], update_fields=["band"]
        ),
        lambda d: _with_band(d).save(),
        lambda d: as_application("UPDATE disputes_dispute SET due_at = NULL"),
        lambda d: as_application("UPDATE disputes_dispute SET version = version + 2"),
        lambda d: as_application("UPDATE disputes_dispute SET audit_head = 'x'"),
    ],
    ids=[
        *("update", "update of the tier", "bulk_update", "bulk_create over it", "save"),
        *("sql", "a version skipped", "the head alone"),
    ],
)
def test_f71_bug_53_no_column_of_a_dispute_changes_without_a_new_version(change, dispute):
    before = everything(dispute)
    assert refused_with(lambda: change(dispute)) == GUARD
    assert everything(dispute) == before


def _with_band(dispute: Dispute) -> Dispute:
    row = again(dispute)
    row.band = "high"
    return row


def test_a_new_version_without_its_audit_entry_fails_at_commit(dispute):
    before = everything(dispute)
    statement = "UPDATE disputes_dispute SET version = version + 1, band = 'high'"
    with pytest.raises(IntegrityError, match="dispute_version_has_its_audit_entry"):
        as_application(statement)
    assert everything(dispute) == before


@pytest.mark.parametrize(
    "insert",
    [lambda d: d.save(force_insert=True), lambda d: Dispute.objects.bulk_create([d])],
    ids=["save", "bulk_create"],
)
def test_bug_53_a_dispute_without_its_first_entry_fails_at_commit(insert, dispute):
    row = again(dispute)
    row.pk, row.reference = "00000000-0000-4000-8000-000000000001", "copied"
    with (
        pytest.raises(IntegrityError, match="dispute_version_has_its_audit_entry"),
        transaction.atomic(),
    ):
        insert(row)
    assert Dispute.objects.get() == dispute


@pytest.mark.parametrize("column", ["source", "reference", "arrival"])
def test_what_a_dispute_is_never_changes_even_with_a_version(column, dispute):
    value = "arrival + interval '1 s'" if column == "arrival" else "'other'"
    statement = f"UPDATE disputes_dispute SET version = version + 1, {column} = {value}"
    assert refused_with(lambda: as_application(statement)) == GUARD


def test_deadline_numbers_only_grow(dispute):
    statement = (
        "UPDATE disputes_dispute SET version = version + 1, deadlines_issued = 0, due_at = NULL,"
        " due_kind = '', deadline_no = NULL, exhausted_at = now()"
    )
    assert refused_with(lambda: as_application(statement)) == GUARD


DESTRUCTIVE = [
    "UPDATE disputes_auditentry SET actor_label = 'somebody else'",
    "DELETE FROM disputes_auditentry",
    "TRUNCATE disputes_auditentry",
    "TRUNCATE disputes_auditentry CASCADE",
    "DELETE FROM disputes_dispute",
    "TRUNCATE disputes_dispute CASCADE",
    "TRUNCATE disputes_ladderrevision CASCADE",
]


@pytest.mark.parametrize("statement", DESTRUCTIVE)
def test_f70_the_application_may_not_rewrite_the_log_or_remove_disputes(statement, dispute):
    before = everything(dispute)
    assert refused_with(lambda: as_application(statement)) == FORBIDDEN
    assert everything(dispute) == before


@pytest.mark.parametrize("statement", DESTRUCTIVE)
def test_the_owner_is_stopped_by_the_triggers(statement, dispute, owner_connection):
    before = everything(dispute)
    assert refused_with(lambda: owner_connection.execute(statement)) in (GUARD, "0A000")
    assert everything(dispute) == before


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE disputes_auditentry DISABLE TRIGGER USER",
        "DROP TRIGGER audit_is_append_only ON disputes_auditentry",
        "SET session_replication_role = replica",
        "GRANT DELETE ON disputes_auditentry TO CURRENT_USER",
    ],
)
def test_the_application_may_not_open_the_door(statement, dispute):
    if statement.startswith("GRANT"):
        # Postgres only warns that nothing was granted.
        as_application(statement)
        assert refused_with(lambda: as_application(DESTRUCTIVE[1])) == FORBIDDEN
    else:
        assert refused_with(lambda: as_application(statement)) == FORBIDDEN


def entry_like_the_last(dispute: Dispute, **other) -> AuditEntry:
    """A forged entry, inserted as the application's role may."""
    entry = AuditEntry.objects.filter(dispute=dispute).latest("version")
    entry.pk, entry._state.adding = None, True
    for name, value in other.items():
        setattr(entry, name, value)
    entry.save(force_insert=True)
    return entry


def test_a_version_has_one_entry(dispute):
    with pytest.raises(IntegrityError, match="one_audit_entry_per_version"):
        entry_like_the_last(dispute)


def test_a_deadline_ends_once(dispute):
    promote([dispute.pk], now=dispute.due_at)
    with pytest.raises(IntegrityError, match="each_deadline_ends_at_most_once"):
        entry_like_the_last(dispute, version=3)


def test_an_entry_of_the_clock_is_never_early(dispute):
    promote([dispute.pk], now=dispute.due_at)
    early = dispute.due_at - timedelta(microseconds=1)
    with pytest.raises(IntegrityError, match="the_clock_is_never_early"):
        entry_like_the_last(dispute, version=3, deadline_no=2, at=early)


def test_an_entry_of_the_clock_names_its_deadline(dispute):
    promote([dispute.pk], now=dispute.due_at)
    with pytest.raises(IntegrityError, match="clock_entry_names_its_deadline"):
        entry_like_the_last(dispute, version=3, deadline_no=None)


INSTANTS = ["0001-01-01T00:00Z", "1989-12-31T23:59:59Z", "2200-01-01T00:00Z", "9999-12-31T00:00Z"]


@pytest.mark.parametrize("instant", [*INSTANTS, "infinity", "-infinity"])
@pytest.mark.parametrize(
    "column",
    ["due_at", "restore_due_at", "external_due_at", "opened_at", "source_at", "changed_at"],
)
def test_f56_no_instant_that_readers_cannot_read(column, instant, dispute):
    statement = f"UPDATE disputes_dispute SET version = version + 1, {column} = '{instant}'"
    with pytest.raises(IntegrityError, match=f"dispute_{column}_is_a_sane_instant"):
        as_application(statement)


@pytest.mark.parametrize("instant", [INSTANTS[-1], "infinity"])
def test_no_such_instant_in_the_log_either_where_it_would_stay_for_ever(instant, dispute):
    columns = [f.column for f in AuditEntry._meta.concrete_fields if f.column != "id"]
    values = [
        {"at": f"'{instant}'", "version": "2"}.get(column, f'"{column}"') for column in columns
    ]
    names = ", ".join(f'"{column}"' for column in columns)
    with pytest.raises(IntegrityError, match="entry_instants_are_sane"):
        as_application(
            f"INSERT INTO disputes_auditentry ({names})"
            f" SELECT {', '.join(values)} FROM disputes_auditentry"
        )


BROKEN_ROWS = {
    "resolved_dispute_has_no_deadline|deadline_kind_fits": "status = 'resolved', outcome = 'won'",
    "open_dispute_has_a_deadline_or_is_exhausted": (
        "due_at = NULL, due_kind = '', deadline_no = NULL"
    ),
    "deadline_kind_fits_the_status": "due_kind = 'hold_end'",
    "deadline_number_was_issued": "deadline_no = 9",
    "acknowledged_dispute_has_a_holder": "status = 'acknowledged', due_kind = 'hold_end'",
    "proposed_dispute_names_its_proposer": "status = 'proposed', due_kind = 'approval_end'",
    "resolved_dispute_has_an_outcome": (
        "status = 'resolved', due_at = NULL, due_kind = '', deadline_no = NULL"
    ),
    "paused_dispute_says_by_whom_and_since_when": "status = 'paused', due_kind = 'pause_end'",
    "amount_is_not_negative_and_has_a_currency": "amount = -1",
    "queue_score_is_an_exact_double": "queue_score = 9007199254740992",
}


@pytest.mark.parametrize("constraint", BROKEN_ROWS)
def test_the_row_cannot_say_what_makes_no_sense(constraint, dispute):
    statement = f"UPDATE disputes_dispute SET version = version + 1, {BROKEN_ROWS[constraint]}"
    with pytest.raises(IntegrityError, match=constraint):
        as_application(statement)


def test_a_resolved_dispute_can_only_be_reopened(dispute):
    gone = "due_at = NULL, due_kind = '', deadline_no = NULL"
    begin = (
        "UPDATE disputes_dispute SET version = version + 1, status = 'resolved',"
        f" outcome = 'won', {gone};"
        "UPDATE disputes_dispute SET version = version + 1, status = 'paused', outcome = '',"
        " paused_by = 'person', paused_at = now()"
    )
    with pytest.raises(DatabaseError, match="can only be reopened"):
        as_application(begin)


FROZEN = [
    "UPDATE disputes_ladderrevision SET external_margin = '1 s'",
    "UPDATE disputes_ladderrevision SET state = 'draft', published_at = NULL",
    "UPDATE disputes_ladderrevision SET state = 'retired', note = 'and more'",
    "UPDATE disputes_tier SET sla = '1 s'",
    "UPDATE disputes_tier SET position = position + 10",
    "DELETE FROM disputes_tier WHERE position = 3",
    "INSERT INTO disputes_tier (revision_id, queue_id, position, slug, name, sla, four_eyes)"
    " SELECT revision_id, queue_id, 9, 'more', 'More', '1 h', '[]' FROM disputes_tier LIMIT 1",
    "INSERT INTO disputes_ladderrevision (ladder_id, number, state, calendar, time_zone,"
    " external_margin, start_rules, note, created_at, published_at)"
    " SELECT id, 9, 'live', '', 'UTC', '1 h', '[]', '', now(), now() FROM disputes_ladder",
]


@pytest.mark.parametrize("statement", FROZEN)
def test_a_published_revision_never_changes_not_even_for_the_owner(
    statement, dispute, owner_connection
):
    assert refused_with(lambda: as_application(statement)) == GUARD
    assert refused_with(lambda: owner_connection.execute(statement)) == GUARD


def test_a_published_revision_cannot_be_deleted(dispute, owner_connection):
    draft = copy_to_draft(LadderRevision.objects.get())
    publish(draft, by=None, now=NOON)
    statement = "DELETE FROM disputes_ladderrevision WHERE number = 2"
    assert refused_with(lambda: owner_connection.execute(statement)) == GUARD


def test_a_tier_cannot_be_moved_out_of_or_into_a_published_revision(dispute):
    live = LadderRevision.objects.get()
    draft = copy_to_draft(live)
    moved = Tier.objects.filter(revision=draft, position=3)
    assert refused_with(lambda: moved.update(revision=live, position=9)) == GUARD
    moved.delete()
    published = Tier.objects.filter(revision=live, position=3)
    assert refused_with(lambda: published.update(revision=draft)) == GUARD


def test_a_draft_may_change(dispute):
    draft = copy_to_draft(LadderRevision.objects.get())
    assert draft.tiers.update(sla=3 * HOUR) == 3


def test_there_are_never_two_drafts_or_two_live_revisions(dispute):
    live = LadderRevision.objects.get()
    copy_to_draft(live)
    with pytest.raises(IntegrityError, match="one_draft_revision_per_ladder"):
        LadderRevision.objects.create(ladder=live.ladder, number=3)
    with pytest.raises(IntegrityError, match="one_live_revision_per_ladder"):
        LadderRevision.objects.filter(number=2).update(state="live", published_at=NOON)


def test_a_tier_does_not_slip_into_a_draft_that_is_being_published(dispute):
    """Publishing has not committed yet; the insert has to wait for it and is refused then."""
    draft = copy_to_draft(LadderRevision.objects.get())
    tier = draft.tiers.get(position=3)
    name = connection.settings_dict["NAME"]
    done = threading.Event()
    refusals: list[str] = []

    def insert():
        with psycopg.connect(settings.DATABASE_URL, dbname=name) as other:
            other.execute("SET lock_timeout = '20s'")
            try:
                other.execute("UPDATE disputes_tier SET sla = '1 s' WHERE id = %s", [tier.pk])
                other.commit()
            except psycopg.Error as error:
                refusals.append(error.sqlstate)
        done.set()

    with transaction.atomic():
        publish(draft, by=None, now=NOON)
        thread = threading.Thread(target=insert)
        thread.start()
        with psycopg.connect(settings.DATABASE_OWNER_URL, dbname=name, autocommit=True) as look:
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not done.is_set() and look.execute(waits).fetchone() == (0,):
                done.wait(0.01)
    thread.join(20)
    assert refusals == [GUARD]
    assert live_tiers()[2].sla == 2 * HOUR


def test_a_reviewer_a_ladder_and_a_tier_in_use_cannot_be_deleted(dispute, owner_connection):
    for statement in ("DELETE FROM disputes_ladder", "DELETE FROM disputes_queue"):
        assert refused_with(lambda s=statement: as_application(s)) == "23503"
    assert AuditEntry.objects.filter(dispute=dispute).count() == 1


@pytest.mark.parametrize("margin", [timedelta(days=-5), timedelta(days=999_999_999)])
def test_a_margin_that_no_date_can_carry_is_refused(margin):
    ladder = default_ladder()
    with pytest.raises(IntegrityError, match="external_margin_is_bounded"):
        LadderRevision.objects.create(ladder=ladder, number=2, external_margin=margin)


def test_a_delivery_fact_is_never_unsaid():
    default_ladder()
    person("ada", "standard")
    opened()
    Notification.objects.update(status="sent")
    with pytest.raises(IntegrityError, match="what was sent was sent"):
        Notification.objects.update(status="pending")
