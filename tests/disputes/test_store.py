"""Storing records: what each becomes, and that a second time writes nothing."""

import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, connections

from disputes import failpoints
from disputes.intake.effects import Effect, Stored
from disputes.intake.facts import Facts, Outcome, Record, RowError, State
from disputes.intake.store import store_batch
from disputes.intake.translation import EVENT_CONFLICT
from disputes.models import AuditEntry, Dispute, Notification, SourceRecord
from disputes.transitions.moving import resume
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, default_ladder, person

pytestmark = pytest.mark.django_db

SPAN = 2 * HOUR


@pytest.fixture(autouse=True)
def ladder(db):
    return default_ladder(sla=SPAN)


def facts(reference: str = "R-1", digit: str = "a", **changes) -> Facts:
    """What a record says; `digit` stands for its content."""
    return Facts(
        **{
            "outcome": Outcome.CREATE,
            "source": "bank",
            "reference": reference,
            "state": State.ACTIONABLE,
            "source_hash": digit * 64,
            "payload": {"reference": reference, "content": digit},
            "amount": Decimal("12.500"),
            "currency": "KWD",
        }
        | changes
    )


def waiting(**changes) -> Facts:
    return facts(**{"outcome": Outcome.UPSERT, "state": State.WAITING} | changes)


def closed(**changes) -> Facts:
    return facts(**{"outcome": Outcome.CLOSE, "state": State.CLOSED, "result": "won"} | changes)


def records(*judged: Facts | RowError) -> list[Record]:
    return [(number, number + 1, item) for number, item in enumerate(judged, start=1)]


def store(*judged: Facts | RowError, now=NOON, notify=False, ladder=None) -> list[Stored]:
    return store_batch(records(*judged), actor=SYSTEM, now=now, notify=notify, ladder=ladder)


def effects(*judged: Facts | RowError, **options) -> list[str]:
    return [stored.effect for stored in store(*judged, **options)]


def rows_written() -> dict[str, int]:
    return {
        model.__name__: model.objects.count()
        for model in (Dispute, AuditEntry, SourceRecord, Notification)
    }


def only() -> Dispute:
    return Dispute.objects.get()


def test_an_actionable_record_opens_a_dispute_with_its_facts_and_its_raw_record():
    (stored,) = store(
        facts(
            kind="complaint",
            materiality_usd=Decimal("40.72"),
            reason="10.4",
            stage="inquiry",
            source_state="needs_response",
            opened_at=NOON - MINUTE,
            external_due_at=NOON + 200 * HOUR,
            band="high",
            flags=("odd",),
        )
    )
    dispute = only()
    assert (stored.outcome, stored.effect, stored.dispute_id) == ("create", "created", dispute.id)
    assert (dispute.status, dispute.kind, dispute.band) == ("open", "complaint", "high")
    assert (dispute.amount, dispute.currency) == (Decimal("12.5"), "KWD")
    assert (dispute.materiality_usd, dispute.reason_code) == (Decimal("40.72"), "10.4")
    assert (dispute.stage, dispute.source_state) == ("inquiry", "needs_response")
    assert dispute.due_at == NOON - MINUTE + SPAN
    assert dispute.external_due_at == NOON + 200 * HOUR
    assert dispute.flags == ["odd"]
    raw = SourceRecord.objects.get()
    assert (raw.dispute_id, raw.source_hash, raw.received_at) == (dispute.id, "a" * 64, NOON)
    assert raw.payload == {"reference": "R-1", "content": "a"}
    assert (raw.outcome, raw.effect, raw.reason) == ("create", "created", "odd")


def test_a_deadline_in_the_record_is_taken_as_it_is_even_when_it_is_past():
    store(facts(due_at=NOON - HOUR))
    assert only().due_at == NOON - HOUR


def test_a_dispute_overdue_on_arrival_gets_a_fresh_first_span_and_a_flag():
    store(facts(opened_at=NOON - 100 * HOUR))
    assert only().due_at == NOON + SPAN
    assert only().flags == ["late_on_arrival"]


