"""Real processes of the product, on this test's own database and Redis, and their deaths.

Promise: tests wait for conditions, never for time to pass; what a failed wait knows is shown; no
process outlives its test.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as email_policy
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection, connections
from django.db.models import F

from config.processes import kill_session, send_signal, session_members, wait_until
from config.stack import BASE_DIR
from disputes.clock import database_now
from disputes.invariants import broken
from disputes.models import AuditEntry, Dispute, Notification
from disputes.transitions.opening import open_disputes
from escalation.models import Failure
from escalation.reconcile import compare
from tests.situations import HOUR, SYSTEM, new

# The shortest that the settings allow, so that tests wait little for locks and polls.
KNOBS: dict[str, object] = {
    "poll_interval_s": 1,
    "lock_ttl_s": 5,
    "reconcile_interval_s": 5,
    "drain_linger_s": 0,
}
TIMEOUT_S = 30


class Member:
    """One started process, leader of a session of its own, and what it wrote."""

    def __init__(
        self,
        words: Sequence[str],
        environment: dict[str, str],
        log: Path,
        within: Sequence[str] = (),
    ) -> None:
        self.log = log
        self._file = log.open("wb")
        self.process = subprocess.Popen(
            [*within, sys.executable, "manage.py", *words],
            cwd=BASE_DIR,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def said(self, words: str) -> bool:
        """Whether these words are in what the process wrote so far."""
        return self.times_said(words) > 0

    def times_said(self, words: str) -> int:
        """How often these words are in what the process wrote so far."""
        return self.log.read_text(errors="replace").count(words)

    def signal_all(self, signum: signal.Signals) -> None:
        """The process and everything that it forked, all at once."""
        for pid in session_members(self.process.pid):
            send_signal(pid, signum)

    def terminate(self) -> int:
        """SIGTERM to the leader; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """kill -9 of the process and everything that it forked."""
        kill_session(self.process.pid)
        self.process.wait(TIMEOUT_S)
        self._file.close()


class Latch:
    """A place at which processes stand still, by a failpoint's `block` order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: int | None = None
        os.mkfifo(path)

    @property
    def order(self) -> str:
        return f"block:{self._path}"

    def somebody_stands_here(self) -> bool:
        """True once a process has come; from then on it stays until `let_go`."""
        if self._held is None:
            # Refused while nobody has opened the other end for reading.
            with contextlib.suppress(OSError):
                self._held = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        return self._held is not None

    def let_go(self) -> None:
        """Let it pass, and everybody after it: an empty file takes the place of the FIFO."""
        free = self._path.with_suffix(".free")
        free.touch()
        free.rename(self._path)
        if self._held is not None:
            os.close(self._held)
            self._held = None


class Crew:
    """Everything that one test starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mail = folder / "mail"
        self._members: list[Member] = []
        self._latches: list[Latch] = []
        # What the processes are started with, for instance on a host of their own.
        self.within: tuple[str, ...] = ()

    def poller(self, **changes: str) -> Member:
        """`run_poller`; `changes` are environment variables."""
        return self._start("run_poller", **changes)

    def worker(self, *queues: str, **changes: str) -> Member:
        """`rqworker` on the named queues, as in production."""
        return self._start("rqworker", *queues, **changes)

    def mortal_points(self, *names: str) -> tuple[str, list[Path]]:
        """FAILPOINTS that kill one process at each of these points, and files gone when dead."""
        files = [self.folder / f"kill-at-{name}" for name in names]
        for file in files:
            file.touch()
        orders = [f"{name}=killonce:{f}" for name, f in zip(names, files, strict=True)]
        return ",".join(orders), files

    def latch(self) -> Latch:
        """A new place to stand still at."""
        latch = Latch(self.folder / f"latch-{len(self._latches)}")
        self._latches.append(latch)
        return latch

    def wait(self, condition: Callable[[], bool], *, timeout_s: float = TIMEOUT_S) -> None:
        """Until the condition holds; a test that waited in vain shows what everybody wrote."""
        if not wait_until(condition, timeout_s=timeout_s, every_s=0.05):
            pytest.fail(f"waited {timeout_s} s in vain\n{self.story()}")

    def mails(self) -> Iterator[EmailMessage]:
        """Everything that was sent so far."""
        for file in self.mail.glob("*"):
            for raw in file.read_bytes().split(b"-" * 79 + b"\n"):
                if raw.strip():
                    yield message_from_bytes(raw, policy=email_policy)

    def story(self) -> str:
        """The end of every process's output."""
        return "\n".join(
            f"--- {member.log.name} (running: {member.is_running})\n"
            + "\n".join(member.log.read_text(errors="replace").splitlines()[-40:])
            for member in self._members
        )

    def end(self) -> None:
        """Kill whatever still runs."""
        for latch in self._latches:
            latch.let_go()
        for member in self._members:
            member.kill()

    def _start(self, *words: str, **changes: str) -> Member:
        environment = {
            **os.environ,
            "DATABASE_URL": database_address(),
            "ESCALATION": json.dumps(KNOBS),
            "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "EMAIL_FILE_PATH": str(self.mail),
            "PYTHONUNBUFFERED": "1",
            **changes,
        }
        log = self.folder / f"{len(self._members):02d}-{'-'.join(words)}.log"
        member = Member(words, environment, log, self.within)
        self._members.append(member)
        return member


