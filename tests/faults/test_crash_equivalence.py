"""kill -9 at every point that any process passes: the final record is that of a run without deaths.

Every process does its work for a group of disputes of its own, once undisturbed and once for each
point that it passed, where it dies; all under one stopped clock. Then everybody does it again. At
the end each group's record must be the undisturbed one's, to the microsecond.
"""

import os
import re
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email import message_from_bytes
from email.policy import default as email_policy
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, connections
from redis import Redis

from config.processes import wait_until
from config.stack import BASE_DIR
from disputes import failpoints
from disputes.anchors import anchor_duty
from disputes.audit import verify
from disputes.models import Anchor, AuditEntry, Dispute, Notification
from disputes.transitions.opening import open_disputes
from disputes.transitions.reviewing import acknowledge
from escalation import reconcile as reconciling
from escalation.delivery import LEASE, deliver
from escalation.drain import drain
from escalation.poller import Poller
from escalation.timeline_keys import keys
from reviewqueue import ready_set
from reviewqueue.ready import reconcile_duty, take_next
from tests.conftest import connect_as_owner
from tests.faults.database_clock import DatabaseClock, movable_clock
from tests.faults.harness import KNOBS, assert_sound
from tests.situations import HOUR, SYSTEM, default_ladder, new, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

SECOND = timedelta(seconds=1)
TIMEOUT_S = 60


# Where a poller rests, which a single look does not: tests/faults/test_kill_poller.py kills it.
BETWEEN_LOOKS = {"poller.looked"}


def points_in_the_code() -> set[str]:
    """Every failpoint of the product."""
    folders = ("disputes", "escalation", "reviewqueue", "config")
    sources = [file for folder in folders for file in (BASE_DIR / folder).rglob("*.py")]
    named = re.compile(r'failpoint\(\s*"([^"]+)"')
    return {name for file in sources for name in named.findall(file.read_text())}


@dataclass
class Scene:
    """What the groups have in common: the instant at which all clocks stand, and a folder."""

    now: datetime
    folder: Path
    redis: Redis


@dataclass
class Group:
    """Disputes on a ladder of their own, with one reviewer for each of two queues."""

    scene: Scene
    name: str
    ids: list[UUID]
    ada: object


@dataclass(frozen=True)
class Process:
    """How a process begins, what it does, and what whoever depends on it does after its death."""

    name: str
    prepare: Callable[[Scene, str], Group]
    work: Callable[[Group], object]


def group(scene: Scene, name: str, *, due: timedelta, notify: bool = False) -> Group:
    """Two disputes of the first queue, due so long from now."""
    default_ladder(slug=name)
    ada = person(f"{name}-ada", "standard", ladder=name)
    person(f"{name}-sam", "senior", ladder=name)
    facts = [new(ladder=name, due_at=scene.now + due) for _ in range(2)]
    made = open_disputes(facts, actor=SYSTEM, now=scene.now - 3 * HOUR, notify=notify)
    return Group(scene, name, [each.id for each in made], ada)


def overdue(scene: Scene, name: str) -> Group:
    return group(scene, name, due=-SECOND)


def for_a_poller(scene: Scene, name: str) -> Group:
    """Redis was lost as well, and every duty's turn has come."""
    made = overdue(scene, name)
    queues = ready_set.keys()
    lost = (queues.complete, queues.round, f"{queues.queue}{name}:standard")
    scene.redis.delete(keys().epoch, keys().rebuild, *lost)
    with connect_as_owner() as owner:
        owner.execute("DELETE FROM escalation_dutyturn")
    return made


def waiting(scene: Scene, name: str) -> Group:
    made = group(scene, name, due=HOUR, notify=True)
    while reconcile_duty(now=scene.now):
        pass
    return made


def drifted(scene: Scene, name: str) -> Group:
    """The timeline and the queue have lost the group."""
    made = waiting(scene, name)
    scene.redis.zrem(keys().pending, *map(str, made.ids))
    scene.redis.delete(f"{ready_set.keys().queue}{name}:standard")
    return made


