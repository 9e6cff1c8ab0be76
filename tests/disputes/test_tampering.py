"""Somebody who tampers: refused in the application, found with the database's owner behind them.

The story: dispute `story` has five versions; anchor 1 saw version 3 of it, anchor 2 version 5.
"""

import io
import json
from datetime import UTC, datetime

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from disputes import audit
from disputes.anchors import Seal, SealHash, anchor_duty, stored_chain
from disputes.audit import (
    FOLDED,
    ZEROS,
    canonical,
    digest_of_note,
    entry_hash,
    fold,
    sealed_values,
)
from disputes.ladders import copy_to_draft
from disputes.models import Anchor, AnchoredHead, AuditEntry, Dispute, LadderRevision, Note, Tier
from disputes.transitions.deadlines import promote
from disputes.transitions.moving import escalate
from disputes.transitions.reviewing import acknowledge, release
from tests.conftest import empty_all_tables
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

GUARD = "23001"  # restrict_violation: what our triggers raise
FORBIDDEN = "42501"  # insufficient_privilege
GUARDED = ("dispute", "auditentry", "note", "anchor", "anchoredhead", "notification")
LATER = NOON + 4 * HOUR


@pytest.fixture
def story():
    default_ladder()
    ada = person("ada", "standard", "senior")
    dispute = opened()
    opened()
    promote([dispute.pk], now=dispute.due_at)
    acknowledge(dispute.pk, actor=ada, seen_version=2, now=NOON + 3 * HOUR)
    assert anchor_duty(now=NOON + 3 * HOUR) == 2
    release(dispute.pk, actor=ada, reason="not mine", now=NOON + 3 * HOUR + MINUTE)
    escalate(dispute.pk, actor=ada, reason="too large", now=NOON + 3 * HOUR + 2 * MINUTE)
    assert anchor_duty(now=LATER) == 1
    return again(dispute)


@pytest.fixture
def tamper(owner_connection):
    """Calls run as the owner with every guard off; what the keys say still holds at the end."""

    def change(*statements: str, **values: object) -> None:
        with owner_connection.transaction():
            owner_connection.execute("SET CONSTRAINTS ALL DEFERRED")
            for table in GUARDED:
                owner_connection.execute(f"ALTER TABLE disputes_{table} DISABLE TRIGGER USER")
            for statement in statements:
                owner_connection.execute(statement, values or None)
            owner_connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            for table in GUARDED:
                owner_connection.execute(f"ALTER TABLE disputes_{table} ENABLE TRIGGER USER")

    return change


def found(*words: str) -> dict:
    """What `verify_audit` names; its exit code agrees."""
    out, code = io.StringIO(), 0
    try:
        call_command("verify_audit", *words, "--json", stdout=out)
    except SystemExit as stop:
        code = stop.code
    report = json.loads(out.getvalue())
    named = {
        "entries": [(f["dispute"], f["version"], f["what"]) for f in report["faults"]],
        "anchors": [(f["anchor"], f["what"]) for f in report["anchor_faults"]],
    }
    assert code == (1 if any(named.values()) else 0)
    return named


def refused_with(call) -> str:
    with pytest.raises((DatabaseError, psycopg.Error)) as refusal:
        call()
    error = refusal.value
    return getattr(error, "sqlstate", None) or error.__cause__.sqlstate


