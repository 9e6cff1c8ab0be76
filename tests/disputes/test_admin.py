"""The administration: what editors of ladders may do, and what nobody may."""

import re

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models.signals import pre_save
from django.test import Client
from django.urls import reverse

from disputes.clock import database_now
from disputes.ladders import copy_to_draft, publish
from disputes.models import AuditEntry, Dispute, Ladder, LadderRevision, Queue, SourceRecord, Tier
from tests.situations import default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


def staff(name: str, *rights: str) -> Client:
    user = person(name, rights=rights)
    get_user_model().objects.filter(pk=user.pk).update(is_staff=True)
    client = Client()
    client.force_login(get_user_model().objects.get(pk=user.pk))
    return client


def words_of(response) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def form_of(response) -> dict[str, str]:
    """What the change form on this page would send unchanged."""
    page = response.context["adminform"].form
    forms = [page]
    for inline in response.context["inline_admin_formsets"]:
        forms += [inline.formset.management_form, *inline.formset.forms]
    data = {}
    for form in forms:
        for field in form:
            value = field.value()
            if value is not None:
                data[field.html_name] = value
    return data


@pytest.fixture
def ladder(db) -> Ladder:
    return default_ladder()


@pytest.fixture
def live(ladder) -> LadderRevision:
    return ladder.revisions.get()


@pytest.fixture
def editor(ladder) -> Client:
    return staff("edda", "edit_ladders")


@pytest.fixture
def operator(ladder) -> Client:
    return staff("olaf", "operate")


def change_page(revision: LadderRevision) -> str:
    return reverse("admin:disputes_ladderrevision_change", args=[revision.pk])


def test_the_administration_carries_the_name_of_the_product(editor):
    assert "Escalations" in words_of(editor.get("/admin/"))


def test_a_published_revision_is_shown_without_fields_to_edit_and_says_why(editor, live):
    response = editor.get(change_page(live))
    assert response.status_code == 200
    assert "A published revision never changes" in words_of(response)
    assert 'name="tiers-0-sla"' not in response.content.decode()


def test_an_edit_sent_to_a_published_revision_is_refused_with_a_message(editor, live):
    response = editor.post(change_page(live), {"note": "changed"}, follow=True)
    assert response.status_code == 200
    assert "Copy it into a draft" in words_of(response)
    live.refresh_from_db()
    assert live.note == ""


def test_the_databases_refusal_of_a_frozen_revision_is_a_message(editor, live):
    draft = copy_to_draft(live)
    data = form_of(editor.get(change_page(draft)))
    data["tiers-0-name"] = "First"

    def published_meanwhile(**kwargs):
        if LadderRevision.objects.get(pk=draft.pk).state == LadderRevision.State.DRAFT:
            publish(draft, by=None, now=database_now())

    pre_save.connect(published_meanwhile, sender=Tier)
    try:
        response = editor.post(change_page(draft), data, follow=True)
    finally:
        pre_save.disconnect(published_meanwhile, sender=Tier)
    assert response.status_code == 200
    assert "A published revision never changes" in words_of(response)
    assert not Tier.objects.filter(name="First").exists()


def test_copy_edit_and_publish_changes_new_disputes_only(editor, live):
    before = opened(now=database_now())
    response = editor.post(
        reverse("admin:disputes_ladderrevision_copy", args=[live.pk]), follow=True
    )
    draft = LadderRevision.objects.get(state="draft")
    assert "This is the new draft" in words_of(response)
    data = form_of(response)
    data["tiers-0-sla"] = "05:00:00"
    data["tiers-0-four_eyes"] = ["accepted"]
    response = editor.post(change_page(draft), data, follow=True)
    assert "was changed successfully" in words_of(response)
    data = form_of(editor.get(change_page(draft))) | {"tiers-1-sla": "06:00:00", "_publish": "yes"}
    response = editor.post(change_page(draft), data, follow=True)
    assert "Published for new disputes" in words_of(response)
    assert draft.tiers.get(position=2).sla.total_seconds() == 6 * 3600
    after = opened(now=database_now())
    assert after.tier.revision_id == draft.pk
    assert (after.due_at - after.tier_entered_at).total_seconds() == 5 * 3600
    assert after.tier.four_eyes == ["accepted"]
    before.refresh_from_db()
    assert before.tier.revision_id == live.pk


def test_a_second_copy_and_a_second_publishing_are_messages(editor, live):
    copy = reverse("admin:disputes_ladderrevision_copy", args=[live.pk])
    editor.post(copy)
    assert "has a draft already" in words_of(editor.post(copy, follow=True))
    draft = LadderRevision.objects.get(state="draft")
    selected = {"action": "publish_selected", "_selected_action": [draft.pk]}
    address = reverse("admin:disputes_ladderrevision_changelist")
    assert "Published for new disputes" in words_of(editor.post(address, selected, follow=True))
    assert "is not a draft any more" in words_of(editor.post(address, selected, follow=True))


def test_a_draft_without_a_sound_order_is_not_published(editor, live):
    draft = copy_to_draft(live)
    draft.tiers.filter(position=2).delete()
    data = form_of(editor.get(change_page(draft))) | {"_publish": "yes"}
    response = editor.post(change_page(draft), data, follow=True)
    assert "The positions are not 1, 2, 3" in words_of(response)
    live.refresh_from_db()
    assert live.state == "live"