def file_to_import(scene: Scene, name: str) -> Group:
    """Three new disputes, and news about the first."""
    default_ladder(slug=name)
    ada = person(f"{name}-ada", "standard", ladder=name)
    rows = [f"{name}-{number},12.00,USD,open" for number in range(3)]
    rows += [f"{name}-0,12.00,USD,won"]
    (scene.folder / f"{name}.csv").write_text("\n".join(["id,amount,currency,status", *rows]))
    return Group(scene, name, [], ada)


def take_one(made: Group) -> None:
    """Whoever does not know whether it worked looks at what he holds before he takes another."""
    if not Dispute.objects.filter(holder=made.ada).exists():
        take_next(made.ada, queue_ids=None, now=made.scene.now)


def reconcile_all(made: Group) -> None:
    reconciling.reconcile()
    while reconcile_duty(now=made.scene.now):
        pass


def next_anchor(made: Group) -> None:
    """The hours between the anchors are over."""
    anchor_duty(now=made.scene.now + 2 * HOUR * Anchor.objects.count())


PROCESSES = (
    Process("worker", overdue, lambda made: drain(linger_s=0)),
    Process("poller", for_a_poller, lambda made: Poller(threading.Event()).look()),
    Process(
        "acknowledge",
        waiting,
        lambda made: acknowledge(made.ids[0], actor=made.ada, seen_version=1, now=made.scene.now),
    ),
    Process("take-next", waiting, take_one),
    Process("reconcile", drifted, reconcile_all),
    Process(
        "import",
        file_to_import,
        lambda made: call_command(
            "import_disputes",
            str(made.scene.folder / f"{made.name}.csv"),
            ladder=made.name,
            notify=True,
            verbosity=0,
        ),
    ),
    Process("anchors", waiting, next_anchor),
    Process("verify", waiting, lambda made: list(verify())),
)
# Comes when all the others are done: what it has sent can no longer be cancelled.
DELIVERER = Process("deliverer", waiting, lambda made: deliver(budget_s=30))


def in_a_child(work: Callable[[], object], hooks: dict[str, Callable[[], None]]) -> int:
    """Do it in a process of its own; returns how that ended, as `os.waitpid` tells it."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            failpoints.hooks.update(hooks)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 (told to the parent by the exit code)
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def points_passed(work: Callable[[], object], names: Sequence[str], note: Path) -> list[str]:
    """Do it undisturbed; returns the points that were passed."""

    def passing(name: str) -> Callable[[], None]:
        def hook() -> None:
            with note.open("a") as file:
                file.write(f"{name}\n")

        return hook

    status = in_a_child(work, {name: passing(name) for name in names})
    assert status == 0, "the undisturbed run failed"
    return list(dict.fromkeys(note.read_text().split()))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def nobody_is_left_in_postgres() -> bool:
    """Whether the sessions of the dead have ended, and with them what they had not committed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND usename = current_user AND pid <> pg_backend_pid()"
        )
        return cursor.fetchone() == (0,)


def no_claim_is_left(redis: Redis) -> bool:
    prefixes = (keys().lock, ready_set.keys().reserved, keys().rebuild, keys().bell)
    return not any(list(redis.scan_iter(match=f"{prefix}*")) for prefix in prefixes)


def record_of(made: Group) -> list[object]:
    """All that must be equal: rows, log and messages, without what is by chance."""

    def plain(text: str) -> str:
        return text.replace(f"{made.name}-", "")

    tiers = {None: None} | dict(
        Dispute._meta.get_field("tier").related_model.objects.values_list("pk", "slug")
    )
    found: list[object] = []
    people = {f"user:{made.ada.pk}": "ada"}
    rows = Dispute.objects.filter(tier__revision__ladder__slug=made.name)
    for row in rows.order_by("queue_score", "pk"):
        entries = AuditEntry.objects.filter(dispute=row).order_by("version")
        messages = Notification.objects.filter(dispute=row)
        found.append(
            {
                "row": (
                    *(row.status, tiers[row.tier_id], row.version, row.due_at, row.due_kind),
                    *(row.holder_id == made.ada.pk, row.held_since, row.deadline_no),
                    row.queue_score,
                ),
                "log": [
                    (
                        *(e.version, e.action, plain(e.actor_label), e.at, e.from_status),
                        *(e.to_status, tiers[e.from_tier_id], tiers[e.to_tier_id]),
                        *(e.from_due_at, e.to_due_at, e.deadline_no, e.match_decision, e.reason),
                    )
                    for e in entries
                ],
                "messages": sorted(
                    (m.version, m.event, m.channel, people.get(m.recipient, "sam"), m.status)
                    for m in messages
                ),
            }
        )
    return found


