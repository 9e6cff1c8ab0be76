"""What else the database refuses of a forger in the application: false anchors, false notes."""

from datetime import UTC, datetime

from django.db import migrations, models
from django.db.models import Q

EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

# Nobody erased by our code so far; by hand, the salt may have been left, and it gives short texts
# away.
EMPTIED = """
UPDATE disputes_note SET text = '', salt = ''
WHERE erased_at IS NOT NULL AND (text <> '' OR salt <> '');
"""

# The search path and the ways of planning are pinned for the reasons that 0003_anchors gives.
SEALED_ANCHORS = """
CREATE FUNCTION refuse_unsealed_anchor() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    before disputes_anchor;
    sealed text;
    disputes_now bigint := (SELECT count(*) FROM disputes_dispute);
    entries_now bigint := (SELECT count(*) FROM disputes_auditentry);
    settled bigint;
BEGIN
    SELECT * INTO before FROM disputes_anchor WHERE number = NEW.number - 1;
    sealed := format('[%s,"%s","%s",%s,%s,%s]', NEW.number, NEW.prev_hash,
        to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        NEW.disputes, NEW.entries, NEW.heads)
        || coalesce((SELECT string_agg(format(E'\\n%s %s %s', dispute_id, version, hash), ''
            ORDER BY dispute_id) FROM disputes_anchoredhead WHERE anchor_id = NEW.number), '');
    IF NEW.hash <> encode(sha256(convert_to(sealed, 'UTF8')), 'hex') THEN
        RAISE EXCEPTION 'the hash of anchor % is not that of its values and heads', NEW.number
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- Fewer than before only where there really are fewer: anchoring goes on after a purge.
    IF NEW.disputes > disputes_now OR NEW.entries > entries_now
    OR NEW.disputes < before.disputes AND before.disputes <= disputes_now
    OR NEW.entries < before.entries AND before.entries <= entries_now THEN
        RAISE EXCEPTION 'anchor % does not count what is there', NEW.number
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- What no later anchor looks at again. An entry must have been looked at, and nothing that
    -- was in flight then may be in flight still.
    settled := (SELECT newest_id FROM disputes_anchor
        WHERE next_xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        ORDER BY number DESC LIMIT 1);
    IF NEW.newest_id > coalesce((SELECT max(id) FROM disputes_auditentry), 0)
    OR NEW.settled_id > greatest(coalesce(before.settled_id, 0),
        least(NEW.newest_id, coalesce(settled, 0))) THEN
        RAISE EXCEPTION 'anchor % would leave entries out for ever', NEW.number
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER anchor_is_what_it_seals BEFORE INSERT ON disputes_anchor
    FOR EACH ROW EXECUTE FUNCTION refuse_unsealed_anchor();
"""

# Both ways: a note is that of its entry, and an entry with a digest has its note from the start.
PROVEN_NOTES = """
CREATE FUNCTION refuse_unproven_note() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM disputes_auditentry
        WHERE dispute_id = NEW.dispute_id AND version = NEW.version AND reason
            = 'sha256:' || encode(sha256(convert_to(NEW.salt || ':' || NEW.text, 'UTF8')), 'hex')
    ) THEN
        RAISE EXCEPTION 'a note is written after the audit entry that has its digest'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER note_is_that_of_its_entry BEFORE INSERT ON disputes_note
    FOR EACH ROW EXECUTE FUNCTION refuse_unproven_note();

CREATE FUNCTION refuse_entry_without_note() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM disputes_note WHERE dispute_id = NEW.dispute_id AND version = NEW.version
    ) THEN
        RAISE EXCEPTION 'an audit entry with the digest of a note is written with that note'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER entry_has_the_note_it_names AFTER INSERT ON disputes_auditentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.reason LIKE 'sha256:%')
    EXECUTE FUNCTION refuse_entry_without_note();

CREATE TRIGGER notes_are_never_emptied BEFORE TRUNCATE ON disputes_note
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting('a note can be erased, not changed');
"""

UNDO = """
DROP TRIGGER notes_are_never_emptied ON disputes_note;
DROP TRIGGER entry_has_the_note_it_names ON disputes_auditentry;
DROP TRIGGER note_is_that_of_its_entry ON disputes_note;
DROP TRIGGER anchor_is_what_it_seals ON disputes_anchor;
DROP FUNCTION refuse_entry_without_note, refuse_unproven_note, refuse_unsealed_anchor;
"""


class Migration(migrations.Migration):
    dependencies = [("disputes", "0003_anchors")]

    operations = [
        migrations.RunSQL(EMPTIED, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="note",
            constraint=models.CheckConstraint(
                condition=Q(erased_at__isnull=True) | Q(text="", salt=""),
                name="erased_note_is_empty",
            ),
        ),
        migrations.AddConstraint(
            model_name="anchor",
            constraint=models.CheckConstraint(
                condition=Q(at__gte=EARLIEST, at__lt=LATEST),
                name="anchor_instant_is_sane",
            ),
        ),
        migrations.RunSQL(SEALED_ANCHORS + PROVEN_NOTES, UNDO),
    ]
