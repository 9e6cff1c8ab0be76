"""The shipped ladders and the command that loads them."""

import io
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from disputes.ladders import live_tiers
from disputes.management.commands.load_ladder_presets import span_words
from disputes.models import Ladder, LadderRevision, Queue
from disputes.presets import preset_slugs, read_preset

HOUR = timedelta(hours=1)


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("load_ladder_presets", *words, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_no_ladder_is_there_before_the_command_made_it():
    assert not Ladder.objects.exists()


@pytest.mark.django_db
def test_the_default_ladder_has_three_tiers_with_spans_and_holds():
    run("default")
    assert [(tier.slug, tier.sla, tier.hold_limit) for tier in live_tiers("default")] == [
        ("standard", 24 * HOUR, HOUR / 2),
        ("senior", 24 * HOUR, HOUR),
        ("compliance", 48 * HOUR, 2 * HOUR),
    ]
    assert list(Queue.objects.values_list("slug", flat=True)) == [
        "standard",
        "senior",
        "compliance",
    ]


@pytest.mark.django_db
def test_loading_again_says_so_and_changes_nothing():
    assert "default: created" in run("default")
    before = list(LadderRevision.objects.values())
    assert "default: exists already" in run("default")
    assert list(LadderRevision.objects.values()) == before


@pytest.mark.django_db
def test_a_ladder_that_was_edited_is_left_as_it_is():
    run()
    Ladder.objects.update(name="Ours")
    run()
    assert Ladder.objects.get().name == "Ours"


@pytest.mark.django_db
def test_an_unknown_slug_is_refused_naming_the_known_ones():
    with pytest.raises(CommandError, match="attic.*default"):
        run("default", "attic")
    assert not Ladder.objects.exists()


@pytest.mark.django_db
def test_the_list_shows_the_ladders_with_their_label_and_creates_none():
    assert run("--list") == (
        "default (house default): Standard 1 day, Senior 1 day, Compliance 2 days\n"
    )
    assert not Ladder.objects.exists()


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (1, "1 minute"),
        (90, "1 hour 30 minutes"),
        (2_940, "2 days 1 hour"),
        (1_441, "1 day 1 minute"),
    ],
)
def test_a_span_is_said_as_people_write_it(minutes, words):
    assert span_words(timedelta(minutes=minutes)) == words


@pytest.mark.parametrize("slug", preset_slugs())
def test_every_shipped_file_is_a_whole_ladder(slug):
    preset = read_preset(slug)
    assert preset.name
    assert preset.label
    assert len({tier.slug for tier in preset.tiers}) == len(preset.tiers) > 0
    assert all(tier.sla > timedelta(0) for tier in preset.tiers)
