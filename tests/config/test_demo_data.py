"""What a person finds in a fresh demo: a ladder, people, disputes that soon move."""

import io
import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import authenticate
from django.core.management import call_command

from config.management.commands.demo_data import TIERS
from config.samples import SAMPLE_FILES, rendered, sample_files
from disputes.clock import database_now
from disputes.intake.facts import Facts
from disputes.intake.formats import open_records
from disputes.ladders import live_tiers
from disputes.models import AuditEntry, Dispute, Queue
from disputes.permissions import User, has_right, reviewed_queue_ids
from reviewqueue import tokens
from reviewqueue.models import ApiToken
from tests.conftest import connect_as_owner

NOW = datetime(2026, 11, 30, 9, 41, 7, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def run() -> dict:
    """What the command prints on its last line."""
    out = io.StringIO()
    call_command("demo_data", stdout=out)
    return json.loads(out.getvalue().splitlines()[-1])


@pytest.fixture
def shown(db) -> dict:
    return run()


def test_every_sign_in_works_and_none_is_a_fixed_password(shown):
    assert list(shown["sign_ins"]) == ["admin", "ada", "ben", "sam", "cleo", "lea"]
    for name, password in shown["sign_ins"].items():
        assert authenticate(username=name, password=password), name
    assert len(set(shown["sign_ins"].values())) == 6
    assert all(user.email for user in User.objects.all())


def test_people_review_their_queues_and_the_lead_holds_the_rights(shown):
    queues = {queue.pk: queue.slug for queue in Queue.objects.all()}
    reviewed = {
        user.username: {queues[pk] for pk in reviewed_queue_ids(user)}
        for user in User.objects.all()
    }
    everything = {"standard", "senior", "compliance"}
    assert reviewed == {
        "admin": everything,
        "ada": {"standard"},
        "ben": {"standard"},
        "sam": {"senior"},
        "cleo": {"compliance"},
        "lea": everything,
    }
    lea, ada = User.objects.get(username="lea"), User.objects.get(username="ada")
    for right in ("assign", "override_hold", "reopen", "approve", "operate"):
        assert has_right(lea, right)
        assert not has_right(ada, right)
    assert all(queue.channels == ["email"] for queue in Queue.objects.all())


def test_the_token_is_the_admins_and_may_read_write_and_act(shown):
    token = tokens.authenticate(shown["api_token"])
    assert token.user.username == "admin"
    assert set(token.scopes) == {"disputes:read", "disputes:write", "disputes:act"}


def test_the_ladder_has_the_short_spans(shown):
    assert [(tier.slug, tier.sla) for tier in live_tiers()] == [
        (tier.slug, tier.sla) for tier in TIERS
    ]
    assert all(tier.sla < 2 * MINUTE for tier in TIERS)


def test_a_second_run_changes_nothing_and_shows_no_secret(shown):
    def state() -> tuple:
        return (
            list(User.objects.order_by("pk").values()),
            list(ApiToken.objects.values()),
            list(AuditEntry.objects.order_by("pk").values_list("hash", flat=True)),
        )

    before = state()
    assert run() == {"existing": True}
    assert state() == before


@pytest.mark.django_db(transaction=True)
def test_a_first_run_that_was_interrupted_is_done_again_as_a_whole(shown):
    with connect_as_owner() as owner:
        owner.execute("DELETE FROM reviewqueue_apitoken")
    disputes = Dispute.objects.count()
    again = run()
    assert authenticate(username="ada", password=again["sign_ins"]["ada"])
    assert Dispute.objects.count() == disputes


def test_disputes_of_many_kinds_are_there(shown):
    assert Dispute.objects.count() >= 38
    statuses = Counter(Dispute.objects.values_list("status", flat=True))
    assert statuses["open"] >= 25
    assert statuses["paused"] >= 2
    assert statuses["resolved"] >= 5
    assert {"USD", "JPY", "KWD", "EUR"} <= set(Dispute.objects.values_list("currency", flat=True))
    assert set(Dispute.objects.values_list("source", flat=True)) == {"csv", "stripe", "cfpb"}
    assert set(Dispute.objects.values_list("band", flat=True)) == {"high", "medium", "low"}


def test_something_escalates_every_few_seconds_of_the_first_two_minutes(shown):
    now = database_now()
    due = sorted(
        Dispute.objects.filter(status="open", due_at__lt=now + 2 * MINUTE).values_list(
            "due_at", flat=True
        )
    )
    assert len(due) >= 20
    gaps = [later - earlier for earlier, later in zip(due, due[1:], strict=False)]
    assert max(gaps) <= timedelta(seconds=15)
    assert due[0] > now


@pytest.mark.parametrize("name", SAMPLE_FILES)
def test_every_sample_record_is_read_without_an_error(name):
    file = dict(sample_files(now=NOW))[name]
    records = open_records(file, name=name, now=NOW)
    assert records.error is None
    judged = [item for _, _, item in records]
    assert judged
    assert all(isinstance(item, Facts) and not item.flags for item in judged)


def test_placeholders_become_instants_seen_from_now():
    text = "{{iso +9d}} {{iso -5s}} {{epoch +1m}} {{date -1h}} {{other +1d}}"
    assert rendered(text, now=NOW) == (
        f"2026-12-09T09:41:07Z 2026-11-30T09:41:02Z {int((NOW + MINUTE).timestamp())} "
        "2026-11-30 {{other +1d}}"
    )
