"""The policy: queues by groups, rights by codename, and nothing for people who left."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser

from disputes import permissions
from disputes.exceptions import NotPermitted
from disputes.models import Queue
from tests.disputes.stages import dispute_that_is, scene
from tests.situations import default_ladder, opened, person

pytestmark = pytest.mark.django_db


@pytest.fixture
def people():
    return scene()


def queue(slug: str) -> Queue:
    return Queue.objects.get(ladder__slug="default", slug=slug)


def test_a_reviewer_reviews_the_queues_of_their_groups_only(people):
    assert permissions.reviewed_queue_ids(people.sam) == {queue("senior").pk}
    assert permissions.may_review(people.sam, queue("senior").pk)
    assert not permissions.may_review(people.sam, queue("compliance").pk)


def test_f67_queues_of_the_same_name_in_another_ladder_are_other_queues(people):
    default_ladder(slug="other")
    other = Queue.objects.get(ladder__slug="other", slug="senior")
    assert not permissions.may_review(people.sam, other.pk)


def test_the_right_to_review_opens_every_queue(people):
    assert permissions.reviewed_queue_ids(people.boss) == set(
        Queue.objects.values_list("pk", flat=True)
    )


@pytest.mark.parametrize("who", ["anonymous", "inactive superuser", "inactive reviewer"])
def test_nobody_who_is_not_there_may_anything(who, people):
    root = person("root", "senior", rights=("review", "operate"))
    root.is_superuser, root.is_active = True, False
    people.sam.is_active = False
    user = {"anonymous": AnonymousUser(), "inactive superuser": root}.get(who, people.sam)
    dispute = opened(tier="senior")
    assert permissions.reviewed_queue_ids(user) == set()
    assert not permissions.may_review(user, queue("senior").pk)
    assert not permissions.may_see(user, dispute)
    assert not permissions.has_right(user, "operate")
    assert not permissions.visible_queues(user).exists()
    with pytest.raises(NotPermitted, match="assign"):
        permissions.require_right(user, "assign")


def test_a_dispute_is_seen_by_its_queue_its_holder_and_operators(people):
    dispute = dispute_that_is("acknowledged", people)
    operator = person("olga", rights=("operate",))
    seers = [people.sam, people.sue, people.boss, operator]
    assert all(permissions.may_see(who, dispute) for who in seers)
    assert not permissions.may_see(people.ada, dispute)
    people.sam.groups.clear()
    assert permissions.may_see(people.sam, dispute), "the holder still sees what they hold"


def test_what_one_may_not_see_looks_like_what_is_not_there(people):
    dispute = opened(tier="senior")
    assert permissions.visible_dispute(people.ada, dispute.pk) is None
    assert permissions.visible_dispute(people.ada, uuid4()) is None
    assert permissions.visible_dispute(people.sam, dispute.pk) == dispute


def test_f69_leaving_a_group_takes_effect_at_once(people):
    people.sam.groups.clear()
    assert not permissions.may_review(people.sam, queue("senior").pk)