@contextlib.contextmanager
def crew_in(folder: Path) -> Iterator[Crew]:
    """A crew that is gone at the end, however the test went."""
    crew = Crew(folder)
    try:
        yield crew
    finally:
        crew.end()


def database_address() -> str:
    """The application's own address of this test process's database."""
    base = os.environ["DATABASE_URL"].rsplit("/", 1)[0]
    return f"{base}/{connections['default'].settings_dict['NAME']}"


def open_due(number: int, *, seconds_ago: float = 1, notify: bool = False) -> list[UUID]:
    """So many disputes of the first tier whose deadline has passed."""
    now = database_now()
    batch = [new(due_at=now - timedelta(seconds=seconds_ago)) for _ in range(number)]
    return [
        opened.id
        for opened in open_disputes(batch, actor=SYSTEM, now=now - 3 * HOUR, notify=notify)
    ]


def open_due_in(number: int, seconds: float, *, notify: bool = False) -> list[UUID]:
    """So many disputes whose deadline passes in a moment."""
    return open_due(number, seconds_ago=-seconds, notify=notify)


def nothing_is_due() -> bool:
    return not Dispute.objects.filter(due_at__lte=database_now()).exists()


def promotions(ids: Sequence[UUID] | None = None) -> int:
    entries = AuditEntry.objects.filter(action=AuditEntry.Action.PROMOTED)
    return (entries if ids is None else entries.filter(dispute__in=ids)).count()


def assert_each_promoted_once(ids: Sequence[UUID]) -> None:
    """One entry and one version each, never early, and all that must always hold, holds."""
    assert promotions() == len(ids)
    rows = Dispute.objects.filter(pk__in=ids).values_list("version", "tier__slug")
    assert set(rows) == {(2, "senior")}
    # `at` is what the clock claims; `recorded_at` is what Postgres' own clock said.
    assert not AuditEntry.objects.filter(
        deadline_no__isnull=False, recorded_at__lt=F("from_due_at")
    ).exists()
    # Nobody even tried what the database would have refused.
    assert not Failure.objects.exists()
    assert_sound()


def assert_sound() -> None:
    """Every invariant of the records; and Redis says what Postgres says."""
    assert broken() == []
    drift = compare()
    assert drift.is_clean, drift


def open_transactions() -> int:
    """Other sessions of this database that stand in a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
        )
        return cursor.fetchone()[0]


def redis_is_in_step() -> bool:
    return compare().is_clean


def messages(status: str) -> int:
    return Notification.objects.filter(status=status).count()
