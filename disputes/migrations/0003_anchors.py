"""Anchors over the audit log, and what the database refuses of a forger in the application."""

import django.db.models.deletion
from django.db import migrations, models

APPEND_ONLY = """
CREATE TRIGGER anchors_are_append_only BEFORE UPDATE OR DELETE ON disputes_anchor
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting('anchors are append-only');
CREATE TRIGGER anchors_are_never_emptied BEFORE TRUNCATE ON disputes_anchor
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting('anchors are append-only');
CREATE TRIGGER heads_are_append_only BEFORE UPDATE OR DELETE ON disputes_anchoredhead
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting('anchors are append-only');
CREATE TRIGGER heads_are_never_emptied BEFORE TRUNCATE ON disputes_anchoredhead
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting('anchors are append-only');
"""

# The search path of a function that reads tables is pinned: otherwise a temporary table of the
# same name would be read instead. Only index scans: the plan is kept for the whole session, and
# one that was made while the tables were small would read them whole later.
PROVEN_ENTRIES = """
CREATE FUNCTION refuse_unproven_entry() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT FROM written
        LEFT JOIN disputes_dispute AS d ON d.id = written.dispute_id
        LEFT JOIN disputes_auditentry AS before
            ON before.dispute_id = written.dispute_id AND before.version = written.version - 1
        WHERE (written.version, written.hash, written.to_status, written.to_tier_id,
               written.to_due_at)
            IS DISTINCT FROM (d.version, d.audit_head, d.status, d.tier_id, d.due_at)
        OR written.prev_hash <> coalesce(before.hash, repeat('0', 64))
    ) THEN
        RAISE EXCEPTION 'an audit entry is written with the change it records, after its row'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER entry_is_written_with_its_change AFTER INSERT ON disputes_auditentry
    REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_unproven_entry();
"""

PROVEN_ANCHORS = """
CREATE FUNCTION refuse_unproven_head() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT FROM written
        LEFT JOIN disputes_anchor ON disputes_anchor.number = written.anchor_id
        LEFT JOIN disputes_auditentry AS entry
            ON entry.dispute_id = written.dispute_id AND entry.version = written.version
        WHERE disputes_anchor.number IS NOT NULL OR entry.hash IS DISTINCT FROM written.hash
    ) THEN
        RAISE EXCEPTION 'a head is an entry of the log, and is anchored before its anchor closes'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER head_is_in_the_log AFTER INSERT ON disputes_anchoredhead
    REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_unproven_head();

CREATE FUNCTION refuse_unproven_anchor() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NEW.heads <> (SELECT count(*) FROM disputes_anchoredhead WHERE anchor_id = NEW.number)
    OR NEW.number > 1 AND NOT EXISTS (
        SELECT FROM disputes_anchor WHERE number = NEW.number - 1 AND hash = NEW.prev_hash
    ) THEN
        RAISE EXCEPTION 'an anchor follows the one before it and counts its heads'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER anchor_follows_the_one_before BEFORE INSERT ON disputes_anchor
    FOR EACH ROW EXECUTE FUNCTION refuse_unproven_anchor();
"""

ERASED_NOTES = """
CREATE TRIGGER note_is_only_erased BEFORE UPDATE ON disputes_note
    FOR EACH ROW
    WHEN (NEW.text <> '' OR NEW.erased_at IS NULL OR NEW.id <> OLD.id
          OR NEW.dispute_id <> OLD.dispute_id OR NEW.version <> OLD.version)
    EXECUTE FUNCTION refuse_rewriting('a note can be erased, not changed');
CREATE TRIGGER notes_stay BEFORE DELETE ON disputes_note
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting('a note can be erased, not changed');
"""

PINNED = """
ALTER FUNCTION keep_published_tier() SET search_path = pg_catalog, public, pg_temp;
ALTER FUNCTION keep_published_revision() SET search_path = pg_catalog, public, pg_temp;
"""

UNDO = """
ALTER FUNCTION keep_published_revision() RESET search_path;
ALTER FUNCTION keep_published_tier() RESET search_path;
DROP TRIGGER notes_stay ON disputes_note;
DROP TRIGGER note_is_only_erased ON disputes_note;
DROP TRIGGER anchor_follows_the_one_before ON disputes_anchor;
DROP TRIGGER head_is_in_the_log ON disputes_anchoredhead;
DROP TRIGGER entry_is_written_with_its_change ON disputes_auditentry;
DROP FUNCTION refuse_unproven_anchor, refuse_unproven_head, refuse_unproven_entry;
DROP TRIGGER heads_are_never_emptied ON disputes_anchoredhead;
DROP TRIGGER heads_are_append_only ON disputes_anchoredhead;
DROP TRIGGER anchors_are_never_emptied ON disputes_anchor;
DROP TRIGGER anchors_are_append_only ON disputes_anchor;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("disputes", "0002_guards"),
    ]

    operations = [
        migrations.CreateModel(
            name="Anchor",
            fields=[
                (
                    "number",
                    models.PositiveIntegerField(
                        primary_key=True, serialize=False, verbose_name="number"
                    ),
                ),
                ("at", models.DateTimeField(verbose_name="at")),
                ("disputes", models.PositiveBigIntegerField(verbose_name="disputes")),
                ("entries", models.PositiveBigIntegerField(verbose_name="entries")),
                ("heads", models.PositiveIntegerField(verbose_name="heads")),
                ("prev_hash", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64)),
                ("newest_id", models.BigIntegerField()),
                ("next_xid", models.BigIntegerField()),
                ("settled_id", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "anchor",
                "verbose_name_plural": "anchors",
                "constraints": [
                    models.UniqueConstraint(models.F("prev_hash"), name="anchors_never_fork"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("number", 1),
                                (
                                    "prev_hash",
                                    "0000000000000000000000000000000000000000000000000000000000000000",
                                ),
                            ),
                            models.Q(
                                ("number__gt", 1),
                                models.Q(
                                    (
                                        "prev_hash",
                                        "0000000000000000000000000000000000000000000000000000000000000000",
                                    ),
                                    _negated=True,
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="first_anchor_starts_with_zeros",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AnchoredHead",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "anchor_id",
                        "dispute_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("dispute_id", models.UUIDField()),
                ("version", models.PositiveIntegerField()),
                ("hash", models.CharField(max_length=64)),
                (
                    "anchor",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="disputes.anchor",
                    ),
                ),
            ],
            options={
                "verbose_name": "anchored head",
                "verbose_name_plural": "anchored heads",
                "indexes": [
                    models.Index(
                        models.F("dispute_id"), models.F("version"), name="head_by_dispute"
                    )
                ],
            },
        ),
        migrations.RunSQL(
            APPEND_ONLY + PROVEN_ENTRIES + PROVEN_ANCHORS + ERASED_NOTES + PINNED, UNDO
        ),
    ]