def in_sql(*statements: str):
    """As the application's role, in one transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def picture() -> dict[str, list]:
    models = (Dispute, AuditEntry, Note, Anchor, AnchoredHead)
    return {model.__name__: sorted(model.objects.values_list(), key=str) for model in models}


def entry(story: Dispute, version: int) -> AuditEntry:
    return AuditEntry.objects.get(dispute=story, version=version)


# Refused: the application


def test_bug_53_nobody_tampers_in_the_admin_site_not_even_a_superuser(story):
    root = get_user_model().objects.create_superuser("root", "root@example.com", "pw")
    client = Client()
    client.force_login(root)
    before = picture()
    for thing in (story, entry(story, 3)):
        name = thing._meta.model_name
        for page, args in (("change", [thing.pk]), ("delete", [thing.pk]), ("add", [])):
            address = reverse(f"admin:disputes_{name}_{page}", args=args)
            assert client.post(address, {"post": "yes", "reason": "x"}).status_code == 403
        selected = {"action": "delete_selected", "_selected_action": [thing.pk], "post": "yes"}
        address = reverse(f"admin:disputes_{name}_changelist")
        assert client.post(address, selected).status_code in (200, 302, 403)
    assert picture() == before


def _with(thing, **values):
    for name, value in values.items():
        setattr(thing, name, value)
    return thing


THROUGH_THE_ORM = {
    "entry saved": lambda s: _with(entry(s, 3), actor_label="x").save(),
    "entry deleted": lambda s: entry(s, 5).delete(),
    "entries updated": lambda s: AuditEntry.objects.update(actor_label="x"),
    "entries deleted": lambda s: AuditEntry.objects.all().delete(),
    "entries in bulk": lambda s: AuditEntry.objects.bulk_update(
        [_with(entry(s, 3), reason="x")], ["reason"]
    ),
    "anchor saved": lambda s: _with(Anchor.objects.get(number=1), entries=1).save(),
    "anchor deleted": lambda s: Anchor.objects.filter(number=2)._raw_delete("default"),
    "heads updated": lambda s: AnchoredHead.objects.update(version=1),
    "heads deleted": lambda s: AnchoredHead.objects.all().delete(),
    "dispute updated": lambda s: Dispute.objects.filter(pk=s.pk).update(band="high"),
    "dispute deleted": lambda s: Dispute.objects.filter(pk=s.pk)._raw_delete("default"),
    "note updated": lambda s: Note.objects.update(text="as agreed"),
    "note deleted": lambda s: Note.objects.all().delete(),
}


@pytest.mark.parametrize("way", THROUGH_THE_ORM)
def test_the_orm_is_refused(way, story):
    before = picture()
    assert refused_with(lambda: THROUGH_THE_ORM[way](story)) in (FORBIDDEN, GUARD)
    assert picture() == before


IN_SQL = [
    f"{words} disputes_{table}{rest}"
    for table in ("auditentry", "anchor", "anchoredhead")
    for words, rest in (
        ("UPDATE", " SET hash = repeat('f', 64)"),
        ("DELETE FROM", ""),
        ("TRUNCATE", " CASCADE"),
    )
]


@pytest.mark.parametrize("statement", IN_SQL)
def test_sql_is_refused_to_the_application_by_its_rights_and_to_the_owner_by_triggers(
    statement, story, owner_connection
):
    before = picture()
    assert refused_with(lambda: in_sql(statement)) == FORBIDDEN
    assert refused_with(lambda: owner_connection.execute(statement)) == GUARD
    assert picture() == before


def forged(story: Dispute, *, version: int, note: str = "", **other) -> AuditEntry:
    """An entry with a sound hash, that follows the entry before it; not saved."""
    last = AuditEntry.objects.filter(dispute=story, version__lt=version).latest("version")
    made = _with(last, pk=None, version=version, prev_hash=last.hash, deadline_no=None)
    made._state.adding = True
    reason = digest_of_note("salt", note) if note else ""
    _with(made, action="released", changes={}, reason=reason, **other)
    return _with(made, hash=entry_hash(sealed_values(made)))


def test_an_entry_of_the_future_is_refused(story):
    before = picture()
    assert refused_with(lambda: forged(story, version=6).save(force_insert=True)) == GUARD
    assert refused_with(lambda: forged(story, version=7).save(force_insert=True)) == GUARD
    assert picture() == before


ADVANCE = (
    "UPDATE disputes_dispute SET version = 6, audit_head = '{}', changed_at = now() WHERE id = '{}'"
)
LIES = {
    "another hash than the row's": {"hash": "f" * 64},
    "not following the one before": {"prev_hash": "e" * 64},
    "another status than the row's": {"to_status": "resolved"},
    "another deadline than the row's": {"to_due_at": LATER},
}


@pytest.mark.parametrize("lie", LIES)
def test_an_entry_that_does_not_fit_its_row_is_refused(lie, story):
    made = forged(story, version=6)
    head = made.hash

    def write():
        with transaction.atomic():
            in_sql(ADVANCE.format(head, story.pk))
            _with(made, **LIES[lie]).save(force_insert=True)

    assert refused_with(write) == GUARD
    assert again(story).version == 5


def test_the_same_entry_that_fits_its_row_is_taken(story):
    made = forged(story, version=6)
    with transaction.atomic():
        in_sql(ADVANCE.format(made.hash, story.pk))
        made.save(force_insert=True)
    assert again(story).version == 6
    ((_, version, what),) = found()["entries"]
    assert version == 6, "changed_at moved, and no entry says so"
    assert "changed_at is" in what


SHADOW = "CREATE TEMPORARY TABLE {0} (LIKE public.{0} INCLUDING DEFAULTS)"


def test_a_temporary_table_does_not_stand_in_for_the_real_one_in_a_guard(story):
    made = forged(story, version=6)
    head = made.hash
    columns = ", ".join(field.column for field in Dispute._meta.concrete_fields)
    values = columns.replace("audit_head", f"'{head}'").replace(" version,", " 6,")

    def write():
        with transaction.atomic():
            in_sql(
                SHADOW.format("disputes_dispute"),
                f"INSERT INTO pg_temp.disputes_dispute ({columns})"
                f" SELECT {values} FROM public.disputes_dispute WHERE id = '{story.pk}'",
            )
            made.save(force_insert=True)

    assert refused_with(write) == GUARD
    connection.close()


def test_a_temporary_table_does_not_open_a_published_revision(story):
    copy_to_draft(LadderRevision.objects.get())

    def write():
        in_sql(
            SHADOW.format("disputes_ladderrevision"),
            "UPDATE disputes_tier SET sla = '1 s' WHERE position = 1",
        )

    assert refused_with(write) == GUARD
    assert Tier.objects.filter(sla=2 * HOUR).count() == 6
    connection.close()


def test_an_anchor_that_is_closed_takes_no_further_head(story):
    other = Dispute.objects.exclude(pk=story.pk).get()
    late = AnchoredHead(
        anchor_id=2, dispute_id=other.pk, version=other.version, hash=other.audit_head
    )
    assert refused_with(lambda: late.save(force_insert=True)) == GUARD


def test_a_head_that_is_not_in_the_log_is_refused(story):
    for version, hash_ in ((6, story.audit_head), (5, "f" * 64)):
        lie = AnchoredHead(anchor_id=3, dispute_id=story.pk, version=version, hash=hash_)
        assert refused_with(lambda lie=lie: lie.save(force_insert=True)) == GUARD


@pytest.mark.parametrize(
    "other", [{"number": 4}, {"prev_hash": "e" * 64}, {"heads": 1}], ids=lambda o: next(iter(o))
)
def test_an_anchor_follows_the_newest_and_counts_its_heads(other, story):
    newest = Anchor.objects.get(number=2)
    values = {"number": 3, "prev_hash": newest.hash, "heads": 0, "hash": "d" * 64} | other
    lie = Anchor(at=LATER, disputes=2, entries=6, newest_id=6, next_xid=1, settled_id=0, **values)
    assert refused_with(lambda: lie.save(force_insert=True)) == GUARD


def sealed(**values) -> Anchor:
    """Anchor 3 without heads, with these values and the hash that goes with them; not saved."""
    newest = Anchor.objects.get(number=2)
    made = Anchor(
        number=3,
        **{"at": LATER, "disputes": 2, "entries": 6, "heads": 0, "prev_hash": newest.hash},
        **{"newest_id": newest.newest_id, "next_xid": newest.next_xid, "settled_id": 0},
    )
    _with(made, **values)
    counts = (made.disputes, made.entries, made.heads)
    seal = Seal(3, str(canonical("at", made.at)), *counts, made.prev_hash, "")
    return _with(made, hash=values.get("hash") or SealHash(seal).hexdigest())


FALSE_ANCHORS = {
    "another hash": {"hash": "d" * 64},
    "fewer disputes": {"disputes": 0},
    "more disputes": {"disputes": 3},
    "fewer entries": {"entries": 5},
    "more entries": {"entries": 7},
    "entries that are not there yet": {"newest_id": 2**40},
    "nothing left to look at": {"settled_id": 2**40},
}


@pytest.mark.parametrize("lie", FALSE_ANCHORS)
def test_an_anchor_that_is_false_is_refused_though_it_adds_up(lie, story):
    assert refused_with(lambda: sealed(**FALSE_ANCHORS[lie]).save(force_insert=True)) == GUARD
    sealed().save(force_insert=True)
    assert found() == {"entries": [], "anchors": []}


def test_an_anchor_of_no_year_that_anybody_can_read_is_refused(story):
    far = datetime(2200, 1, 1, tzinfo=UTC)
    assert refused_with(lambda: sealed(at=far).save(force_insert=True)) == "23514"


def test_anchoring_goes_on_after_a_purge(story, tamper):
    tamper(*deleted(story))
    assert anchor_duty(now=LATER + HOUR) == 0
    assert Anchor.objects.get(number=3).disputes == 1


ERASE = "UPDATE disputes_note SET text = '', salt = '', erased_at = now() WHERE version = 4"
NO_ERASURES = {
    "with the text left": ("UPDATE disputes_note SET erased_at = now()", GUARD),
    "with another text": ("UPDATE disputes_note SET text = 'forged', erased_at = now()", GUARD),
    "with the salt left": ("UPDATE disputes_note SET text = '', erased_at = now()", "23514"),
    "with no word of it": ("UPDATE disputes_note SET text = '', salt = ''", GUARD),
    "with the row": ("DELETE FROM disputes_note", GUARD),
    "all at once": ("TRUNCATE disputes_note", GUARD),
}


def test_a_note_is_erased_by_the_owner_once_and_for_all(story, owner_connection):
    assert refused_with(lambda: in_sql(ERASE)) == FORBIDDEN
    owner_connection.execute(ERASE)
    back = "UPDATE disputes_note SET text = 'back', erased_at = NULL WHERE version = 4"
    assert refused_with(lambda: owner_connection.execute(back)) == GUARD
    assert found() == {"entries": [], "anchors": []}


@pytest.mark.parametrize("way", NO_ERASURES)
def test_a_note_is_erased_in_no_other_way_not_even_by_the_owner(way, story, owner_connection):
    statement, code = NO_ERASURES[way]
    before = picture()
    assert refused_with(lambda: owner_connection.execute(statement)) == code
    assert picture() == before


@pytest.mark.parametrize(
    "version", [2, 3, 6], ids=["with no note", "with no note either", "of the future"]
)
def test_a_note_for_an_entry_that_has_none_is_refused(version, story):
    lie = Note(dispute=story, version=version, salt="salt", text="as agreed")
    assert refused_with(lambda: lie.save(force_insert=True)) == GUARD


def test_a_note_of_another_text_than_its_entry_has_is_refused(story):
    """Even where the real one is not there: the row comes first, the note with its digest."""
    made = forged(story, version=6, note="as agreed")
    lie = Note(dispute=story, version=6, salt="salt", text="as denied")

    def write():
        with transaction.atomic():
            in_sql(ADVANCE.format(made.hash, story.pk))
            made.save(force_insert=True)
            lie.save(force_insert=True)

    assert refused_with(write) == GUARD


@pytest.mark.parametrize("with_note", [True, False])
def test_an_entry_with_a_digest_comes_with_its_note(with_note, story):
    made = forged(story, version=6, note="as agreed")

    def write():
        with transaction.atomic():
            in_sql(ADVANCE.format(made.hash, story.pk))
            made.save(force_insert=True)
            if with_note:
                Note.objects.create(dispute=story, version=6, salt="salt", text="as agreed")

    if with_note:
        write()
    else:
        assert refused_with(write) == GUARD
    assert again(story).version == (6 if with_note else 5)


# Found: the owner, with every guard off


def rolled_back(story: Dispute, version: int) -> tuple[str, ...]:
    """Statements that take a dispute back to an earlier version so that all of it adds up."""
    entries = list(AuditEntry.objects.filter(dispute=story, version__lte=version))
    row = json.dumps(fold(entries)).replace("'", "''")
    columns = ", ".join(FOLDED)
    return (
        f"UPDATE disputes_dispute SET version = {version}, audit_head = '{entries[-1].hash}',"
        f" ({columns}) = (SELECT {columns} FROM"
        f" json_populate_record(null::disputes_dispute, '{row}')) WHERE id = '{story.pk}'",
        f"DELETE FROM disputes_notification WHERE dispute_id = '{story.pk}'"
        f" AND version > {version}",
        f"DELETE FROM disputes_note WHERE dispute_id = '{story.pk}' AND version > {version}",
        f"DELETE FROM disputes_auditentry WHERE dispute_id = '{story.pk}' AND version > {version}",
    )


def test_nothing_is_found_in_an_honest_database(story):
    assert found() == {"entries": [], "anchors": []}
    assert found("--dispute", str(story.pk)) == {"entries": [], "anchors": []}


@pytest.mark.parametrize(("version", "anchor", "saw"), [(4, 2, 5), (3, 2, 5), (2, 1, 3)])
def test_a_tail_cut_with_its_row_taken_back_is_named_by_its_first_missing_entry(
    version, anchor, saw, story, tamper
):
    tamper(*rolled_back(story, version))
    assert [fault for fault in audit.verify() if fault] == [], "the chain alone does not show it"
    what = f"the entry is missing, anchor {anchor} saw version {saw}"
    named = found()
    assert named["entries"] == [(str(story.pk), version + 1, what)]
    assert named["anchors"] == [(2, f"6 entries at anchor 2, {version + 1} now")]
    assert found("--dispute", str(story.pk))["entries"] == named["entries"]
    broken = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("audit_invariants", stdout=broken)
    assert f"  {story.pk} version {version + 1}: {what}\n" in broken.getvalue()


def test_a_tail_that_was_cut_and_grew_again_is_named(story, tamper):
    tamper(*rolled_back(story, 4))
    ada = get_user_model().objects.get(username="ada")
    acknowledge(story.pk, actor=ada, seen_version=4, now=LATER)
    what = "is not the entry that anchor 2 saw"
    assert found() == {"entries": [(str(story.pk), 5, what)], "anchors": []}


def deleted(story: Dispute) -> tuple[str, ...]:
    where = f"WHERE dispute_id = '{story.pk}'"
    return (
        f"DELETE FROM disputes_notification {where}",
        f"DELETE FROM disputes_note {where}",
        f"DELETE FROM disputes_auditentry {where}",
        f"DELETE FROM disputes_dispute WHERE id = '{story.pk}'",
    )


def test_a_dispute_deleted_with_all_its_entries_is_named(story, tamper):
    tamper(*deleted(story))
    assert not Dispute.objects.filter(pk=story.pk).exists()
    assert [fault for fault in audit.verify() if fault] == []
    what = "all its log is gone, anchor 1 saw version 3"
    assert found() == {
        "entries": [(str(story.pk), 1, what)],
        "anchors": [
            (2, "2 disputes at anchor 2, 1 now"),
            (2, "6 entries at anchor 2, 1 now"),
        ],
    }
    assert found("--dispute", str(story.pk))["entries"] == [(str(story.pk), 1, what)]


@pytest.fixture
def keyless(owner_connection):
    """No foreign key to a dispute holds, as with a superuser's session_replication_role."""
    keys = owner_connection.execute(
        "SELECT conrelid::regclass, quote_ident(conname), pg_get_constraintdef(oid)"
        " FROM pg_constraint WHERE contype = 'f' AND confrelid = 'disputes_dispute'::regclass"
    ).fetchall()
    for table, key, _ in keys:
        owner_connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {key}")
    yield
    empty_all_tables()
    for table, key, definition in keys:
        owner_connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {key} {definition}")


