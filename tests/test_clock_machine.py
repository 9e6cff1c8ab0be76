"""Any order of people, clock, deliveries, crashes and losses of Redis leaves one sound history.

The machine moves the database's clock, runs the product's own poller, drain and sender in this
process, dies at failpoints, and loses or takes back the whole of Redis. What must always hold is
asked after every step; in the end everything is left to settle, and then Redis says what Postgres
says, nothing is due, every deadline ended once and no message is left over.
`HYPOTHESIS_PROFILE=long` looks much longer.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from disputes import clock, failpoints
from disputes.exceptions import DisputeError
from disputes.invariants import QUERIES, broken
from disputes.ladders import lift_pause, pause_ladder
from disputes.models import AuditEntry, Dispute, Notification
from disputes.transitions.deadlines import decide, promote
from disputes.transitions.moving import escalate, pause, resume
from disputes.transitions.opening import open_dispute
from disputes.transitions.resolving import resolve
from disputes.transitions.reviewing import acknowledge, release
from escalation import poller as poller_module
from escalation import reconcile as reconcile_module
from escalation.channels import CHANNELS, DeliveryFailed, Outgoing
from escalation.delivery import deliver
from escalation.drain import drain, drain_postgres, overdue
from escalation.models import Failure
from escalation.poller import Poller
from escalation.reconcile import compare, rebuild, reconcile
from escalation.redis_client import timeline_client
from escalation.timeline_keys import keys
from reviewqueue.ready import take_next
from tests.conftest import empty_all_tables
from tests.disputes.stages import scene
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, new

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
LIMITS = settings(
    max_examples=300 if LONG else 10,
    stateful_step_count=80 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=not LONG,
    database=None,
    print_blob=True,
)
PEOPLE = st.sampled_from(["ada", "sam", "cho", "boss"])
# What a process may be doing when it dies, and where.
DEATHS = {
    "drain": (
        "drain.claimed",
        "promote.selected",
        "journal.rows_written",
        "journal.audit_written",
        "journal.messages_written",
        "promote.before_commit",
        "announce.committed",
        "promote.committed",
        "drain.promoted",
        "drain.synced",
    ),
    "deliver": ("deliver.claiming", "deliver.claimed", "deliver.before_send", "deliver.sent"),
    "poll": ("poller.before_ring", "poller.after_ring", "rebuild.slice", "anchors.heads_written"),
    "reconcile": ("reconcile.postgres_slice", "reconcile.before_repair"),
    "rebuild": ("rebuild.slice",),
    "open": ("journal.rows_written", "announce.committed", "reviewqueue.rows_read"),
    "acknowledge": ("acknowledge.read", "acknowledge.written", "announce.committed"),
}
# A dead process' locks, fences and reservations have all run out after a minute.
RUNS_OUT = (b"lock:", b"fence:", b"rebuild", b"bell:", b"gone:", b"reserved:")
QUIET_ROUNDS = 12


class Death(BaseException):
    """The process is gone: nothing that handles errors may catch this."""


class Recorder:
    """A channel that remembers what left, and fails when told to."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.fails = False

    def send(self, message: Outgoing) -> None:
        if self.fails:
            raise DeliveryFailed("busy")
        self.sent[message.idempotency_key] += 1


class World:
    """The one clock of the database, and how a test moves it."""

    now: datetime = NOON

    def database_now(self) -> datetime:
        return self.now


WORLD = World()


@pytest.fixture
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every module of the product that asks Postgres for the time is told WORLD's."""
    real = clock.database_now
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("disputes", "escalation", "reviewqueue"):
            if getattr(module, "database_now", None) is real:
                monkeypatch.setattr(module, "database_now", WORLD.database_now)
    monkeypatch.setattr(reconcile_module, "SECOND_LOOK_S", 0)
    monkeypatch.setattr(poller_module, "ring", answered_ring)
    yield
    failpoints.hooks.clear()


def answered_ring(queue: str, *, wanted: int = 1) -> int:
    """A worker that comes at once: what it would do is done before the bell is let go."""
    if queue == "notifications":
        deliver()
    else:
        drain(linger_s=0)
    return wanted


