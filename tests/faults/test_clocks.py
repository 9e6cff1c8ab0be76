"""Clocks that jump and clocks that are wrong: only Postgres' decides, and its jumps do no harm."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from disputes.clock import database_now
from disputes.invariants import broken
from disputes.models import AuditEntry, Dispute
from disputes.rules import microseconds
from escalation import timeline
from escalation.drain import drain
from escalation.models import DutyTurn, Heartbeat
from escalation.poller import Poller, take_turn
from escalation.reconcile import compare, rebuild
from escalation.timeline_keys import keys
from tests.faults.database_clock import DatabaseClock
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.faults.servers import OwnRedis, own_redis, use_redis
from tests.situations import HOUR, MINUTE, default_ladder

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

DAY = timedelta(days=1)


def test_the_clock_of_the_database_can_be_moved_and_stopped(clock: DatabaseClock) -> None:
    before = database_now()
    clock.move(3 * DAY)
    assert database_now() - before >= 3 * DAY
    clock.stop_at(before)
    clock.move(-3 * DAY)
    assert database_now() == database_now() == before


def test_f55_a_deadline_is_due_at_its_microsecond_and_not_one_before(clock: DatabaseClock) -> None:
    default_ladder()
    clock.stop_at(instant := database_now())
    (id_,) = open_due_in(1, seconds=60)
    rebuild()
    clock.stop_at(instant + MINUTE - timedelta(microseconds=1))
    drain(linger_s=0)
    assert promotions() == 0
    clock.stop_at(instant + MINUTE)
    assert drain(linger_s=0) == {"PROMOTED_TO_SENIOR": 1}
    entry = AuditEntry.objects.get(dispute=id_, action="promoted")
    assert entry.at == entry.from_due_at == instant + MINUTE


def test_f62_f50_a_jump_ahead_passes_every_deadline_once_one_tier_at_a_time(
    clock: DatabaseClock,
) -> None:
    """Days ahead at once: the next deadline counts from the promotion, not from the old one."""
    default_ladder()
    ids = open_due_in(20, seconds=3600)
    rebuild()
    clock.move(5 * DAY)
    drain(linger_s=0)
    drain(linger_s=0)
    assert_promoted_once(ids)


def test_f51_a_jump_back_repeats_nothing_and_holds_nothing_up_that_was_due_before(
    clock: DatabaseClock,
) -> None:
    default_ladder()
    ids = open_due(20)
    rebuild()
    drain(linger_s=0)
    clock.move(-DAY)
    drain(linger_s=0)
    Poller(threading.Event()).look()
    drain(linger_s=0)
    assert_promoted_once(ids)
    clock.move(DAY)
    drain(linger_s=0)
    assert_promoted_once(ids)


def assert_promoted_once(ids: list[UUID]) -> None:
    rows = Dispute.objects.filter(pk__in=ids).values_list("version", "tier__slug")
    assert set(rows) == {(2, "senior")}
    assert promotions() == len(ids)
    assert broken() == []
    assert compare().is_clean


def test_f51_after_a_jump_back_the_poller_sweeps_on_and_the_duties_take_their_turns(
    clock: DatabaseClock,
) -> None:
    """What was planned by the clock of before lies a day ahead; nobody may wait for it."""
    default_ladder()
    poller = Poller(threading.Event())
    clock.move(DAY)
    poller.look()
    ahead = Heartbeat.objects.get().at
    clock.move(-DAY)
    assert poller.look().degraded == ""
    assert Heartbeat.objects.get().at < ahead - HOUR, "the sweep waits for a day that is gone"
    turns = DutyTurn.objects.values_list("next_at", flat=True)
    assert all(turn < ahead for turn in turns)


def test_f51_a_turn_planned_by_a_clock_that_was_ahead_is_taken_and_only_once(
    clock: DatabaseClock,
) -> None:
    now = database_now()
    assert take_turn("duty", now=now + DAY, interval_s=60)
    assert take_turn("duty", now=now, interval_s=60)
    assert not take_turn("duty", now=now, interval_s=60)


def test_f51_processes_go_on_through_jumps_of_the_database_clock_both_ways(
    crew: Crew, crews_clock: DatabaseClock
) -> None:
    clock = crews_clock
    default_ladder()
    poller = crew.poller()
    crew.worker("escalations")
    crew.wait(Heartbeat.objects.exists)
    ids = open_due_in(20, seconds=3600)
    clock.move(HOUR)
    crew.wait(lambda: promotions() == len(ids))
    clock.move(-HOUR)
    ids += open_due(20)
    crew.wait(lambda: promotions() == len(ids))
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert_promoted_once(ids)


@pytest.fixture(scope="module")
def faketime() -> str:
    """The library that moves the clock of one process; skips where there is none."""
    program = shutil.which("faketime")
    if not program:
        pytest.skip("no faketime is installed")
    said = subprocess.run(
        [program, "-f", "+1h", "printenv", "LD_PRELOAD"], capture_output=True, text=True, check=True
    )
    library = Path(said.stdout.strip().replace("libfaketime.so", "libfaketimeMT.so"))
    return str(library if library.exists() else said.stdout.strip())


def under(library: str, moved: str) -> dict[str, str]:
    """The environment of a process whose own clock is off by so much."""
    return {
        "LD_PRELOAD": library,
        "FAKETIME": moved,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }


@pytest.mark.parametrize(
    ("poller_off", "worker_off"),
    [
        ("+1h", "-1h"),
        ("-1h", "+1h"),
        pytest.param("-3d", "+3d", marks=pytest.mark.long),
        pytest.param("+3d", "-3d", marks=pytest.mark.long),
    ],
)
def test_f50_f52_bug_48_hosts_clocks_decide_nothing(
    crew: Crew, faketime: str, poller_off: str, worker_off: str
) -> None:
    """Neither early, though it is long past the deadline here, nor late, though it is not there."""
    default_ladder()
    poller = crew.poller(**under(faketime, poller_off))
    worker = crew.worker("escalations", **under(faketime, worker_off))
    crew.wait(Heartbeat.objects.exists)
    later = open_due_in(5, seconds=3600)
    ids = [*open_due(10), *open_due_in(10, seconds=1.5)]
    crew.wait(lambda: promotions() >= len(ids))
    crew.wait(redis_is_in_step)
    assert poller.is_running
    assert worker.is_running
    assert_each_promoted_once(ids)
    assert set(Dispute.objects.filter(pk__in=later).values_list("version", flat=True)) == {1}


@dataclass
class MovedRedis:
    """A server of the test's own whose clock stands where the test puts it."""

    own: OwnRedis
    file: Path

    def move(self, to: str) -> None:
        """From now on its clock is off by so much: "+1h", "-3d"."""
        aside = self.file.with_suffix(".new")
        aside.write_text(to)
        aside.replace(self.file)

    def is_off_by(self) -> timedelta:
        with self.own.client as client:
            return timedelta(seconds=client.time()[0]) - timedelta(seconds=time.time())