# What of a dispute is left when its row is gone; anchor 1 never saw its first version.
LEFT = {"later entries": "auditentry", "notes": "note", "messages": "notification"}


@pytest.mark.parametrize("left", LEFT)
def test_a_dispute_that_left_anything_behind_is_named_also_after_others_came(
    left, story, file, tamper, keyless
):
    remove = [words for words in deleted(story) if f"disputes_{LEFT[left]} " not in words]
    where = f"WHERE dispute_id = '{story.pk}' AND version = 1"
    tamper(*remove, *[f"DELETE FROM disputes_auditentry {where}"] * (left == "later entries"))
    expected = [(str(story.pk), 1, "the dispute's row is gone")]
    assert found()["entries"] == expected
    for _ in range(2):
        opened()
    assert found()["entries"] == found("--anchors", file)["entries"] == expected
    assert found("--dispute", str(story.pk))["entries"] == expected


def test_one_that_only_a_message_remembers_is_gone_and_not_unknown(story, tamper, keyless):
    young = opened()
    tamper(*[words for words in deleted(young) if "disputes_notification" not in words])
    expected = [(str(young.pk), 1, "the dispute's row is gone")]
    assert found()["entries"] == found("--dispute", str(young.pk))["entries"] == expected


def rewritten(story: Dispute, *, since: int, **values) -> list[str]:
    """Statements that change one entry and make every later hash, and the row's, anew."""
    statements, prev_hash = [], None
    for old in AuditEntry.objects.filter(dispute=story, version__gte=since).order_by("version"):
        _with(old, prev_hash=prev_hash or old.prev_hash, **(values if not prev_hash else {}))
        prev_hash = entry_hash(sealed_values(old))
        statements.append(
            f"UPDATE disputes_auditentry SET actor_label = '{old.actor_label}',"
            f" prev_hash = '{old.prev_hash}', hash = '{prev_hash}' WHERE id = {old.pk}"
        )
    head = f"UPDATE disputes_dispute SET audit_head = '{prev_hash}' WHERE id = '{story.pk}'"
    return [*statements, head]