@pytest.mark.parametrize(
    "judged",
    [
        pytest.param(waiting(), id="the other side has it"),
        pytest.param(waiting(outcome=Outcome.UPDATE), id="an update, waiting"),
        pytest.param(facts(outcome=Outcome.UPDATE), id="an update, actionable"),
    ],
)
def test_news_of_an_unknown_case_that_is_not_its_creation_creates_it_paused(judged):
    assert effects(judged) == ["created"]
    dispute = only()
    assert (dispute.status, dispute.paused_by, dispute.due_at) == ("paused", "source", None)
    assert dispute.restore_due_at == NOON + SPAN


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ("won", "won"),
        ("lost", "lost"),
        ("accepted", "accepted"),
        ("expired", "expired"),
        ("", "closed"),
    ],
)
def test_a_close_of_an_unknown_case_creates_it_closed(result, outcome):
    assert effects(closed(result=result)) == ["created"]
    assert (only().status, only().outcome, only().due_at) == ("resolved", outcome, None)
    assert AuditEntry.objects.get().action == AuditEntry.Action.CREATED_CLOSED


def test_the_same_records_again_write_nothing_at_all():
    batch = [
        facts("R-1"),
        waiting(reference="R-2"),
        closed(reference="R-3", event_id="evt_3"),
        facts("R-4", outcome=Outcome.RECORD_ONLY, state=State.INFORMATIONAL),
    ]
    assert effects(*batch) == ["created", "created", "created", "recorded"]
    before = rows_written()
    again = store(*batch, now=NOON + HOUR)
    assert [stored.effect for stored in again] == ["unchanged"] * 4
    assert again[0].dispute_id == Dispute.objects.get(reference="R-1").id
    assert rows_written() == before


def test_a_repeat_within_one_batch_is_unchanged():
    repeat = facts(outcome=Outcome.DUPLICATE)
    first, second = store(facts(), repeat)
    assert (second.outcome, second.effect) == ("duplicate", "unchanged")
    assert second.dispute_id == first.dispute_id
    assert rows_written()["SourceRecord"] == 1


def test_a_repeat_of_a_record_that_was_refused_is_refused_as_well():
    bad = facts(tier="attic")
    assert effects(bad, facts(tier="attic", outcome=Outcome.DUPLICATE)) == ["refused", "refused"]


def test_later_records_about_one_dispute_follow_in_the_order_of_the_file():
    news = [
        facts(digit="a"),
        waiting(digit="b"),
        facts(digit="c", amount=Decimal("13.000")),
        closed(digit="d", amount=None),
    ]
    assert effects(*news) == ["created", "updated", "updated", "closed"]
    assert list(AuditEntry.objects.order_by("version").values_list("action", flat=True)) == [
        "created",
        "paused",
        "resumed",
        "closed_at_source",
    ]
    assert only().amount == Decimal("13")


def test_news_that_says_nothing_new_is_kept_but_writes_no_version():
    store(facts(digit="a"))
    assert effects(facts(digit="b")) == ["unchanged"]
    assert only().version == 1
    assert SourceRecord.objects.count() == 2


def test_an_event_older_than_what_is_stored_changes_nothing():
    store(waiting(event_id="evt_2", event_at=NOON))
    older = facts(digit="b", event_id="evt_1", event_at=NOON - MINUTE)
    assert effects(older) == ["unchanged"]
    assert only().status == "paused"


@pytest.mark.parametrize(
    ("dated", "undated"),
    [
        pytest.param(waiting, facts, id="not resumed"),
        pytest.param(facts, waiting, id="not stopped"),
        pytest.param(facts, closed, id="not closed"),
        pytest.param(closed, facts, id="not reopened"),
        pytest.param(closed, waiting, id="not relabelled"),
    ],
)
def test_news_without_a_date_never_undoes_what_dated_news_said(dated, undated):
    store(dated(event_id="evt_1", event_at=NOON, source_state="said", reason="r", flags=("f",)))
    before = Dispute.objects.values().get()
    other = {"source_state": "other", "amount": Decimal("99"), "reason": "s", "flags": ("g",)}
    assert effects(undated(digit="b", **other)) == ["unchanged"]
    assert Dispute.objects.values().get() == before
    assert SourceRecord.objects.count() == 2


def test_news_without_a_date_adds_what_dated_news_left_out():
    store(waiting(event_at=NOON, event_id="evt_1", amount=None, currency=""))
    bare = facts(digit="b", reason="10.4", stage="inquiry", external_due_at=NOON + HOUR)
    assert effects(bare) == ["updated"]
    dispute = only()
    assert (dispute.amount, dispute.currency) == (Decimal("12.5"), "KWD")
    assert (dispute.reason_code, dispute.stage) == ("10.4", "inquiry")
    assert dispute.external_due_at == NOON + HOUR
    assert (dispute.status, dispute.source_at) == ("paused", NOON)


