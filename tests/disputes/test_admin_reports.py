"""The administration and what it must never do to the records: rows mixed up, history lost."""

from collections.abc import Callable

import psycopg
import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import ProtectedError
from django.test import Client
from django.urls import reverse

from disputes.clock import database_now
from disputes.ladders import copy_to_draft
from disputes.models import AuditEntry, Dispute, Ladder, LadderRevision
from disputes.transitions.deadlines import promote
from disputes.transitions.moving import escalate
from disputes.transitions.reviewing import acknowledge
from tests.disputes.test_admin import delete_page, words_of
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

IN_USE = "23503"  # foreign_key_violation
FORBIDDEN = "42501"  # insufficient_privilege
GUARD = "23001"  # restrict_violation: what our triggers raise


@pytest.fixture
def root(db) -> Client:
    default_ladder()
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", "root@example.com", "pw"))
    return client


def listed(client: Client, model: type) -> list:
    """The rows of the list, in the order in which it shows them."""
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return list(client.get(address).context["cl"].result_list)


def log_and_rows() -> list:
    return [sorted(model.objects.values_list(), key=str) for model in (Dispute, AuditEntry)]


def test_bug_41_a_bulk_edit_sent_to_a_list_that_was_reordered_changes_nothing(root):
    boss = person("boss", rights=("review",))
    now = database_now()
    first, second = (opened(now=now, due_at=now + span) for span in (HOUR, 90 * MINUTE))
    shown = listed(root, Dispute)
    assert shown == [first, second]
    escalate(first.pk, actor=boss, reason="x", now=now)
    assert listed(root, Dispute) == [second, first]
    before = log_and_rows()
    edit = {"form-TOTAL_FORMS": 2, "form-INITIAL_FORMS": 2, "_save": "Save"}
    for number, dispute in enumerate(shown):
        edit |= {f"form-{number}-id": dispute.pk, f"form-{number}-status": "resolved"}
        edit |= {f"form-{number}-tier": dispute.tier_id, f"form-{number}-amount": "1"}
    root.post(reverse("admin:disputes_dispute_changelist"), edit)
    assert log_and_rows() == before


def test_bug_41_no_list_can_be_edited(root):
    assert [site for site in admin.site._registry.values() if site.list_editable] == []


def test_bug_41_an_action_on_a_list_that_was_reordered_means_the_rows_that_were_chosen(root):
    drafts = [copy_to_draft(LadderRevision.objects.get(ladder__slug="default", state="live"))]
    other = default_ladder(slug="other")
    drafts.append(copy_to_draft(LadderRevision.objects.get(ladder=other, state="live")))
    shown = [row.pk for row in listed(root, LadderRevision)]
    # A newer one, of a ladder that sorts before: every row moves by one place.
    default_ladder(slug="a-third")
    assert [row.pk for row in listed(root, LadderRevision)] != shown
    chosen = {"action": "publish_selected", "_selected_action": [drafts[0].pk]}
    root.post(reverse("admin:disputes_ladderrevision_changelist"), chosen)
    assert [LadderRevision.objects.get(pk=draft.pk).state for draft in drafts] == ["live", "draft"]


def refused_with(call: Callable[[], object]) -> str:
    """The five characters Postgres refuses with."""
    with pytest.raises((DatabaseError, psycopg.Error)) as refusal, transaction.atomic():
        call()
    error = refusal.value
    return getattr(error, "sqlstate", None) or error.__cause__.sqlstate


def in_sql(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_bug_54_deleting_a_reviewer_a_ladder_or_a_dispute_leaves_every_entry_and_its_actor(
    root, owner_connection
):
    ada, ben = person("ada", "standard"), person("ben", "standard")
    taken = [opened() for _ in range(3)]
    for dispute in taken:
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON)
    before = log_and_rows()
    ladder = Ladder.objects.get()
    for thing in (ada, ladder, taken[0]):
        root.post(delete_page(thing), {"post": "yes"})
        changelist = f"admin:{thing._meta.app_label}_{thing._meta.model_name}_changelist"
        chosen = {"action": "delete_selected", "_selected_action": [thing.pk], "post": "yes"}
        root.post(reverse(changelist), chosen)
        with pytest.raises((ProtectedError, IntegrityError)):
            thing.delete()
        table = thing._meta.db_table
        statement = f"DELETE FROM {table} WHERE id = %s"
        assert refused_with(lambda s=statement, t=thing: in_sql(s, t.pk)) in (IN_USE, FORBIDDEN)
        assert refused_with(lambda s=statement, t=thing: owner_connection.execute(s, [t.pk])) in (
            IN_USE,
            GUARD,
        )
        assert log_and_rows() == before
    assert "Deactivate them instead" in words_of(root.get(delete_page(ada)))

    # The way out that the page names; her holds end, and what she had taken waits again.
    page = reverse("admin:auth_user_change", args=[ada.pk])
    form = root.get(page).context["adminform"].form
    sent = {field.html_name: field.value() for field in form if field.value() is not None}
    sent |= {"is_active": "", "date_joined_0": "2026-06-26", "date_joined_1": "12:00:00"}
    root.post(page, {name: value for name, value in sent.items() if value != ""})
    ada.refresh_from_db()
    assert not ada.is_active
    over = NOON + 30 * MINUTE
    promote([dispute.pk for dispute in taken], now=over)
    for dispute in taken:
        row = again(dispute)
        assert (row.status, row.holder, row.due_at) == ("open", None, dispute.due_at)
        entries = AuditEntry.objects.filter(dispute=dispute).order_by("version")
        assert list(entries.values_list("action", "actor_label")) == [
            ("created", "test"),
            ("acknowledged", "ada"),
            ("hold_expired", "clock"),
        ]
        assert entries[1].actor == ada
    acknowledge(taken[0].pk, actor=ben, seen_version=3, now=over)