@pytest.mark.parametrize(("since", "version", "anchor"), [(3, 3, 1), (5, 5, 2)])
def test_a_history_rewritten_down_to_the_row_is_named_by_the_anchor_that_saw_it(
    since, version, anchor, story, tamper
):
    tamper(*rewritten(story, since=since, actor_label="somebody else"))
    assert [fault for fault in audit.verify() if fault] == [], "the chain alone does not show it"
    what = f"is not the entry that anchor {anchor} saw"
    assert found() == {"entries": [(str(story.pk), version, what)], "anchors": []}


ONE_ENTRY = "UPDATE disputes_auditentry SET {} WHERE version = {} AND dispute_id = '{}'"


def test_an_entry_in_the_middle_altered_is_named(story, tamper):
    tamper(ONE_ENTRY.format("actor_label = 'x'", 2, story.pk))
    what = "was altered after it was written"
    assert found() == {"entries": [(str(story.pk), 2, what)], "anchors": []}


def test_an_entry_in_the_middle_altered_with_its_hash_made_anew_is_named_by_the_next(story, tamper):
    tamper(rewritten(story, since=2, actor_label="x")[0])
    what = "does not follow the entry before it"
    assert found() == {"entries": [(str(story.pk), 3, what)], "anchors": []}


def test_entries_in_another_order_are_named_at_the_first(story, tamper):
    tamper(
        ONE_ENTRY.format("version = 99", 2, story.pk),
        ONE_ENTRY.format("version = 2", 3, story.pk),
        ONE_ENTRY.format("version = 3", 99, story.pk),
    )
    what = "does not follow the entry before it"
    assert found() == {"entries": [(str(story.pk), 2, what)], "anchors": []}