@contextmanager
def death_at(point: str) -> Iterator[list[str]]:
    """The process dies when it comes by this point; its connection dies with it.

    Yields a list that holds the point once somebody died there.
    """
    died: list[str] = []

    def die() -> None:
        died.append(point)
        raise Death(point)

    failpoints.hooks[point] = die
    try:
        yield died
    except Death:
        connection.close()
    finally:
        failpoints.hooks.clear()


class Clockwork(RuleBasedStateMachine):
    """Disputes, people, the clock's processes, and everything that may go wrong between them."""

    disputes = Bundle("disputes")
    snapshots = Bundle("snapshots")
    runs = 0
    steps = 0
    deaths: Counter[str] = Counter()

    def __init__(self) -> None:
        super().__init__()
        Clockwork.runs += 1
        empty_all_tables()
        self.redis = timeline_client()
        self.redis.flushdb()
        WORLD.now = NOON
        self.people = scene()
        self.poller = Poller(stop=threading.Event())
        self.channel = CHANNELS["email"] = Recorder()  # restored by the test
        self.senders_died = 0
        self.poisoned: set[UUID] = set()

    @initialize(target=disputes)
    def two_disputes(self):
        return multiple(self.opened(), self.opened(tier="compliance"))

    def opened(self, **facts) -> UUID:
        return open_dispute(new(**facts), actor=SYSTEM, now=WORLD.now).id

    def by(self, who: str, call, dispute: UUID, **words) -> None:
        try:
            call(dispute_id=dispute, actor=getattr(self.people, who), now=WORLD.now, **words)
        except DisputeError:
            pass

    # People.

    @rule(
        target=disputes,
        tier=st.sampled_from(["standard", "senior", "compliance"]),
        due_s=st.none() | st.integers(-90, 300),
    )
    def open(self, tier, due_s):
        due_at = None if due_s is None else WORLD.now + timedelta(seconds=due_s)
        return self.opened(tier=tier, due_at=due_at)

    @rule(dispute=disputes)
    def open_again(self, dispute):
        reference = Dispute.objects.get(pk=dispute).reference
        again = open_dispute(new(reference=reference), actor=SYSTEM, now=WORLD.now)
        assert (again.id, again.created) == (dispute, False)

    @rule(dispute=disputes, who=PEOPLE, behind=st.integers(0, 2))
    def acknowledge(self, dispute, who, behind):
        seen = max(1, Dispute.objects.get(pk=dispute).version - behind)
        self.by(who, acknowledge, dispute, seen_version=seen)

    @rule(who=PEOPLE)
    def take_next(self, who):
        person = getattr(self.people, who)
        dispute = take_next(person, queue_ids=None, now=WORLD.now)
        if dispute is not None:
            assert (dispute.status, dispute.holder_id) == ("acknowledged", person.pk)

    @rule(dispute=disputes, who=PEOPLE)
    def release(self, dispute, who):
        self.by(who, release, dispute)

    @rule(dispute=disputes, who=PEOPLE)
    def escalate(self, dispute, who):
        self.by(who, escalate, dispute, reason="because")

    @rule(dispute=disputes, who=PEOPLE, outcome=st.sampled_from(["defended", "written_off"]))
    def resolve(self, dispute, who, outcome):
        self.by(who, resolve, dispute, outcome=outcome, reason="looked")

    @rule(dispute=disputes, who=PEOPLE, minutes=st.none() | st.integers(1, 90))
    def pause(self, dispute, who, minutes):
        until = None if minutes is None else WORLD.now + minutes * MINUTE
        self.by(who, pause, dispute, reason="asked", until=until)

    @rule(dispute=disputes, who=PEOPLE)
    def resume(self, dispute, who):
        self.by(who, resume, dispute, reason="answered")

    @rule(minutes=st.none() | st.integers(1, 90))
    def pause_the_ladder(self, minutes):
        until = None if minutes is None else WORLD.now + minutes * MINUTE
        pause_ladder("default", until=until, reason="holiday", now=WORLD.now)

    @rule()
    def lift_the_pause(self):
        lift_pause("default")

    # The clock and its processes.

    @rule(seconds=st.sampled_from([1, 5, 20, -20]))
    def a_moment_passes(self, seconds):
        WORLD.now += timedelta(seconds=seconds)

    @rule(minutes=st.sampled_from([1, 11, 29, 31, 61, 121, 1500]), watched=st.booleans())
    def let_time_pass(self, minutes, watched):
        WORLD.now += minutes * MINUTE
        self.let_keys_run_out()
        if watched:
            self.poller.look()

    def let_keys_run_out(self) -> None:
        """Redis' clock is not the machine's: what would have expired is removed."""
        gone = [k for k in self.raw_keys() if any(word in k for word in RUNS_OUT)]
        if gone:
            self.redis.delete(*gone)

    def raw_keys(self) -> list[bytes]:
        return [key if isinstance(key, bytes) else key.encode() for key in self.redis.scan_iter()]

    @rule()
    def poll(self):
        self.poller.look()

    @rule()
    def drain(self):
        drain(linger_s=0)

    @rule()
    def drain_without_redis(self):
        drain_postgres()

    @rule(dispute=disputes)
    def drain_with_poison(self, dispute):
        self.poisoned.add(dispute)

        def choke(row, **words):
            if row.pk == dispute:
                raise ValueError("poison")
            return decide(row, **words)

        drain(linger_s=0, promote_ids=lambda ids, now: promote(ids, now=now, decide_one=choke))

    @rule(fails=st.booleans())
    def deliver(self, fails):
        self.channel.fails = fails
        deliver()
        self.channel.fails = False

    @rule()
    def reconcile(self):
        reconcile()

    @rule()
    def rebuild(self):
        rebuild()

    # What goes wrong.

    def dies(self, doing: str, point: str, call: Callable[[], object]) -> None:
        """The call, by a process that dies at the point if it comes by."""
        self.give_it_something_to_do(doing)
        with death_at(point) as died:
            call()
        if not died:
            return
        self.deaths[f"{doing} at {point}"] += 1
        self.senders_died += point == "deliver.sent"
        if doing == "poll":
            self.poller = Poller(stop=threading.Event())

    @rule(point=st.sampled_from(DEATHS["drain"]))
    def a_drain_dies(self, point):
        self.dies("drain", point, self.drain)

    @rule(point=st.sampled_from(DEATHS["deliver"]))
    def a_sender_dies(self, point):
        self.dies("deliver", point, deliver)

    @rule(point=st.sampled_from(DEATHS["poll"]))
    def a_poller_dies(self, point):
        self.dies("poll", point, lambda: self.poller.look())

    @rule(point=st.sampled_from(DEATHS["reconcile"]))
    def reconcile_dies(self, point):
        self.dies("reconcile", point, reconcile)

    @rule(point=st.sampled_from(DEATHS["rebuild"]))
    def a_rebuild_dies(self, point):
        self.dies("rebuild", point, rebuild)

    @rule(point=st.sampled_from(DEATHS["open"]))
    def an_opening_dies(self, point):
        self.dies("open", point, lambda: self.opened(due_at=WORLD.now + MINUTE))

    @rule(point=st.sampled_from(DEATHS["acknowledge"]), dispute=disputes)
    def an_acknowledgement_dies(self, point, dispute):
        self.dies("acknowledge", point, lambda: self.acknowledge(dispute, "boss", 0))

    def give_it_something_to_do(self, doing: str) -> None:
        """Otherwise most processes would not come by the point at which they are to die."""
        made = self.opened(due_at=WORLD.now - MINUTE / 60)
        if doing == "poll":
            self.redis.delete(keys().epoch)
            self.poller = Poller(stop=threading.Event())
        elif doing == "reconcile":
            self.redis.zrem(keys().pending, str(made))

    def deliver_all(self) -> None:
        deliver()

    @rule()
    def lose_redis(self):
        self.redis.flushdb()

    @initialize(target=snapshots)
    def first_snapshot(self):
        return self.everything_in_redis()

    @rule(target=snapshots)
    def take_snapshot(self):
        return self.everything_in_redis()

    def everything_in_redis(self) -> tuple[datetime, dict[bytes, tuple[bytes, int]]]:
        found = {
            key: (self.redis_raw("DUMP", key), self.redis.pttl(key)) for key in self.raw_keys()
        }
        # A bell rings for milliseconds only: it may be gone when its turn comes.
        kept = {key: (value, ttl_ms) for key, (value, ttl_ms) in found.items() if value}
        return WORLD.now, kept

    @rule(snapshot=snapshots, met_by=st.sampled_from(["drain", "poll", "deliver_all", "reconcile"]))
    def old_snapshot_comes_back(self, snapshot, met_by):
        taken_at, kept = snapshot
        self.redis.flushdb()
        for key, (value, ttl_ms) in kept.items():
            if ttl_ms < 0 or abs(WORLD.now - taken_at) < MINUTE:
                self.redis.execute_command("RESTORE", key, max(ttl_ms, 0), value)
        getattr(self, met_by)()

    def redis_raw(self, *words: object) -> bytes:
        return self.redis.execute_command(*words, NEVER_DECODE=True)

    # What must hold.

    @invariant()
    def the_records_are_sound(self):
        Clockwork.steps += 1
        with connection.cursor() as cursor:
            for name, query in QUERIES.items():
                cursor.execute(query)
                assert cursor.fetchall() == [], name

    @invariant()
    def no_dispute_fails_but_the_poisoned(self):
        assert set(Failure.objects.values_list("pk", flat=True)) <= self.poisoned

    @invariant()
    def what_left_was_queued_and_repeats_only_after_a_death(self):
        known = set(Notification.objects.values_list("idempotency_key", flat=True))
        assert set(self.channel.sent) <= known
        repeated = sum(count - 1 for count in self.channel.sent.values())
        # A dead sender leaves one mail, or one that lists several, unmarked.
        assert repeated == 0 or self.senders_died > 0

    def teardown(self):
        self.settle()
        assert overdue(now=WORLD.now).count() == 0
        drift = compare()
        assert drift.is_clean, drift
        assert broken() == []
        assert not Failure.objects.exists()
        left = Notification.objects.filter(status__in=("pending", "sending"))
        assert list(left.values("event", "status", "not_before")) == []
        ended = Counter(
            AuditEntry.objects.filter(deadline_no__isnull=False).values_list(
                "dispute", "deadline_no"
            )
        )
        assert set(ended.values()) <= {1}

    def settle(self) -> None:
        """Everything works again: rounds of all processes until one of them changes nothing."""
        failpoints.hooks.clear()
        lift_pause("default")
        # Longer than any lease, put-off or parking lasts.
        WORLD.now += HOUR + 2 * MINUTE
        self.let_keys_run_out()
        for _ in range(QUIET_ROUNDS):
            before = self.written()
            self.poller.look()
            reconcile()
            drain(linger_s=0)
            deliver()
            if self.written() == before:
                return
            # A person's minute of mail may be used up.
            WORLD.now += MINUTE
            self.let_keys_run_out()
        raise AssertionError("it never comes to rest")

    def written(self) -> tuple:
        statuses = Counter(Notification.objects.values_list("status", flat=True))
        return AuditEntry.objects.count(), statuses, Failure.objects.count()


@pytest.mark.django_db(transaction=True)
def test_any_order_of_people_clock_crashes_and_losses_comes_to_the_same_sound_end(
    moved_clock, monkeypatch, settings
):
    settings.ESCALATION = {"jitter": 0}
    monkeypatch.setitem(CHANNELS, "email", CHANNELS["email"])
    run_state_machine_as_test(Clockwork, settings=LIMITS)
    print(f"{Clockwork.runs} runs, {Clockwork.steps} steps, died: {dict(Clockwork.deaths)}")
