import pytest

from disputes.audit import verify
from disputes.models import AuditEntry, Notification
from disputes.transitions.deadlines import promote
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_passed_deadline_moves_the_dispute_up_once_and_tells_the_next_tier():
    default_ladder()
    senior = person("sam", "senior")
    dispute = opened()
    assert dispute.due_at == NOON + 2 * HOUR
    late = NOON + 2 * HOUR + MINUTE

    assert promote([dispute.pk], now=late) == {dispute.pk: "PROMOTED_TO_SENIOR"}
    assert promote([dispute.pk], now=late) == {dispute.pk: "NOT_DUE"}

    after = again(dispute)
    assert (after.version, after.status, after.due_at) == (2, "open", late + 2 * HOUR)
    entry = AuditEntry.objects.get(dispute=dispute, version=2)
    assert (entry.action, entry.match_decision, entry.deadline_no, entry.actor_label) == (
        "promoted",
        "PROMOTED_TO_SENIOR",
        1,
        "clock",
    )
    assert list(
        Notification.objects.filter(version=2).values_list("event", "channel", "recipient")
    ) == [("arrived", "email", f"user:{senior.pk}")]
    assert list(verify()) == [None]


def test_a_deadline_is_due_at_its_very_microsecond_and_not_before():
    default_ladder()
    dispute = opened()
    assert promote([dispute.pk], now=dispute.due_at - MINUTE / 60_000_000) == {
        dispute.pk: "NOT_DUE"
    }
    assert promote([dispute.pk], now=dispute.due_at) == {dispute.pk: "PROMOTED_TO_SENIOR"}