def test_a_forged_entry_of_the_future_is_named(story, tamper):
    made = forged(story, version=6)
    columns = [field for field in AuditEntry._meta.concrete_fields if field.column != "id"]
    names = ", ".join(f'"{field.column}"' for field in columns)
    other = {"version": "6", "hash": f"'{made.hash}'", "prev_hash": f"'{made.prev_hash}'"}
    other |= {"action": "'released'", "changes": "'{}'", "reason": "''"}
    values = ", ".join(other.get(field.column, f'"{field.column}"') for field in columns)
    tamper(
        f"INSERT INTO disputes_auditentry ({names}) SELECT {values} FROM disputes_auditentry"
        f" WHERE dispute_id = '{story.pk}' AND version = 5"
    )
    assert found() == {
        "entries": [(str(story.pk), 6, "its row never had this version")],
        "anchors": [],
    }


def test_a_row_altered_alone_is_named_with_what_the_log_says(story, tamper):
    tamper(f"UPDATE disputes_dispute SET band = 'high' WHERE id = '{story.pk}'")
    what = "band is 'high', the log says 'medium'"
    assert found() == {"entries": [(str(story.pk), 5, what)], "anchors": []}


def test_a_note_altered_is_named(story, tamper):
    tamper("UPDATE disputes_note SET text = 'as agreed' WHERE version = 4")
    what = "its note was altered after it was written"
    assert found() == {"entries": [(str(story.pk), 4, what)], "anchors": []}


