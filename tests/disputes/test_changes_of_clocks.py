"""Summer time begins and ends: a span stays what it is, and a time without a zone is no time."""

import io
import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from disputes.exceptions import InvalidInput
from disputes.models import AuditEntry, Dispute
from disputes.priority import MICROSECOND
from disputes.transitions.deadlines import promote
from disputes.transitions.moving import pause
from tests.reviewqueue.test_api import FACTS, caller, post
from tests.situations import HOUR, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

BERLIN = ZoneInfo("Europe/Berlin")
DAY_S = 86_400
# This hour comes twice in that night.
REPEATED = "2026-10-25T02:30:00"
INSTANTS = ("opened_at", "due_at", "external_due_at")


@pytest.mark.parametrize(
    "local",
    [
        datetime(2026, 3, 28, 12, tzinfo=BERLIN),
        datetime(2026, 3, 29, 1, 59, 59, tzinfo=BERLIN),
        datetime(2026, 10, 24, 12, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    ],
    ids=str,
)
def test_bug_49_a_tier_of_24_hours_lasts_86400_seconds_over_either_change(local):
    start = local.astimezone(UTC)
    with timezone.override(BERLIN):
        default_ladder(sla=24 * HOUR)
        dispute = opened(now=start)
        assert promote([dispute.pk], now=dispute.due_at - MICROSECOND) == {dispute.pk: "NOT_DUE"}
        due = dispute.due_at
        promote([dispute.pk], now=due)
    moved = again(dispute)
    assert (due - start).total_seconds() == DAY_S
    assert (moved.tier.slug, (moved.due_at - due).total_seconds()) == ("senior", DAY_S)
    entry = AuditEntry.objects.get(dispute=dispute, version=2)
    assert (entry.at - start).total_seconds() == DAY_S


def test_bug_49_a_time_without_a_zone_in_the_hour_that_comes_twice_is_refused(tmp_path):
    default_ladder()
    ada = person("ada", "standard")
    client = caller(ada)
    for field in INSTANTS:
        answer = post(client, "/disputes", FACTS | {field: REPEATED})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    rows = [
        {"reference": field, "amount": "1.00", "currency": "USD", field: REPEATED}
        for field in INSTANTS
    ]
    path = tmp_path / "night.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("import_disputes", str(path), "--json", stdout=out, stderr=io.StringIO())
    refused = json.loads(out.getvalue())["records"]
    assert [(row["line"], row["field"]) for row in refused] == [
        (line, field) for line, field in enumerate(INSTANTS, start=1)
    ]
    for field in INSTANTS:
        with pytest.raises(InvalidInput):
            opened(**{field: datetime.fromisoformat(REPEATED)})
    assert not Dispute.objects.exists()
    dispute = opened()
    until = datetime.fromisoformat(REPEATED)
    with pytest.raises(InvalidInput):
        pause(dispute.pk, actor=ada, reason="x", until=until, now=NOON)
    assert again(dispute).version == 1
