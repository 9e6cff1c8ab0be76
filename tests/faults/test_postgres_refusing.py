"""Postgres answers with an error: full, dead-locked, too slow. It is nobody's fault and passes.

Promise: nothing half-written, no dispute is put off for it, and the work is done when it is over.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import DatabaseError
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from psycopg import sql

from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute, Notification
from disputes.transitions.deadlines import promote
from disputes.transitions.reviewing import acknowledge
from escalation.drain import TRANSIENT_TRIES, drain
from escalation.models import Failure
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue
from tests.faults.harness import assert_each_promoted_once, messages, open_due, promotions
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, again, default_ladder, opened, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

ALWAYS = 1_000_000
CODES = {
    "f45_disk_full": "53100",
    "deadlock": "40P01",
    "serialization_failure": "40001",
    "f44_statement_timeout": "57014",
    "f44_lock_timeout": "55P03",
    "out_of_memory": "53200",
    "too_many_connections": "53300",
    "read_only": "25006",
    "right_taken_away": "42501",
    "column_missing": "42703",
    "input_output_error": "58030",
}


@contextmanager
def trouble(owner: psycopg.Connection, code: str, *, times: int) -> Iterator[None]:
    """The first so many inserts into the log of transitions fail with this SQLSTATE.

    Counted by a sequence, which no rollback takes back.
    """
    owner.execute("CREATE SEQUENCE trouble")
    owner.execute(
        sql.SQL(
            """
            CREATE FUNCTION make_trouble() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
            BEGIN
                IF nextval('trouble') <= {} THEN
                    RAISE EXCEPTION 'made by the test' USING ERRCODE = {};
                END IF;
                RETURN NULL;
            END $$
            """
        ).format(sql.Literal(times), sql.Literal(code))
    )
    owner.execute(
        "CREATE TRIGGER trouble AFTER INSERT ON disputes_auditentry"
        " FOR EACH STATEMENT EXECUTE FUNCTION make_trouble()"
    )
    try:
        yield
    finally:
        owner.execute("DROP FUNCTION make_trouble CASCADE")
        owner.execute("DROP SEQUENCE trouble")


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_batch_that_postgres_refused_once_is_done_again_and_nobody_is_put_off(
    owner_connection: psycopg.Connection, code: str
) -> None:
    default_ladder()
    person("sam", "senior")
    ids = open_due(10)
    with trouble(owner_connection, code, times=1):
        assert drain(linger_s=0) == Counter(PROMOTED_TO_SENIOR=10)
    assert_each_promoted_once(ids)
    assert messages("pending") == 10


@pytest.mark.parametrize("code", ["53100", "40P01", "57014", "25006", "42501"])
def test_f45_while_postgres_goes_on_refusing_nothing_is_half_written_and_nobody_is_parked(
    owner_connection: psycopg.Connection, code: str
) -> None:
    default_ladder()
    person("sam", "senior")
    ids = open_due(10)
    entries = AuditEntry.objects.count()
    with trouble(owner_connection, code, times=ALWAYS):
        with pytest.raises(DatabaseError, match="made by the test"):
            drain(linger_s=0)
        (tries,) = owner_connection.execute("SELECT last_value FROM trouble").fetchone()
        assert tries == TRANSIENT_TRIES
        assert AuditEntry.objects.count() == entries
        assert not Notification.objects.exists()
        assert set(Dispute.objects.values_list("version", "tier__slug")) == {(1, "standard")}
        assert not Failure.objects.exists()
    # The locks of the failed drain are left to expire; Postgres is asked without them.
    now = database_now()
    assert Counter(promote(ids, now=now).values()) == Counter(PROMOTED_TO_SENIOR=10)
    assert promotions() == 10


def clients_of(user) -> tuple[Client, Client]:
    """A signed-in browser and a program with a token."""
    browser = Client(raise_request_exception=False)
    browser.force_login(user)
    _, secret = issue(user, name="test", scopes=ApiToken.Scope.values)
    headers = {"authorization": f"Bearer {secret}"}
    return browser, Client(headers=headers, raise_request_exception=False)


def called(program: Client, dispute: Dispute) -> HttpResponse:
    return program.post(
        f"/api/v1/disputes/{dispute.pk}/acknowledge",
        {"seen_version": 1},
        content_type="application/json",
    )


@pytest.mark.parametrize(
    ("code", "page", "api"),
    [
        ("53100", 503, 503),
        ("25006", 503, 503),
        ("42501", 503, 503),
        ("57014", 409, 409),
        ("40P01", 409, 409),
        ("55P03", 409, 409),
    ],
)
def test_f44_f45_a_person_is_told_to_try_again_and_never_sees_a_500(
    owner_connection: psycopg.Connection, code: str, page: int, api: int
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    now = database_now()
    dispute = opened(now=now, due_at=now + HOUR)
    browser, program = clients_of(ada)
    with trouble(owner_connection, code, times=ALWAYS):
        button = browser.post(
            reverse("act", args=[dispute.pk, "acknowledge"]),
            {"seen_version": 1, "next": "/queues/"},
        )
        call = called(program, dispute)
    assert (button.status_code, call.status_code) == (page, api), (button.content, call.content)
    assert (again(dispute).status, again(dispute).version) == ("open", 1)
    assert acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now()).holder == ada


def test_f48_a_table_locked_by_a_migration_costs_time_and_nothing_else(
    owner_connection: psycopg.Connection,
) -> None:
    default_ladder()
    ada = person("ada", "standard")
    ids = open_due(10)
    now = database_now()
    other = opened(now=now, due_at=now + HOUR)
    _, program = clients_of(ada)
    with owner_connection.transaction():
        owner_connection.execute("LOCK TABLE disputes_auditentry IN SHARE MODE")
        with pytest.raises(DatabaseError, match="lock timeout"):
            drain(linger_s=0)
        answer = called(program, other)
        assert answer.status_code == 409, answer.content
    assert not Failure.objects.exists()
    assert again(other).version == 1
    assert Counter(promote(ids, now=database_now()).values()) == Counter(PROMOTED_TO_SENIOR=10)


def test_two_that_wait_for_each_other_are_parted_and_both_get_their_turn(
    owner_connection: psycopg.Connection,
) -> None:
    """A cycle: the batch has the rows and wants the log, the other the log and then a row."""
    default_ladder()
    ids = open_due(10)
    has_the_log, wants_a_row = threading.Event(), threading.Event()

    def the_other() -> None:
        with owner_connection.transaction():
            owner_connection.execute("LOCK TABLE disputes_auditentry IN SHARE MODE")
            has_the_log.set()
            assert wants_a_row.wait(20)
            owner_connection.execute(
                "SELECT FROM disputes_dispute WHERE id = %s FOR UPDATE", [ids[0]]
            )

    with gate_at("promote.selected") as gate:
        batch = Background(lambda: drain(linger_s=0))
        gate.wait()
        other = Background(the_other)
        assert has_the_log.wait(20)
        wants_a_row.set()
        gate.open.set()
        other.result()
        counts = batch.result()
    assert counts["PROMOTED_TO_SENIOR"] == 10
    assert_each_promoted_once(ids)
