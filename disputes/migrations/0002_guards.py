"""What the database promises: append-only audit, one version per change, frozen revisions."""

from django.db import migrations

VERSION_AND_AUDIT = """
-- The row's version always has its audit entry (checked at commit: the row comes first).
ALTER TABLE disputes_dispute
    ADD CONSTRAINT dispute_version_has_its_audit_entry
    FOREIGN KEY (id, version) REFERENCES disputes_auditentry (dispute_id, version)
    DEFERRABLE INITIALLY DEFERRED;

CREATE FUNCTION refuse_dispute_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'dispute % may not change from version % to % this way: % ', OLD.id,
        OLD.version, NEW.version, TG_ARGV[0]
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER every_change_is_one_version BEFORE UPDATE ON disputes_dispute
    FOR EACH ROW
    WHEN (NEW.version IS DISTINCT FROM OLD.version + 1 AND NEW IS DISTINCT FROM OLD)
    EXECUTE FUNCTION refuse_dispute_change('every change is exactly one new version');

CREATE TRIGGER identity_never_changes BEFORE UPDATE ON disputes_dispute
    FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.source <> OLD.source OR NEW.reference <> OLD.reference
          OR NEW.arrival <> OLD.arrival)
    EXECUTE FUNCTION refuse_dispute_change('id, source, reference and arrival are for life');

CREATE TRIGGER resolved_only_reopens BEFORE UPDATE ON disputes_dispute
    FOR EACH ROW
    WHEN (OLD.status = 'resolved' AND NEW.status NOT IN ('resolved', 'open'))
    EXECUTE FUNCTION refuse_dispute_change('a resolved dispute can only be reopened');

CREATE TRIGGER numbers_only_grow BEFORE UPDATE ON disputes_dispute
    FOR EACH ROW
    WHEN (NEW.deadlines_issued < OLD.deadlines_issued)
    EXECUTE FUNCTION refuse_dispute_change('deadline numbers only grow');

CREATE FUNCTION refuse_first_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a dispute starts at version 1, not %', NEW.version
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER starts_at_version_one BEFORE INSERT ON disputes_dispute
    FOR EACH ROW WHEN (NEW.version <> 1) EXECUTE FUNCTION refuse_first_version();
"""

APPEND_ONLY = """
CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON disputes_auditentry
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting('the audit log is append-only');
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON disputes_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting('the audit log is append-only');
CREATE TRIGGER disputes_stay BEFORE DELETE ON disputes_dispute
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting('disputes are resolved, not deleted');
CREATE TRIGGER disputes_are_never_emptied BEFORE TRUNCATE ON disputes_dispute
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting('disputes are resolved, not deleted');
"""

DELIVERY_FACTS = """
CREATE TRIGGER a_delivery_is_never_unsaid BEFORE UPDATE ON disputes_notification
    FOR EACH ROW WHEN (OLD.status = 'sent' AND NEW.status <> 'sent')
    EXECUTE FUNCTION refuse_rewriting('what was sent was sent');
"""

FROZEN_REVISIONS = """
CREATE FUNCTION refuse_revision_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a published revision never changes: copy it into a draft'
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE FUNCTION keep_published_revision() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wanted disputes_ladderrevision;
BEGIN
    wanted := OLD;
    wanted.state := 'retired';
    IF OLD.state = 'live' AND NEW IS NOT DISTINCT FROM wanted THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a published revision never changes: copy it into a draft'
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER published_revision_stays BEFORE UPDATE ON disputes_ladderrevision
    FOR EACH ROW WHEN (OLD.state <> 'draft' AND NEW IS DISTINCT FROM OLD)
    EXECUTE FUNCTION keep_published_revision();
CREATE TRIGGER published_revision_is_not_deleted BEFORE DELETE ON disputes_ladderrevision
    FOR EACH ROW WHEN (OLD.state <> 'draft') EXECUTE FUNCTION refuse_revision_change();
CREATE TRIGGER revision_starts_as_draft BEFORE INSERT ON disputes_ladderrevision
    FOR EACH ROW WHEN (NEW.state <> 'draft') EXECUTE FUNCTION refuse_revision_change();

CREATE FUNCTION keep_published_tier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Locked, so that a tier cannot slip into a draft that is being published this moment.
    PERFORM FROM disputes_ladderrevision
        WHERE id IN (CASE WHEN TG_OP <> 'INSERT' THEN OLD.revision_id END,
                     CASE WHEN TG_OP <> 'DELETE' THEN NEW.revision_id END)
        ORDER BY id FOR SHARE;
    IF EXISTS (SELECT FROM disputes_ladderrevision
               WHERE state <> 'draft'
               AND id IN (CASE WHEN TG_OP <> 'INSERT' THEN OLD.revision_id END,
                          CASE WHEN TG_OP <> 'DELETE' THEN NEW.revision_id END)) THEN
        RAISE EXCEPTION 'a published revision never changes: copy it into a draft'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER published_tier_stays BEFORE INSERT OR UPDATE OR DELETE ON disputes_tier
    FOR EACH ROW EXECUTE FUNCTION keep_published_tier();
"""

UNDO = """
DROP TRIGGER published_tier_stays ON disputes_tier;
DROP TRIGGER revision_starts_as_draft ON disputes_ladderrevision;
DROP TRIGGER published_revision_is_not_deleted ON disputes_ladderrevision;
DROP TRIGGER published_revision_stays ON disputes_ladderrevision;
DROP FUNCTION keep_published_tier, keep_published_revision, refuse_revision_change;
DROP TRIGGER a_delivery_is_never_unsaid ON disputes_notification;
DROP TRIGGER disputes_are_never_emptied ON disputes_dispute;
DROP TRIGGER disputes_stay ON disputes_dispute;
DROP TRIGGER audit_is_never_emptied ON disputes_auditentry;
DROP TRIGGER audit_is_append_only ON disputes_auditentry;
DROP FUNCTION refuse_rewriting;
DROP TRIGGER starts_at_version_one ON disputes_dispute;
DROP TRIGGER numbers_only_grow ON disputes_dispute;
DROP TRIGGER resolved_only_reopens ON disputes_dispute;
DROP TRIGGER identity_never_changes ON disputes_dispute;
DROP TRIGGER every_change_is_one_version ON disputes_dispute;
DROP FUNCTION refuse_first_version, refuse_dispute_change;
ALTER TABLE disputes_dispute DROP CONSTRAINT dispute_version_has_its_audit_entry;
"""


class Migration(migrations.Migration):
    dependencies = [("disputes", "0001_records")]
    operations = [
        migrations.RunSQL(
            VERSION_AND_AUDIT + APPEND_ONLY + DELIVERY_FACTS + FROZEN_REVISIONS, UNDO
        ),
    ]