def test_news_without_a_date_adds_no_amount_in_another_currency():
    store(facts(event_at=NOON, event_id="evt_1", amount=None))
    assert effects(facts(digit="b", currency="EUR")) == ["unchanged"]
    assert (only().amount, only().currency) == (None, "KWD")


def test_news_without_a_date_counts_where_nothing_dated_is_stored():
    store(facts())
    assert effects(waiting(digit="b"), facts(digit="c")) == ["updated", "updated"]
    assert effects(closed(digit="d", event_at=NOON - MINUTE)) == ["closed"]


@pytest.mark.parametrize("field", ["opened_at", "event_at"])
def test_what_lies_in_the_future_is_refused_unless_clocks_may_differ_by_it(field):
    store(facts("R-0"))
    ahead = {field: NOON + timedelta(days=365)}
    for bad in store(facts("R-1", **ahead), facts("R-0", digit="b", **ahead)):
        assert (bad.effect, bad.error.field) == ("refused", field)
        assert "lies in the future" in bad.error.message
    assert effects(facts("R-2", **{field: NOON + 4 * MINUTE})) == ["created"]
    assert Dispute.objects.count() == 2


def test_an_event_id_with_another_content_is_kept_and_shown_not_dropped():
    store(facts(event_id="evt_1", event_at=NOON))
    other = facts(digit="b", event_id="evt_1", event_at=NOON, amount=Decimal("99.000"))
    (stored,) = store(other)
    assert (stored.effect, stored.flags) == ("recorded", (EVENT_CONFLICT,))
    dispute = only()
    assert dispute.flags == [EVENT_CONFLICT]
    assert (dispute.amount, dispute.source_hash) == (Decimal("12.5"), "a" * 64)
    assert SourceRecord.objects.filter(event_id="evt_1").count() == 2
    assert effects(other) == ["unchanged"]
    assert only().version == 2


def test_an_event_conflict_within_one_batch_is_seen_as_well():
    assert effects(facts(event_id="evt_1"), facts(digit="b", event_id="evt_1")) == [
        "created",
        "recorded",
    ]


def test_information_is_kept_beside_its_dispute_and_changes_nothing():
    store(facts())
    unknown = facts(digit="b", state=State.INFORMATIONAL, flags=("unknown_status",))
    assert effects(unknown) == ["recorded"]
    kept = SourceRecord.objects.get(source_hash="b" * 64)
    assert (kept.dispute_id, kept.reason) == (only().id, "unknown_status")
    assert only().version == 1


def test_a_record_to_ignore_leaves_no_trace():
    nothing = facts(outcome=Outcome.IGNORE, state=State.INFORMATIONAL)
    assert effects(nothing) == ["ignored"]
    assert set(rows_written().values()) == {0}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ladder": "attic"}, "ladder"),
        ({"tier": "attic"}, "tier"),
        ({"band": "urgent"}, "band"),
        ({"reason": "x" * 201}, "reason"),
        ({"source_state": "x" * 81}, "status"),
        ({"materiality_usd": Decimal(10) ** 18}, "materiality_usd"),
        ({"amount": Decimal(10) ** 20}, "amount"),
        ({"currency": ""}, "currency"),
    ],
)
def test_a_value_no_dispute_can_hold_is_an_error_of_its_row_and_the_rest_goes_in(changes, field):
    first, bad, last = store(facts("R-1"), facts("R-2", **changes), facts("R-3"))
    assert (bad.outcome, bad.effect, bad.dispute_id) == ("create", "refused", None)
    assert (bad.error.line, bad.error.record, bad.error.field) == (3, 2, field)
    assert bad.error.message
    assert (first.effect, last.effect) == ("created", "created")
    assert list(Dispute.objects.order_by("reference").values_list("reference", flat=True)) == [
        "R-1",
        "R-3",
    ]


def test_what_only_the_database_refuses_is_that_rows_error_and_the_order_is_kept():
    batch = [facts(f"R-{n}") for n in range(7)]
    batch[4] = facts("R-4", payload={"text": "half a \x00 word"})
    assert effects(*batch) == ["created"] * 4 + ["refused"] + ["created"] * 2
    by_place = Dispute.objects.order_by("queue_score").values_list("reference", flat=True)
    assert list(by_place) == ["R-0", "R-1", "R-2", "R-3", "R-5", "R-6"]


def test_a_row_error_of_the_reader_is_passed_on():
    error = RowError(line=2, record=1, field="amount", message="is not a number")
    (stored,) = store(error)
    assert (stored.outcome, stored.effect, stored.error) == ("row_error", "refused", error)


