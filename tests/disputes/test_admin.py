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
from disputes.transitions import reviewing
from tests.situations import HOUR, default_ladder, opened, person

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


def saved(client: Client, draft: LadderRevision, **typed):
    """The answer to saving the draft's page with some fields typed over."""
    data = form_of(client.get(change_page(draft)))
    return client.post(change_page(draft), data | typed, follow=True)


def tier_names(draft: LadderRevision) -> list[str]:
    return list(draft.tiers.order_by("position").values_list("name", flat=True))


def test_tiers_of_a_draft_change_places_in_one_save(editor, live):
    draft = copy_to_draft(live)
    typed = {"tiers-0-position": 2, "tiers-1-position": 1}
    assert "was changed successfully" in words_of(saved(editor, draft, **typed))
    assert tier_names(draft) == ["Senior", "Standard", "Compliance"]


def test_a_tier_is_put_before_another_one_in_one_save(editor, ladder, live):
    draft = copy_to_draft(live)
    queue = Queue.objects.create(ladder=ladder, slug="triage", name="Triage")
    new = {"position": 1, "slug": "triage", "name": "Triage", "queue": queue.pk, "sla": "1:00:00"}
    typed = {f"tiers-3-{field}": value for field, value in new.items()}
    typed |= {f"tiers-{row}-position": row + 2 for row in range(3)} | {"tiers-TOTAL_FORMS": 4}
    assert "was changed successfully" in words_of(saved(editor, draft, **typed))
    assert tier_names(draft) == ["Triage", "Standard", "Senior", "Compliance"]


@pytest.mark.parametrize("field", ["position", "slug", "queue"])
def test_two_tiers_alike_are_an_error_beside_the_field_that_names_the_row(editor, live, field):
    draft = copy_to_draft(live)
    data = form_of(editor.get(change_page(draft)))
    typed = {f"tiers-2-{field}": data[f"tiers-1-{field}"], "tiers-0-name": "Typed name"}
    response = saved(editor, draft, **typed)
    words = words_of(response)
    assert f"“Senior” in row 2 has the same {field}." in words
    assert "A published revision never changes" not in words
    assert 'value="Typed name"' in response.content.decode()
    assert tier_names(draft) == ["Standard", "Senior", "Compliance"]


def test_what_only_the_database_refuses_comes_back_with_what_was_typed(editor, ladder):
    queue = Queue.objects.get(slug="standard")
    address = reverse("admin:disputes_queue_add")
    sent = {"ladder": ladder.pk, "name": "Typed name", "slug": "new"}

    def saved_meanwhile(instance, **kwargs):
        if instance.pk is None:
            instance.slug = queue.slug

    pre_save.connect(saved_meanwhile, sender=Queue)
    try:
        response = editor.post(address, sent)
    finally:
        pre_save.disconnect(saved_meanwhile, sender=Queue)
    assert "something saved meanwhile stands against it" in words_of(response)
    assert 'value="Typed name"' in response.content.decode()


def test_the_later_of_two_editors_is_refused_and_sees_both_what_is_saved_and_typed(editor, live):
    draft = copy_to_draft(live)
    opened_before = form_of(editor.get(change_page(draft)))
    assert "successfully" in words_of(saved(editor, draft, **{"tiers-0-sla": "03:00:00"}))
    late = opened_before | {"tiers-0-sla": "04:00:00", "note": "Typed note"}
    response = editor.post(change_page(draft), late, follow=True)
    words = words_of(response)
    assert "somebody else changed this draft since you opened it" in words
    assert "Saved now: 03:00:00." in words
    page = response.content.decode()
    assert 'value="04:00:00"' in page
    assert 'value="Typed note"' in page
    assert draft.tiers.get(position=1).sla.total_seconds() == 3 * 3600
    # Saving what this page shows is a decision made with the other's change in view.
    response = editor.post(change_page(draft), form_of(response), follow=True)
    assert "was changed successfully" in words_of(response)
    assert draft.tiers.get(position=1).sla.total_seconds() == 4 * 3600


def test_what_was_typed_into_a_draft_that_was_published_meanwhile_is_named(editor, live):
    draft = copy_to_draft(live)
    typed = form_of(editor.get(change_page(draft)))
    publish(draft, by=None, now=database_now())
    compliance = Queue.objects.get(slug="compliance")
    typed |= {"note": "Typed note", "tiers-0-sla": "04:00:00", "tiers-1-queue": compliance.pk}
    words = words_of(editor.post(change_page(draft), typed, follow=True))
    assert "A published revision never changes" in words
    for change in ("Note: Typed note", "Standard, Span: 04:00:00"):
        assert change in words
    assert "Senior, Queue: default › Compliance" in words
    crafted = typed | {"tiers-1-queue": "x", "tiers-TOTAL_FORMS": "x"}
    assert editor.post(change_page(draft), crafted).status_code == 302


def test_a_tier_that_came_or_went_unseen_is_never_saved_over(editor, live):
    draft = copy_to_draft(live)
    opened_before = form_of(editor.get(change_page(draft)))
    draft.tiers.get(position=3).delete()
    response = editor.post(change_page(draft), opened_before | {"note": "Typed note"})
    assert "Tiers were added or removed since you opened this draft" in words_of(response)
    response = editor.post(change_page(draft), form_of(response))
    assert "Tiers were added or removed since you opened this draft" in words_of(response)
    draft.refresh_from_db()
    assert draft.note == ""


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        ("tiers-0-sla", "-1", "The span must be longer than 0, at most 3660 days."),
        ("tiers-0-hold_limit", "0", "The hold limit must be longer than 0"),
        ("tiers-0-approval_span", "4000 00:00:00", "The approval span must be longer than 0"),
        ("external_margin", "-5 00:00:00", "The margin lies outside 0 to 366 days."),
    ],
)
def test_a_span_out_of_bounds_is_refused_without_the_names_of_constraints(
    editor, live, field, typed, words
):
    shown = words_of(saved(editor, copy_to_draft(live), **{field: typed}))
    assert words in shown
    assert "is violated" not in shown


