"""The log against somebody who owns the database: every tampering is found and named."""

import hashlib
import io
import json
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from disputes.audit import (
    FOLDED,
    SEALED,
    canonical,
    entry_hash,
    fold,
    sealed_values,
    verify,
    verify_dispute,
)
from disputes.invariants import QUERIES, broken
from disputes.models import AuditEntry, Note
from disputes.transitions.deadlines import promote
from disputes.transitions.moving import escalate
from disputes.transitions.reviewing import acknowledge, release
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)
TABLES = ("disputes_dispute", "disputes_auditentry", "disputes_note")
SOUND = {"faults": [], "anchors": 0, "anchor_faults": []}


@pytest.fixture
def story():
    """Five versions, one with a note, and a second dispute that nobody touches."""
    default_ladder()
    ada = person("ada", "standard", "senior")
    dispute = opened(amount=Decimal("10.5"))
    opened()
    promote([dispute.pk], now=dispute.due_at)
    acknowledge(dispute.pk, actor=ada, seen_version=2, now=NOON + 3 * HOUR)
    release(dispute.pk, actor=ada, reason="not mine", now=NOON + 3 * HOUR + MINUTE)
    escalate(dispute.pk, actor=ada, reason="too large for us", now=NOON + 3 * HOUR + 2 * MINUTE)
    return again(dispute)


@pytest.fixture
def tamper(owner_connection):
    """SQL as the owner, who switches every guard off first."""

    def change(*statements: str) -> None:
        with owner_connection.transaction():
            for table in TABLES:
                owner_connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            for statement in statements:
                owner_connection.execute(statement)
            owner_connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            for table in TABLES:
                owner_connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")

    return change


def verified(*words: str) -> tuple[int, dict]:
    """Exit code and report of `verify_audit --json`."""
    return run("verify_audit", *words)


def run(command: str, *words: str) -> tuple[int, dict]:
    out, code = io.StringIO(), 0
    try:
        call_command(command, *words, "--json", stdout=out)
    except SystemExit as stop:
        code = stop.code
    return code, json.loads(out.getvalue())


def first_fault(story) -> tuple[int, str]:
    code, report = verified()
    assert (code, report["verified"], len(report["faults"])) == (1, 2, 1)
    fault = report["faults"][0]
    assert fault["dispute"] == str(story.pk), "the other dispute's log is sound"
    assert run("audit_invariants")[0] == 1
    return fault["version"], fault["what"]


def test_an_untouched_log_verifies(story):
    assert verified() == (0, SOUND | {"verified": 2})
    code, report = run("audit_invariants")
    assert (code, report) == (0, {"checked": len(QUERIES) + 2, "broken": []})


WHERE = "WHERE version = {} AND dispute_id = '{}'"
ALTERED = "was altered after it was written"


@pytest.mark.parametrize(
    "assignment",
    [
        "actor_label = 'somebody else'",
        "actor_id = NULL",
        "at = at + interval '1 microsecond'",
        "action = 'released'",
        "match_decision = 'X'",
        "reason = 'sha256:0'",
        "source_hash = repeat('0', 64)",
        "from_status = 'paused'",
        "to_due_at = to_due_at + interval '1 microsecond'",
        'changes = changes || \'{"band": ["medium", "high"]}\'',
    ],
)
def test_an_altered_entry_is_named(assignment, story, tamper):
    where = WHERE.format(3, story.pk)
    tamper(f"UPDATE disputes_auditentry SET {assignment} {where}")
    assert first_fault(story) == (3, ALTERED)


def test_an_altered_hash_is_named(story, tamper):
    where = WHERE.format(3, story.pk)
    tamper(f"UPDATE disputes_auditentry SET hash = repeat('f', 64) {where}")
    assert first_fault(story) == (3, ALTERED)


def test_an_entry_altered_with_its_hash_made_anew_breaks_the_next_link(story, tamper):
    forged = AuditEntry.objects.get(dispute=story, version=3)
    forged.actor_label = "somebody else"
    new_hash = entry_hash(sealed_values(forged))
    where = WHERE.format(3, story.pk)
    tamper(
        f"UPDATE disputes_auditentry SET actor_label = 'somebody else', hash = '{new_hash}' {where}"
    )
    assert first_fault(story) == (4, "does not follow the entry before it")


def test_an_entry_removed_from_the_middle_is_named(story, tamper):
    tamper(f"DELETE FROM disputes_auditentry {WHERE.format(3, story.pk)}")
    assert first_fault(story) == (3, "the entry is missing")