def test_the_given_ladder_is_for_records_that_name_none():
    default_ladder(slug="vip")
    store(facts("R-1"), facts("R-2", ladder="default"), ladder="vip")
    assert {d.reference: d.tier.revision.ladder.slug for d in Dispute.objects.select_related()} == {
        "R-1": "vip",
        "R-2": "default",
    }


def test_only_an_import_that_notifies_sends_messages():
    person("ada", "standard")
    store(facts("R-1"))
    assert Notification.objects.count() == 0
    store(facts("R-2"), notify=True)
    assert Notification.objects.get().dispute.reference == "R-2"


@pytest.mark.django_db(transaction=True)
def test_two_imports_of_the_same_records_at_once_store_each_once():
    batch = [facts(f"R-{n:03}") for n in range(60)] + [
        closed(reference=f"R-{n:03}", digit="b") for n in range(20)
    ]
    together = threading.Barrier(2, timeout=20)
    answers: list[list[str]] = []

    def run() -> None:
        together.wait()
        answers.append(effects(*batch))
        connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(pair for pair in zip(*answers, strict=True)) == sorted(
        pair for pair in zip(*answers, strict=True) if "unchanged" in pair
    )
    assert rows_written() == {
        "Dispute": 60,
        "AuditEntry": 80,
        "SourceRecord": 80,
        "Notification": 0,
    }


def meanwhile(monkeypatch, act: Callable[[], object]) -> None:
    """Let `act` happen once, after a batch was looked up and before it is stored."""

    def once() -> None:
        monkeypatch.delitem(failpoints.hooks, "import.looked_up")
        act()

    monkeypatch.setitem(failpoints.hooks, "import.looked_up", once)


def test_a_dispute_that_another_import_creates_meanwhile_gets_our_news(monkeypatch):
    meanwhile(monkeypatch, lambda: store(facts("R-1", digit="a")))
    assert effects(facts("R-1", digit="b", amount=Decimal("20.000"))) == ["updated"]
    assert only().amount == Decimal("20")
    assert SourceRecord.objects.count() == 2


def test_news_that_another_import_stores_meanwhile_is_not_applied_a_second_time(monkeypatch):
    store(facts("R-1", digit="a"))
    news = waiting(reference="R-1", digit="b")

    def stored_and_then_resumed() -> None:
        store(news)
        ada = person("ada", "standard", rights=("override_hold",))
        resume(only().id, actor=ada, reason="they wait for us", now=NOON + MINUTE)

    meanwhile(monkeypatch, stored_and_then_resumed)
    assert effects(news) == ["unchanged"]
    assert only().status == "open"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["import.batch_written", "import.facts_written"])
def test_a_failure_inside_the_transaction_leaves_neither_dispute_nor_record(point, monkeypatch):
    store(facts("R-0"))
    before = rows_written()

    def fail() -> None:
        raise RuntimeError(point)

    monkeypatch.setitem(failpoints.hooks, point, fail)
    batch = [facts("R-1")] if "batch" in point else [closed(reference="R-0", digit="b")]
    with pytest.raises(RuntimeError, match=point):
        store(*batch)
    assert rows_written() == before
    monkeypatch.delitem(failpoints.hooks, point)
    assert effects(*batch)[0] in (Effect.CREATED, Effect.CLOSED)


def test_records_and_disputes_are_read_and_written_in_as_many_statements_for_many_as_for_few():
    few = statements_for([facts(f"A-{n}") for n in range(2)])
    many = statements_for([facts(f"B-{n}") for n in range(200)])
    assert many == few
    assert len(many) >= 5


def statements_for(batch: list[Facts]) -> list[str]:
    """The beginnings of the statements on disputes, their audit and their records."""
    seen: list[str] = []

    def note(execute, sql, params, many, context):
        if any(f"disputes_{table}" in sql for table in ("dispute", "auditentry", "sourcerecord")):
            seen.append(sql[:40])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        store(*batch)
    return seen


def test_a_second_run_only_reads(django_assert_max_num_queries):
    batch = [facts(f"R-{n}") for n in range(200)]
    store(*batch)
    with django_assert_max_num_queries(4), connection.execute_wrapper(only_selects):
        store(*batch, now=NOON + timedelta(days=1))


def only_selects(execute, sql, params, many, context):
    assert sql.lstrip().upper().startswith("SELECT"), sql
    return execute(sql, params, many, context)