def test_a_draft_is_deleted_with_its_tiers_and_a_live_revision_is_not(editor, live):
    draft = copy_to_draft(live)
    address = reverse("admin:disputes_ladderrevision_delete", args=[draft.pk])
    assert editor.get(address).status_code == 200
    editor.post(address, {"post": "yes"})
    assert not LadderRevision.objects.filter(pk=draft.pk).exists()
    address = reverse("admin:disputes_ladderrevision_delete", args=[live.pk])
    assert editor.post(address, {"post": "yes"}).status_code == 403


def test_a_new_ladder_starts_with_a_draft(editor):
    editor.post(
        reverse("admin:disputes_ladder_add"),
        {"name": "Complaints", "slug": "complaints", "policy": "strict"},
    )
    assert Ladder.objects.get(slug="complaints").revisions.get().state == "draft"


def test_the_policy_of_a_ladder_cannot_be_changed_afterwards(editor, ladder):
    address = reverse("admin:disputes_ladder_change", args=[ladder.pk])
    data = form_of(editor.get(address)) | {"name": "Renamed", "policy": "strict"}
    editor.post(address, data)
    ladder.refresh_from_db()
    assert (ladder.name, ladder.policy) == ("Renamed", "aging")


@pytest.mark.parametrize("model", [Ladder, Queue])
def test_deleting_what_is_in_use_is_answered_in_words(editor, live, model):
    thing = model.objects.first()
    name = model._meta.model_name
    response = editor.post(
        reverse(f"admin:disputes_{name}_delete", args=[thing.pk]), {"post": "yes"}, follow=True
    )
    assert response.status_code == 200
    assert "Cannot delete" in words_of(response)
    assert model.objects.filter(pk=thing.pk).exists()


def test_a_queue_gets_reviewers_and_known_channels_only(editor, ladder):
    queue = Queue.objects.get(slug="standard")
    group = Group.objects.create(name="night shift")
    address = reverse("admin:disputes_queue_change", args=[queue.pk])
    sent = {"name": "Standard", "reviewers": [group.pk], "channels": ["log", "pigeon"]}
    response = editor.post(address, sent)
    assert "pigeon is not one of the available choices" in words_of(response)
    editor.post(address, sent | {"channels": ["log"]})
    queue.refresh_from_db()
    assert queue.channels == ["log"]
    assert list(queue.reviewers.all()) == [group]


def test_staff_without_the_right_see_no_ladder(live):
    client = staff("nora")
    for name in ("ladder", "ladderrevision", "queue"):
        address = reverse(f"admin:disputes_{name}_changelist")
        assert client.get(address).status_code == 403, name
    address = reverse("admin:disputes_ladderrevision_copy", args=[live.pk])
    assert client.post(address).status_code == 404


def test_records_are_shown_to_operators_and_changed_by_nobody(operator, ladder):
    dispute = opened(now=database_now())
    entry = AuditEntry.objects.get(dispute=dispute)
    for thing in (dispute, entry):
        name = thing._meta.model_name
        assert operator.get(reverse(f"admin:disputes_{name}_changelist")).status_code == 200
        change = reverse(f"admin:disputes_{name}_change", args=[thing.pk])
        assert operator.get(change).status_code == 200
        assert operator.post(change, {"reason": "x"}).status_code == 403
        delete = reverse(f"admin:disputes_{name}_delete", args=[thing.pk])
        assert operator.post(delete, {"post": "yes"}).status_code == 403
        assert operator.get(reverse(f"admin:disputes_{name}_add")).status_code == 403
    address = reverse("admin:disputes_notification_changelist")
    assert operator.get(address).status_code == 200
    assert Dispute.objects.get(pk=dispute.pk).version == 1


def test_records_are_hidden_from_editors_of_ladders(editor):
    assert editor.get(reverse("admin:disputes_dispute_changelist")).status_code == 403


def test_the_raw_payload_needs_the_right_to_see_personal_data(operator, ladder):
    record = SourceRecord.objects.create(
        source="test",
        reference="r1",
        source_hash="a" * 64,
        outcome="case",
        payload={"customer": "Jane Private"},
        received_at=database_now(),
    )
    address = reverse("admin:disputes_sourcerecord_change", args=[record.pk])
    assert "Jane Private" not in operator.get(address).content.decode()
    allowed = staff("pia", "operate", "see_personal_data")
    assert "Jane Private" in allowed.get(address).content.decode()


def test_the_job_queues_are_for_operators(operator, editor):
    assert operator.get("/admin/django_rq/dashboard/").status_code == 200
    assert editor.get("/admin/django_rq/dashboard/").status_code == 403
    assert Client().get("/admin/django_rq/dashboard/").status_code == 302


def test_users_and_their_groups_are_edited_as_django_ships_it(ladder):
    root = get_user_model().objects.create_superuser("root", "root@example.com", "pw")
    client = Client()
    client.force_login(root)
    address = reverse("admin:auth_user_change", args=[root.pk])
    assert 'name="groups"' in client.get(address).content.decode()