def test_the_gap_closed_again_does_not_hide_it(story, tamper):
    tamper(
        f"DELETE FROM disputes_auditentry {WHERE.format(3, story.pk)}",
        f"UPDATE disputes_dispute SET version = 4 WHERE id = '{story.pk}'",
        f"UPDATE disputes_auditentry SET version = 3 {WHERE.format(4, story.pk)}",
        f"UPDATE disputes_auditentry SET version = 4 {WHERE.format(5, story.pk)}",
    )
    assert first_fault(story) == (3, "does not follow the entry before it")


def test_a_cut_tail_shows_at_the_row(story, tamper):
    tamper(
        f"UPDATE disputes_dispute SET version = 4 WHERE id = '{story.pk}'",
        f"DELETE FROM disputes_auditentry {WHERE.format(5, story.pk)}",
    )
    assert first_fault(story) == (4, "is not the entry that its row names")


def test_a_cut_tail_with_its_head_mended_shows_as_a_row_that_the_log_does_not_add_up_to(
    story, tamper
):
    head = AuditEntry.objects.get(dispute=story, version=4).hash
    tamper(
        f"UPDATE disputes_dispute SET version = 4, audit_head = '{head}' WHERE id = '{story.pk}'",
        f"DELETE FROM disputes_auditentry {WHERE.format(5, story.pk)}",
    )
    version, what = first_fault(story)
    assert version == 4
    assert "the log says" in what


def test_entries_in_another_order_are_named(story, tamper):
    tamper(
        f"UPDATE disputes_auditentry SET version = 99 {WHERE.format(3, story.pk)}",
        f"UPDATE disputes_auditentry SET version = 3 {WHERE.format(4, story.pk)}",
        f"UPDATE disputes_auditentry SET version = 4 {WHERE.format(99, story.pk)}",
    )
    assert first_fault(story) == (3, "does not follow the entry before it")


# What the row's own constraints refuse to be altered alone.
COUPLED = {
    *("tier_id", "status", "due_at", "due_kind", "deadline_no", "exhausted_at", "outcome"),
    *("paused_by", "paused_at", "held_since", "holder_id"),
}
OTHER_VALUE = {
    "CharField": "'ZZZ'",
    "DateTimeField": "opened_at + interval '1 microsecond'",
    "DurationField": "interval '77 s'",
    "DecimalField": "77.01",
    "BooleanField": "true",
    "JSONField": "'{\"x\": 1}'",
    "ForeignKey": "(SELECT id FROM auth_user LIMIT 1)",
    "BigIntegerField": "77",
    "PositiveIntegerField": "77",
}


@pytest.mark.parametrize("column", sorted(set(FOLDED) - COUPLED))
def test_a_column_altered_on_the_row_alone_is_named(column, story, tamper):
    value = OTHER_VALUE[FOLDED[column].get_internal_type()]
    if column == "restore_deadline_no":
        value = "1"
    tamper(f"UPDATE disputes_dispute SET {column} = {value} WHERE id = '{story.pk}'")
    version, what = first_fault(story)
    assert version == 5
    assert what.startswith(f"{column} is ")


ERASE = "UPDATE disputes_note SET text = '', salt = '', erased_at = now()"


def test_a_note_can_be_erased_and_the_chain_still_verifies(story, owner_connection):
    assert owner_connection.execute(ERASE).rowcount == 2
    assert verified()[0] == 0


def test_a_note_that_was_replaced_by_another_is_named(story, tamper):
    tamper(f"UPDATE disputes_note SET text = 'as agreed' {WHERE.format(5, story.pk)}")
    assert first_fault(story) == (5, "its note was altered after it was written")


def test_a_note_that_is_gone_is_named(story, tamper):
    tamper(f"DELETE FROM disputes_note {WHERE.format(4, story.pk)}")
    assert first_fault(story) == (4, "its note is missing")


def test_a_note_that_was_erased_and_says_something_is_named(story):
    """No table holds one: `erased_note_is_empty` refuses it even to a superuser."""
    entries = list(AuditEntry.objects.filter(dispute=story).order_by("version"))
    notes = {note.version: note for note in Note.objects.filter(dispute=story)}
    assert verify_dispute(story, entries, notes) is None
    notes[4].erased_at = NOON
    for text, salt in (("forged", ""), ("", notes[4].salt)):
        notes[4].text, notes[4].salt = text, salt
        fault = verify_dispute(story, entries, notes)
        assert (fault.version, fault.what) == (4, "its note was erased and has a text")


@pytest.mark.parametrize(
    ("version", "what"),
    [
        (2, "its note was altered after it was written"),
        (9, "there is a note and no entry"),
        (0, "there is a note and no entry"),
    ],
)
def test_a_note_that_no_entry_knows_of_is_named(version, what, story, tamper):
    tamper(
        "INSERT INTO disputes_note (dispute_id, version, salt, text)"
        f" VALUES ('{story.pk}', {version}, 'salt', 'as agreed')"
    )
    assert first_fault(story) == (version, what)


