"""The second article's race, in every order, with gates instead of sleeps."""

import pytest

from disputes import failpoints, outbox
from disputes.exceptions import AlreadyTaken, Busy, NotPermitted, StaleDispute
from disputes.models import AuditEntry, Notification
from disputes.transitions.deadlines import promote
from disputes.transitions.facts import SourceFacts, apply_facts
from disputes.transitions.reviewing import acknowledge
from escalation.channels import CHANNELS
from escalation.delivery import deliver
from tests.races.gates import Background, Gate, gate_at
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

LATE = NOON + 2 * HOUR


def actions(dispute) -> list[str]:
    return list(
        AuditEntry.objects.filter(dispute=dispute)
        .order_by("version")
        .values_list("action", flat=True)
    )


def events(dispute, status: str) -> list[tuple[str, int]]:
    return list(
        Notification.objects.filter(dispute=dispute, status=status)
        .order_by("version")
        .values_list("event", "version")
    )


@pytest.fixture
def scene():
    default_ladder()
    ada = person("ada", "standard")
    person("sam", "senior")
    return ada, opened()


def test_f82_an_acknowledgement_that_commits_first_leaves_the_clock_nothing_to_do(scene):
    ada, dispute = scene
    acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE)
    assert promote([dispute.pk], now=LATE) == {dispute.pk: "NOT_DUE"}
    assert actions(dispute) == ["created", "acknowledged"]
    assert events(dispute, "cancelled") == [("arrived", 1)]


def test_f84_a_worker_that_has_selected_the_row_wins_and_the_acknowledgement_wins_one_tier_up(
    scene,
):
    ada, dispute = scene
    with gate_at("promote.before_commit") as gate:
        worker = Background(lambda: promote([dispute.pk], now=LATE))
        gate.wait()
        person_ = Background(lambda: acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE))
        gate.open.set()
        assert worker.result() == {dispute.pk: "PROMOTED_TO_SENIOR"}
        after = person_.result()
    assert (after.status, after.tier.slug, after.holder, after.version) == (
        "acknowledged",
        "senior",
        ada,
        3,
    )
    assert actions(dispute) == ["created", "promoted", "acknowledged"]
    assert events(dispute, "cancelled") == [("arrived", 1), ("arrived", 2)]
    assert events(dispute, "pending") == []


def test_f83_an_acknowledgement_between_read_and_write_of_a_worker_is_not_overwritten(scene):
    """The worker locks what it selects, so the acknowledgement waits for its commit and retries."""
    ada, dispute = scene
    with gate_at("acknowledge.read") as gate:
        person_ = Background(lambda: acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE))
        gate.wait()
        assert promote([dispute.pk], now=LATE) == {dispute.pk: "PROMOTED_TO_SENIOR"}
        gate.open.set()
        after = person_.result()
    assert (after.status, after.tier.slug, after.version) == ("acknowledged", "senior", 3)


def test_f85_escalations_that_beat_two_attempts_lose_to_the_third_which_locks_the_row(scene):
    ada, dispute = scene
    outcomes: list[str] = []

    def escalate_meanwhile():
        row = again(dispute)
        worker = Background(lambda: promote([dispute.pk], now=row.due_at))
        outcomes.extend(worker.result().values())

    failpoints.hooks["acknowledge.read"] = escalate_meanwhile
    try:
        after = acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE)
    finally:
        del failpoints.hooks["acknowledge.read"]
    assert outcomes == ["PROMOTED_TO_SENIOR", "PROMOTED_TO_COMPLIANCE", "LOCK_CONTENTION"]
    assert (after.status, after.tier.slug, after.version) == ("acknowledged", "compliance", 4)


def test_three_lock_time_outs_in_a_row_are_busy_and_nothing_is_written(scene):
    ada, dispute = scene
    with gate_at("promote.before_commit") as gate:
        worker = Background(lambda: promote([dispute.pk], now=LATE))
        gate.wait()
        with pytest.raises(Busy):
            acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE)
        gate.open.set()
        worker.result()
    assert actions(dispute) == ["created", "promoted"]


