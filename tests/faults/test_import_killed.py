"""An import as a real process, killed with no chance to tidy up, and run again."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from config.processes import wait_until
from config.stack import BASE_DIR
from disputes.models import AuditEntry, Dispute, SourceRecord
from tests.situations import default_ladder

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

ROWS = 1_020
DEADLINE_S = 90


@pytest.fixture
def table(tmp_path) -> Path:
    """New disputes, then news about some of them."""
    path = tmp_path / "many.csv"
    lines = [f"K-{number:05},1.00,USD,open" for number in range(ROWS)]
    lines += [f"K-{number:05},1.00,USD,won" for number in range(20)]
    path.write_text("\n".join(["id,amount,currency,status", *lines]))
    return path


def start(path: Path, **environment: str) -> subprocess.Popen[str]:
    """The command on this test's database."""
    database = connection.settings_dict
    url = (
        f"postgresql://{database['USER']}:{database['PASSWORD']}"
        f"@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    )
    return subprocess.Popen(
        [sys.executable, "manage.py", "import_disputes", str(path)],
        cwd=BASE_DIR,
        env={**os.environ, "DATABASE_URL": url, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> int:
    said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode is not None, said
    return process.returncode


def completed(path: Path) -> None:
    """Run to the end, then check that each record is there once and no more."""
    process = start(path)
    assert finished(process) == 0
    assert Dispute.objects.count() == ROWS
    assert Dispute.objects.filter(status="resolved").count() == 20
    assert AuditEntry.objects.count() == ROWS + 20
    assert SourceRecord.objects.count() == ROWS + 20


@pytest.mark.parametrize(
    ("point", "stored"),
    [
        ("import.batch_written", 0),
        ("journal.audit_written", 0),
        ("import.batch_stored", 500),
        ("import.facts_written", ROWS),
        ("import.facts_stored", ROWS),
    ],
)
def test_killed_at_this_point_and_run_again_every_record_is_stored_once(table, point, stored):
    default_ladder()
    killed = start(table, FAILPOINTS=f"{point}=kill")
    assert finished(killed) == -signal.SIGKILL
    assert Dispute.objects.count() == stored
    assert SourceRecord.objects.filter(effect="created").count() == stored
    assert AuditEntry.objects.count() == SourceRecord.objects.count()
    completed(table)


def test_killed_from_outside_while_it_works_and_run_again_every_record_is_stored_once(table):
    default_ladder()
    process = start(table)
    assert wait_until(Dispute.objects.exists, timeout_s=DEADLINE_S)
    process.kill()
    assert finished(process) == -signal.SIGKILL
    completed(table)


def test_control_c_ends_with_a_clear_message_and_a_second_run_completes(table):
    default_ladder()
    process = start(table)
    assert wait_until(Dispute.objects.exists, timeout_s=DEADLINE_S)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 130, said
    assert "run the same command again" in said
    assert "Traceback" not in said
    completed(table)


def test_postgres_gone_in_the_middle_is_said_clearly_and_a_second_run_completes(
    table, tmp_path, owner_connection
):
    default_ladder()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = start(table, FAILPOINTS=f"import.batch_stored=block:{gate}")
    with waiting_at(gate):
        cut = owner_connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
            " AND pid <> ALL (%s)",
            [[owner_connection.info.backend_pid, backend_of(connection)]],
        ).fetchone()
        assert cut == (1,)
    said = process.communicate(timeout=DEADLINE_S)[0]
    assert process.returncode == 2, said
    assert "PostgreSQL failed after" in said
    assert "run the same command again" in said
    assert "Traceback" not in said
    completed(table)


@contextlib.contextmanager
def waiting_at(gate: Path) -> Iterator[None]:
    """While the process stands at its failpoint; it goes on when the block ends."""
    opened: list[int] = []

    def somebody_reads() -> bool:
        with contextlib.suppress(OSError):  # refused until the other end is open
            opened.append(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    assert wait_until(somebody_reads, timeout_s=DEADLINE_S)
    try:
        yield
    finally:
        os.close(opened[0])


def backend_of(django_connection) -> int:
    with django_connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]