def test_entries_whose_ids_were_exchanged_are_named(story, tamper):
    first, second = AuditEntry.objects.filter(dispute=story, version__in=[2, 4]).order_by("version")
    tamper(
        f"UPDATE disputes_auditentry SET id = 0 WHERE id = {first.pk}",
        f"UPDATE disputes_auditentry SET id = {first.pk} WHERE id = {second.pk}",
        f"UPDATE disputes_auditentry SET id = {second.pk} WHERE id = 0",
    )
    assert first_fault(story) == (3, "its id is not after that of the entry before it")


def test_the_log_holds_no_free_text(story):
    for entry in AuditEntry.objects.filter(dispute=story):
        sealed = json.dumps(sealed_values(entry))
        assert "too large for us" not in sealed
        assert "not mine" not in sealed


def test_equal_notes_have_different_digests(story):
    reasons = set()
    for number in range(2):
        other = opened(reference=f"equal-{number}")
        acknowledge(other.pk, actor=person(f"p{number}", "standard"), seen_version=1, now=NOON)
        release(other.pk, actor=again(other).holder, reason="same words", now=NOON)
        reasons.add(AuditEntry.objects.get(dispute=other, version=3).reason)
    assert len(reasons) == 2


def test_one_dispute_can_be_verified_alone(story, tamper):
    tamper(f"UPDATE disputes_auditentry SET actor_label = 'x' {WHERE.format(2, story.pk)}")
    assert verified("--dispute", str(story.pk))[0] == 1
    other = AuditEntry.objects.exclude(dispute=story).get().dispute_id
    assert verified("--dispute", str(other)) == (0, SOUND | {"verified": 1})


@pytest.mark.parametrize("id_", ["nonsense", "00000000-0000-4000-8000-000000000000"])
def test_a_dispute_that_is_not_there_is_an_error_and_not_a_clean_bill(id_, story):
    with pytest.raises(CommandError, match=id_):
        call_command("verify_audit", "--dispute", id_)


def test_entries_of_a_dispute_that_is_gone_are_seen_by_the_invariants(story, owner_connection):
    """Somebody who drops the foreign keys as well; all of it is rolled back here."""
    query = QUERIES["every entry belongs to a dispute"]
    assert owner_connection.execute(query).fetchall() == []
    with owner_connection.transaction(force_rollback=True):
        for (key,) in owner_connection.execute(
            "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)"
            " FROM pg_constraint WHERE contype = 'f' AND confrelid = 'disputes_dispute'::regclass"
        ).fetchall():
            owner_connection.execute(key)
        owner_connection.execute("ALTER TABLE disputes_dispute DISABLE TRIGGER USER")
        owner_connection.execute("DELETE FROM disputes_dispute WHERE id = %s", [story.pk])
        assert owner_connection.execute(query).fetchall() == [(str(story.pk),)] * 5


def test_the_fold_is_the_row(story):
    entries = list(AuditEntry.objects.filter(dispute=story).order_by("version"))
    assert fold(entries) == {name: canonical(name, getattr(story, name)) for name in FOLDED}


def test_minus_nothing_is_nothing(story):
    dispute = opened(amount=Decimal("-0.00"))
    assert AuditEntry.objects.get(dispute=dispute).changes["amount"] == [None, "0.0000"]
    assert verified()[0] == 0


def test_f49_the_time_of_an_entry_is_never_before_the_entry_before_it(story):
    ada = person("late", "compliance")
    earlier = acknowledge(story.pk, actor=ada, seen_version=5, now=NOON)
    entries = AuditEntry.objects.filter(dispute=story).order_by("version")
    instants = [entry.at for entry in entries]
    assert instants == sorted(instants)
    assert earlier.changed_at == instants[-1] == story.changed_at
    assert broken() == []


def test_a_promotion_between_the_two_reads_of_a_verification_is_no_fault():
    default_ladder()
    dispute = opened()
    with gate_at("verify.rows_read") as gate:
        verification = Background(lambda: list(verify()))
        gate.wait()
        promote([dispute.pk], now=dispute.due_at)
        gate.open.set()
        assert verification.result() == [None]
    assert list(verify()) == [None]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(st.lists(JSON_VALUES, min_size=len(SEALED), max_size=len(SEALED)))
def test_the_sealed_text_is_plain_json_that_anybody_can_recompute(values):
    entry = dict(zip(SEALED, values, strict=True))
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert entry_hash(entry) == hashlib.sha256(text.encode()).hexdigest()