@pytest.mark.parametrize(
    "assignment",
    [
        "at = at + interval '1 microsecond'",
        "disputes = 1",
        "entries = 5",
        "heads = 1",
        "hash = repeat('f', 64)",
    ],
)
def test_an_altered_anchor_is_named(assignment, story, tamper):
    tamper(f"UPDATE disputes_anchor SET {assignment} WHERE number = 1")
    named = found()
    assert named["entries"] == []
    assert named["anchors"][0] == (1, "was altered after it was made")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE disputes_anchoredhead SET version = 2, hash = '{older}' WHERE dispute_id = '{id}'"
        " AND anchor_id = 1",
        "DELETE FROM disputes_anchoredhead WHERE dispute_id = '{id}' AND anchor_id = 1",
    ],
    ids=["another head", "a head less"],
)
def test_altered_heads_are_named_by_their_anchor(change, story, tamper):
    tamper(change.format(id=story.pk, older=entry(story, 2).hash))
    assert found() == {"entries": [], "anchors": [(1, "was altered after it was made")]}


def reseal(anchor: Anchor, **values) -> str:
    """A statement that changes an anchor and makes its hash anew."""
    chain = list(stored_chain(since=anchor.number - 1))
    seal = chain[0]
    changed = SealHash(type(seal)(**{n: getattr(seal, n) for n in seal.__slots__} | values))
    for heads in chain[1:]:
        if not isinstance(heads, list):
            break
        changed.feed(heads)
    assignments = ", ".join(f"{name} = {value!r}" for name, value in values.items())
    return (
        f"UPDATE disputes_anchor SET {assignments}, hash = '{changed.hexdigest()}'"
        f" WHERE number = {anchor.number}"
    )


