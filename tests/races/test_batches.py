"""Batches that meet: of promotions, messages and new disputes, in every order that matters."""

import time

import psycopg
import pytest
from django.db import transaction

from disputes import outbox
from disputes.models import AuditEntry, Dispute, Notification
from disputes.transitions.deadlines import promote
from disputes.transitions.opening import NewDispute, Opened, open_in_transaction
from escalation.drain import drain
from tests.races.gates import TIMEOUT_S, Background, Gate, gate_at
from tests.situations import HOUR, NOON, SYSTEM, again, default_ladder, new, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

LATE = NOON + 2 * HOUR


def test_a_batch_passes_over_the_row_of_another_and_does_the_rest():
    default_ladder()
    taken, free = opened(), opened()
    with gate_at("promote.before_commit") as gate:
        other = Background(lambda: promote([taken.pk], now=LATE))
        gate.wait()
        assert promote([taken.pk, free.pk], now=LATE) == {
            taken.pk: "LOCK_CONTENTION",
            free.pk: "PROMOTED_TO_SENIOR",
        }
        gate.open.set()
        other.result()
    assert AuditEntry.objects.filter(action="promoted").count() == 2


def test_f13_what_a_batch_has_read_nobody_else_promotes_meanwhile():
    default_ladder()
    dispute = opened()
    with gate_at("promote.selected") as gate:
        first = Background(lambda: promote([dispute.pk], now=LATE))
        gate.wait()
        assert promote([dispute.pk], now=LATE) == {dispute.pk: "LOCK_CONTENTION"}
        gate.open.set()
        assert first.result() == {dispute.pk: "PROMOTED_TO_SENIOR"}
    assert again(dispute).version == 2


def test_a_drain_goes_on_behind_a_head_that_it_cannot_move(settings):
    settings.ESCALATION = {"batch_size": 2}
    default_ladder()
    head = [opened(due_at=NOON + HOUR) for _ in range(2)]
    behind = opened(due_at=LATE)
    with gate_at("promote.selected") as gate:
        other = Background(lambda: promote([d.pk for d in head], now=LATE))
        gate.wait()
        counts = drain(linger_s=0)
        assert counts["PROMOTED_TO_SENIOR"] == 1
        assert again(behind).tier.slug == "senior"
        gate.open.set()
        other.result()
    assert {again(d).version for d in head} == {2}


def test_a_sender_passes_over_messages_that_another_is_claiming(
    owner_connection: psycopg.Connection,
):
    default_ladder()
    person("ada", "standard")
    for _ in range(2):
        opened()
    taken, free = Notification.objects.order_by("pk")
    with owner_connection.transaction():
        query = "SELECT FROM disputes_notification WHERE id = %s FOR UPDATE"
        owner_connection.execute(query, [taken.pk])
        sender = Background(lambda: outbox.claim_messages(now=NOON, limit=5, lease=HOUR))
        assert sender.result() == [free]


def batch(*news: NewDispute) -> list[Opened]:
    return open_in_transaction(news, actor=SYSTEM, now=NOON, notify=False)


def test_two_batches_with_the_same_references_in_opposite_orders_do_not_deadlock(
    owner_connection: psycopg.Connection,
):
    default_ladder()
    first, second = new(reference="a"), new(reference="b")
    gate = Gate()

    def one_after_the_other() -> list[Opened]:
        with transaction.atomic(durable=True):
            made = batch(first)
            gate()
            return made + batch(second)

    def both_at_once() -> list[Opened]:
        with transaction.atomic(durable=True):
            return batch(second, first)

    slow = Background(one_after_the_other)
    gate.wait()
    other = Background(both_at_once)
    wait_for_a_blocked_insert(owner_connection)
    gate.open.set()
    assert [answer.created for answer in slow.result()] == [True, True]
    assert [answer.created for answer in other.result()] == [False, False]
    assert Dispute.objects.count() == 2


def wait_for_a_blocked_insert(owner: psycopg.Connection) -> None:
    """Until a transaction of the application waits for another one."""
    ends_at = time.monotonic() + TIMEOUT_S
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while owner.execute(query).fetchone() == (0,):
        assert time.monotonic() < ends_at, "nobody waits"