def test_no_constraint_of_what_people_edit_is_named_to_them():
    unspoken = [
        constraint.name
        for model in (Ladder, Queue, Tier)
        for constraint in model._meta.constraints
        if "is violated" in str(constraint.violation_error_message)
    ]
    assert unspoken == []


def test_a_crafted_number_of_tiers_is_refused_in_words_at_once(editor, live):
    draft = copy_to_draft(live)
    response = saved(editor, draft, **{"tiers-TOTAL_FORMS": 99999})
    assert "A ladder has at most 50 tiers." in words_of(response)
    assert len(response.context["inline_admin_formsets"][0].formset.forms) == 50


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
    assert "What you changed is saved as a draft." in words_of(response)
    live.refresh_from_db()
    assert live.state == "live"


def test_a_draft_that_cannot_be_published_is_said_to_be_saved_as_one(editor, live):
    draft = copy_to_draft(live)
    data = form_of(editor.get(change_page(draft)))
    data |= {"_publish": "yes"} | {f"tiers-{number}-DELETE": "on" for number in range(3)}
    said = words_of(editor.post(change_page(draft), data, follow=True))
    assert "cannot be published: It has no tier." in said
    assert "What you changed is saved as a draft." in said
    assert not draft.tiers.exists()
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


def delete_page(thing) -> str:
    return reverse(
        f"admin:{thing._meta.app_label}_{thing._meta.model_name}_delete", args=[thing.pk]
    )


@pytest.mark.parametrize(
    ("model", "use", "way_out"),
    [
        (Ladder, "default r1 (live)", "pause it in the list of ladders"),
        (Queue, "default r1 (live): Standard", "publish a revision without it"),
    ],
)
def test_f66_deleting_what_is_in_use_says_where_and_what_to_do(editor, live, model, use, way_out):
    thing = model.objects.first()
    for response in (
        editor.get(delete_page(thing)),
        editor.post(delete_page(thing), {"post": "yes"}, follow=True),
    ):
        assert response.status_code == 200
        words = words_of(response)
        assert "Cannot delete" in words
        assert use in words
        assert way_out in words
        assert "permission" not in words
    assert model.objects.filter(pk=thing.pk).exists()


def test_a_ladder_that_was_never_published_is_deleted_with_its_draft_and_queues(editor):
    ladder = Ladder.objects.create(slug="new", name="New")
    draft = LadderRevision.objects.create(ladder=ladder, number=1)
    queue = Queue.objects.create(ladder=ladder, slug="first", name="First")
    Tier.objects.create(
        revision=draft, queue=queue, position=1, slug="first", name="First", sla=HOUR
    )
    assert "New › First" in words_of(editor.get(delete_page(ladder)))
    editor.post(delete_page(ladder), {"post": "yes"})
    assert not Ladder.objects.filter(pk=ladder.pk).exists()


@pytest.fixture
def root(ladder) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", "root@example.com", "pw"))
    return client


def test_a_person_who_has_worked_is_deactivated_and_not_deleted(root, ladder):
    ada = person("ada", "standard")
    newcomer = person("newcomer")
    dispute = opened(now=database_now())
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    response = root.post(delete_page(ada), {"post": "yes"})
    words = words_of(response)
    assert "Deactivate them instead" in words
    assert "disputes" in words
    assert "permission" not in words
    root.post(delete_page(newcomer), {"post": "yes"})
    assert set(get_user_model().objects.values_list("username", flat=True)) == {"root", "ada"}


def test_the_last_group_that_reviews_a_queue_stays_and_another_one_goes(root, ladder):
    ada = person("ada", "standard")
    only = ada.groups.get()
    words = words_of(root.post(delete_page(only), {"post": "yes"}))
    assert "nobody would review the queues below" in words
    assert "default › Standard" in words
    second = Group.objects.create(name="night shift")
    Queue.objects.get(slug="standard").reviewers.add(second)
    assert "nobody would review" in words_of(root.get(delete_page(only)))
    person("ben").groups.add(second)
    assert "It stops reviewing default › Standard." in words_of(root.get(delete_page(only)))
    root.post(delete_page(only), {"post": "yes"})
    assert not Group.objects.filter(pk=only.pk).exists()


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


def test_instants_in_the_administration_carry_their_seconds_and_zone(operator, ladder):
    dispute = opened(now=database_now())
    shown = f"{dispute.due_at:%b %Y %H:%M:%S} UTC"
    assert shown in words_of(operator.get(reverse("admin:disputes_dispute_changelist")))
    page = reverse("admin:disputes_dispute_change", args=[dispute.pk])
    assert shown in words_of(operator.get(page))


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


def test_users_and_their_groups_are_edited_as_django_ships_it(root):
    person_page = reverse("admin:auth_user_change", args=[get_user_model().objects.get().pk])
    assert 'name="groups"' in root.get(person_page).content.decode()
    new = {"username": "nia", "usable_password": "true", "password1": "k3t-mu-91", "password2": "x"}
    assert "didn’t match" in words_of(root.post(reverse("admin:auth_user_add"), new))
    root.post(reverse("admin:auth_user_add"), new | {"password2": "k3t-mu-91"})
    assert get_user_model().objects.filter(username="nia").exists()