def test_an_anchor_altered_with_its_hash_made_anew_breaks_the_next_link(story, tamper):
    tamper(reseal(Anchor.objects.get(number=1), entries=3))
    named = (2, "does not follow the anchor before it")
    assert found() == {"entries": [], "anchors": [named]}


def test_anchors_that_count_less_than_the_one_before_are_named(story, tamper):
    tamper(reseal(Anchor.objects.get(number=2), entries=3))
    assert found()["anchors"] == [(2, "4 entries at anchor 1, 3 at anchor 2")]


def test_a_missing_anchor_is_named(story, tamper):
    delete = "DELETE FROM disputes_{} WHERE {} = 1"
    tamper(delete.format("anchoredhead", "anchor_id"), delete.format("anchor", "number"))
    other = Dispute.objects.exclude(pk=story.pk).get()
    assert found() == {
        "entries": [(str(other.pk), 1, "no anchor covers it")],
        "anchors": [(1, "is missing")],
    }


def test_anchors_made_blind_are_named_by_what_they_leave_out(story, tamper):
    """Somebody tells the next anchor that everything is settled, and it covers nothing."""
    tamper("UPDATE disputes_anchor SET settled_id = 1000000000 WHERE number = 2")
    unseen = opened()
    assert anchor_duty(now=LATER + HOUR) == 0
    assert found() == {"entries": [(str(unseen.pk), 1, "no anchor covers it")], "anchors": []}