@pytest.fixture
def clock(transactional_db) -> Iterator[DatabaseClock]:
    with movable_clock() as moved:
        yield moved


@pytest.fixture
def scene(clock: DatabaseClock, settings, tmp_path: Path, redis_client: Redis) -> Scene:
    settings.ESCALATION = {**KNOBS, "duties": ["reviewqueue.ready.reconcile_duty"]}
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path / "mail")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_catalog.clock_timestamp()")
        (now,) = cursor.fetchone()
    clock.stop_at(now)
    # The hour's anchor is made; the pollers look for the next one and find it not due.
    anchor_duty(now=now)
    return Scene(now, tmp_path, redis_client)


def die_everywhere(scene: Scene, process: Process) -> dict[str, Group]:
    """Point -> group; the group of the undisturbed run is under an empty name."""
    names = sorted(points_in_the_code())
    calm = process.prepare(scene, f"{process.name}-calm")
    note = scene.folder / f"{process.name}.points"
    groups = {"": calm}
    for number, point in enumerate(points_passed(lambda: process.work(calm), names, note)):
        made = process.prepare(scene, f"{process.name}-{number}")
        status = in_a_child(lambda made=made: process.work(made), {point: die})
        assert os.WIFSIGNALED(status), f"{process.name} never came to {point}: {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL
        groups[point] = made
    assert wait_until(nobody_is_left_in_postgres, timeout_s=TIMEOUT_S)
    return groups


def test_f05_every_process_may_die_at_every_point_and_the_record_is_that_of_a_run_without_deaths(
    clock: DatabaseClock, scene: Scene
) -> None:
    groups = {process: die_everywhere(scene, process) for process in PROCESSES}
    assert wait_until(lambda: no_claim_is_left(scene.redis), timeout_s=TIMEOUT_S)
    for process, by_point in groups.items():
        for made in by_point.values():
            process.work(made)
    drain(linger_s=0)
    reconciling.reconcile()
    groups[DELIVERER] = die_everywhere(scene, DELIVERER)
    clock.stop_at(scene.now + LEASE + SECOND)
    deliver(budget_s=60)
    passed = {point for by_point in groups.values() for point in by_point if point}
    assert passed == points_in_the_code() - BETWEEN_LOOKS, (
        "let a process pass these, or they prove nothing"
    )
    different = [
        (process.name, point)
        for process, by_point in groups.items()
        for point, made in by_point.items()
        if record_of(made) != record_of(by_point[""])
    ]
    assert different == []
    assert all(len(record_of(by_point[""])) >= 2 for by_point in groups.values())
    assert_sound()
    assert_repeats_have_their_key(scene, may_repeat=groups[DELIVERER]["deliver.sent"])


def assert_repeats_have_their_key(scene: Scene, *, may_repeat: Group) -> None:
    """Each message arrived, under its own key; twice only where nobody could know that it had."""
    arrived = arrivals(scene.folder / "mail")
    sent = Notification.objects.filter(status="sent")
    message_ids = {
        f"<{key.replace(':', '.')}@escalations>": dispute
        for key, dispute in sent.values_list("idempotency_key", "dispute")
    }
    assert set(arrived) == set(message_ids)
    repeated = {message_ids[key] for key, times in arrived.items() if times > 1}
    assert repeated <= set(may_repeat.ids)
    assert max(arrived.values()) == 2, "the death after sending left no trace"


def arrivals(folder: Path) -> Counter[str]:
    """How often each message arrived, by its Message-ID."""
    found: Counter[str] = Counter()
    for file in folder.iterdir():
        for raw in file.read_bytes().split(b"-" * 79 + b"\n"):
            if raw.strip():
                found[message_from_bytes(raw, policy=email_policy)["Message-ID"].strip()] += 1
    return found