class LatchedChannel:
    """A channel that stands still inside send until the test lets it go on."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.keys: list[str] = []

    def send(self, message) -> None:
        self.keys.append(message.idempotency_key)
        self.gate()


def test_f86_an_acknowledgement_during_a_send_returns_at_once_and_cancels_the_rest(
    scene, monkeypatch
):
    ada, dispute = scene
    person("bea", "standard")
    person("col", "standard")
    second = opened(reference="second")
    latched = LatchedChannel()
    monkeypatch.setitem(CHANNELS, "email", latched)

    sender = Background(lambda: deliver())
    latched.gate.wait()
    sending = Notification.objects.filter(dispute=dispute).order_by("pk").first()
    assert sending.status == "sending"

    after = acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON + MINUTE)
    acknowledge(second.pk, actor=ada, seen_version=1, now=NOON + MINUTE)
    assert after.status == "acknowledged"
    assert sender.is_running, "the acknowledgement did not wait for the channel"

    latched.gate.open.set()
    sender.result()
    assert events(dispute, "sent") == [("arrived", 1)]
    assert events(second, "sent") == []
    assert events(second, "pending") == events(second, "sending") == []
    assert len(latched.keys) == 1


def test_no_transaction_is_open_while_a_channel_is_blocked(scene, monkeypatch, owner_connection):
    latched = LatchedChannel()
    monkeypatch.setitem(CHANNELS, "email", latched)
    sender = Background(lambda: deliver())
    latched.gate.wait()
    open_transactions = owner_connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND state LIKE 'idle in transaction%'"
    ).fetchone()[0]
    latched.gate.open.set()
    sender.result()
    assert open_transactions == 0


def test_f91_two_people_at_once_one_takes_it_and_the_other_hears_who(scene):
    ada, dispute = scene
    ben = person("ben", "standard")
    with gate_at("acknowledge.read") as gate:
        slow = Background(lambda: acknowledge(dispute.pk, actor=ben, seen_version=1, now=NOON))
        gate.wait()
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON)
        gate.open.set()
        with pytest.raises(AlreadyTaken, match="ada acknowledged this at 12:00:00"):
            slow.result()
    assert actions(dispute) == ["created", "acknowledged"]


def test_a_double_click_writes_one_version(scene):
    ada, dispute = scene
    with gate_at("acknowledge.read") as gate:
        slow = Background(lambda: acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON))
        gate.wait()
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON)
        gate.open.set()
        assert slow.result().version == 2
    assert actions(dispute) == ["created", "acknowledged"]


def test_f89_people_of_the_queue_it_left_may_still_acknowledge_within_the_grace(scene):
    ada, dispute = scene
    promote([dispute.pk], now=LATE)
    after = acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE + MINUTE)
    assert (after.holder, after.tier.slug) == (ada, "senior")


def test_after_the_grace_they_may_not(scene):
    ada, dispute = scene
    promote([dispute.pk], now=LATE)
    with pytest.raises(NotPermitted, match="“Senior”"):
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=LATE + MINUTE + MINUTE / 60)


def test_the_seen_version_is_not_a_pass_into_a_queue_never_seen(scene):
    _, dispute = scene
    outsider = person("eve")
    promote([dispute.pk], now=LATE)
    with pytest.raises(NotPermitted):
        acknowledge(dispute.pk, actor=outsider, seen_version=1, now=LATE)


def test_facts_that_the_source_changed_since_are_seen_before_they_are_acknowledged(scene):
    ada, dispute = scene
    facts = SourceFacts(source_hash="b" * 64, state="actionable", reason_code="fraud")
    apply_facts(dispute.pk, facts, actor=SYSTEM, now=NOON)
    with pytest.raises(StaleDispute, match="facts changed at the source"):
        acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON)
    assert acknowledge(dispute.pk, actor=ada, seen_version=2, now=NOON).version == 3


def test_a_failed_send_after_the_acknowledgement_is_not_tried_again(scene):
    ada, dispute = scene
    claimed = outbox.claim_messages(now=NOON, limit=5, lease=HOUR)
    acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON)
    outbox.mark_unsent(claimed[0], now=NOON, error="timed out", retry_at=NOON + MINUTE)
    assert events(dispute, "cancelled") == [("arrived", 1)]
    assert outbox.claim_messages(now=NOON + HOUR, limit=5, lease=HOUR) == []


def test_a_message_whose_sender_died_is_cancelled_with_the_word_that_it_may_have_left(scene):
    ada, dispute = scene
    outbox.claim_messages(now=NOON, limit=5, lease=HOUR)
    acknowledge(dispute.pk, actor=ada, seen_version=1, now=NOON)
    later = NOON + 2 * HOUR
    assert outbox.claim_messages(now=later, limit=5, lease=HOUR) == []
    assert list(
        Notification.objects.filter(dispute=dispute).values_list("status", "last_error")
    ) == [("cancelled", "its sender died: it may have been sent")]