# Found: the owner, who rewrote the anchors as well; an exported file remembers


@pytest.fixture
def file(story, tmp_path) -> str:
    target = str(tmp_path / "anchors.jsonl")
    call_command("export_anchors", target, stdout=io.StringIO())
    assert found("--anchors", target) == {"entries": [], "anchors": []}
    return target


WITHOUT_ANCHORS = ("DELETE FROM disputes_anchoredhead", "DELETE FROM disputes_anchor")


@pytest.mark.parametrize("again_anchored", [False, True], ids=["gone", "made anew"])
def test_a_cut_tail_with_every_anchor_removed_is_found_by_the_exported_ones(
    again_anchored, story, file, tamper
):
    tamper(*WITHOUT_ANCHORS, *rolled_back(story, 3))
    if again_anchored:
        anchor_duty(now=NOON + 3 * HOUR)
        anchor_duty(now=LATER)
    assert found() == {"entries": [], "anchors": []}, "inside the database nothing shows"
    named = found("--anchors", file)
    what = "the entry is missing, anchor 2 saw version 5"
    assert named["entries"] == [(str(story.pk), 4, what)]
    changed = "is not the anchor that was exported"
    lost = "was exported and is missing now"
    expected = [(2, changed)] if again_anchored else [(1, lost), (2, lost)]
    assert named["anchors"] == [*expected, (2, "6 entries at anchor 2, 4 now")]


def test_the_newest_anchor_removed_is_found_by_the_exported_ones(story, file, tamper):
    tamper(
        "DELETE FROM disputes_anchoredhead WHERE anchor_id = 2",
        "DELETE FROM disputes_anchor WHERE number = 2",
    )
    assert found() == {"entries": [], "anchors": []}
    assert found("--anchors", file)["anchors"] == [(2, "was exported and is missing now")]


def test_a_dispute_that_vanished_with_every_anchor_is_found_by_the_exported_ones(
    story, file, tamper
):
    tamper(*WITHOUT_ANCHORS, *deleted(story))
    named = found("--anchors", file)["entries"]
    assert named == [(str(story.pk), 1, "all its log is gone, anchor 1 saw version 3")]


def test_a_part_of_the_chain_that_was_exported_later_counts_too(story, tmp_path, tamper):
    target = str(tmp_path / "later.jsonl")
    call_command("export_anchors", target, "--since", "1", stdout=io.StringIO())
    assert found("--anchors", target) == {"entries": [], "anchors": []}
    tamper(*WITHOUT_ANCHORS, *rolled_back(story, 4))
    named = found("--anchors", target)["entries"]
    assert named == [(str(story.pk), 5, "the entry is missing, anchor 2 saw version 5")]


def test_an_exported_file_that_was_altered_does_not_pass(story, file):
    with open(file, encoding="utf-8") as lines:
        text = lines.read()
    with open(file, "w", encoding="utf-8") as altered:
        altered.write(text.replace('"entries":4', '"entries":5'))
    assert found("--anchors", file)["anchors"] == [(1, "was altered after it was made")]


def test_zeros_stand_before_the_first_anchor_only(story, owner_connection):
    statement = f"UPDATE disputes_anchor SET prev_hash = '{ZEROS}' WHERE number = 2"
    with owner_connection.transaction(force_rollback=True):
        owner_connection.execute("ALTER TABLE disputes_anchor DISABLE TRIGGER USER")
        with pytest.raises(psycopg.errors.IntegrityError):
            owner_connection.execute(statement)