@pytest.fixture
def moved_redis(
    transactional_db: None, faketime: str, tmp_path: Path, settings
) -> Iterator[MovedRedis]:
    with own_redis(tmp_path) as own:
        moved = MovedRedis(own, tmp_path / "offset")
        moved.move("+0")
        environment = under(faketime, "") | {"FAKETIME_TIMESTAMP_FILE": str(moved.file)}
        del environment["FAKETIME"]
        own.child.stop()
        own.child.command[:0] = ["env", *(f"{name}={value}" for name, value in environment.items())]
        own.child.start_again()
        use_redis(settings, own.url)
        yield moved


@pytest.mark.parametrize(
    "off",
    [
        "+1h",
        "-1h",
        pytest.param("+3d", marks=pytest.mark.long),
        pytest.param("-3d", marks=pytest.mark.long),
    ],
)
def test_f30_jumps_of_the_clock_of_redis_there_and_back_cost_and_double_nothing(
    moved_redis: MovedRedis, crew: Crew, off: str
) -> None:
    """Locks end early or late with it: those of the dead end all the same, nothing is early."""
    default_ladder()
    ids = open_due(10)
    rebuild()
    dead = timeline.claim(now_us=microseconds(database_now()), limit=5, token="of a dead worker")
    assert len(dead.ids) == 5
    moved_redis.move(off)
    assert abs(moved_redis.is_off_by()) > HOUR - MINUTE
    address = {"REDIS_URL": moved_redis.own.url}
    poller, worker = crew.poller(**address), crew.worker("escalations", **address)
    later = open_due_in(5, seconds=3600)
    ids += open_due_in(10, seconds=1.5)
    crew.wait(lambda: promotions() >= len(ids))
    with moved_redis.own.client as client:
        crew.wait(lambda: not list(client.scan_iter(f"{keys().lock}*")))
    moved_redis.move("+0")
    assert abs(moved_redis.is_off_by()) < MINUTE
    ids += open_due(10) + open_due_in(10, seconds=1.5)
    crew.wait(lambda: promotions() >= len(ids))
    crew.wait(redis_is_in_step)
    for process in (poller, worker):
        assert process.is_running, crew.story()
    assert_each_promoted_once(ids)
    assert set(Dispute.objects.filter(pk__in=later).values_list("version", flat=True)) == {1}
