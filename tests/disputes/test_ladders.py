"""Drafts, publishing, and ladders whose clock stands still."""

import pytest

from disputes.exceptions import LadderError
from disputes.ladders import (
    copy_to_draft,
    forget_cached_tiers,
    live_tiers,
    paused_ladders,
    problems,
    publish,
    revision_tiers,
)
from disputes.models import Ladder, LadderRevision, Queue
from disputes.transitions.deadlines import promote
from tests.situations import HOUR, NOON, again, default_ladder, opened

pytestmark = pytest.mark.django_db


@pytest.fixture
def draft():
    return copy_to_draft(LadderRevision.objects.get(ladder=default_ladder()))


def test_f65_a_new_revision_is_for_new_disputes_and_open_ones_stay_on_theirs(draft):
    before = opened()
    draft.tiers.update(sla=HOUR)
    publish(draft, by=None, now=NOON)
    after = opened()
    assert (before.due_at, after.due_at) == (NOON + 2 * HOUR, NOON + HOUR)
    promote([before.pk], now=before.due_at)
    assert again(before).due_at == before.due_at + 2 * HOUR
    assert again(before).tier.revision.number == 1
    states = LadderRevision.objects.order_by("number").values_list("state", flat=True)
    assert list(states) == ["retired", "live"]


def test_f67_a_tier_that_is_removed_or_renamed_later_is_climbed_by_those_on_their_way_to_it(draft):
    """And a tier of the new revision that has its name now is another one."""
    before = opened()
    draft.tiers.get(slug="senior").delete()
    draft.tiers.filter(slug="standard").update(slug="first", name="First line")
    draft.tiers.filter(slug="compliance").update(position=2, slug="senior", name="Senior")
    publish(draft, by=None, now=NOON)
    forget_cached_tiers()  # as in another process
    after = opened(tier="first")
    both = [before.pk, after.pk]
    assert promote(both, now=before.due_at) == dict.fromkeys(both, "PROMOTED_TO_SENIOR")
    reached = [(d.tier.revision.number, d.tier.queue.slug) for d in map(again, (before, after))]
    assert reached == [(1, "senior"), (2, "compliance")]
    promote(both, now=again(before).due_at)
    assert again(before).tier.slug == "compliance", "the rest of the old way is there as well"
    assert again(after).exhausted_at, "and the new one ends here"


def test_a_ladder_has_one_draft(draft):
    with pytest.raises(LadderError, match="has a draft already"):
        copy_to_draft(LadderRevision.objects.get(state="live"))


def test_only_a_draft_is_published_and_only_once(draft):
    publish(draft, by=None, now=NOON)
    with pytest.raises(LadderError, match="not a draft any more"):
        publish(draft, by=None, now=NOON)


def test_a_draft_has_no_tiers_for_disputes(draft):
    with pytest.raises(LadderError, match="is a draft"):
        revision_tiers(draft.pk)


def test_an_empty_or_gappy_draft_or_one_with_a_foreign_queue_is_not_published(draft):
    default_ladder(slug="other")
    draft.tiers.filter(position=2).delete()
    foreign = Queue.objects.get(ladder__slug="other", slug="senior")
    draft.tiers.filter(position=3).update(queue=foreign)
    assert problems(draft) == [
        "The positions are not 1, 2, 3 …",
        "Tier Compliance: its queue belongs to another ladder.",
    ]
    draft.tiers.all().delete()
    with pytest.raises(LadderError, match="It has no tier"):
        publish(draft, by=None, now=NOON)
    assert LadderRevision.objects.get(pk=draft.pk).state == "draft"


def test_an_unknown_ladder_says_what_to_do():
    with pytest.raises(LadderError, match="load_ladder_presets"):
        live_tiers("nowhere")


def test_a_paused_ladder_defers_its_deadlines_until_the_pause_is_over():
    ladder = default_ladder()
    dispute = opened()
    end = dispute.due_at + HOUR
    Ladder.objects.filter(pk=ladder.pk).update(paused_at=NOON, paused_until=end)
    late = end - HOUR / 3_600_000_000
    assert paused_ladders(now=late) == [ladder.pk]
    assert promote([dispute.pk], now=late) == {dispute.pk: "NOT_DUE"}
    assert paused_ladders(now=end) == []
    assert promote([dispute.pk], now=end) == {dispute.pk: "PROMOTED_TO_SENIOR"}


def test_a_pause_without_end_lasts_and_one_that_has_not_begun_does_not_bind():
    ladder = default_ladder()
    Ladder.objects.filter(pk=ladder.pk).update(paused_at=NOON + HOUR)
    assert paused_ladders(now=NOON) == []
    assert paused_ladders(now=NOON + 10_000 * HOUR) == [ladder.pk]
