"""How every command ends: 2 for what could not be done or told, 1 only for work that was done."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.db import connection

from config.stack import BASE_DIR
from disputes.anchors import anchor_duty
from disputes.clock import database_now
from disputes.models import Dispute, Notification
from reviewqueue.models import ApiToken
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

NOBODY = "00000000-0000-4000-8000-000000000000"
TOKEN = ("create_api_token", "ada", "--name=n", "--scope=disputes:read")

# For every command of ours, arguments that it cannot do anything with.
WRONG = {
    "audit_invariants": [["--nonsense"]],
    "create_api_token": [
        ["nobody", "--name=n", "--scope=disputes:read"],
        ["ada", "--name= ", "--scope=disputes:read"],
        ["ada", "--name=n", "--scope=nonsense"],
    ],
    "demo": [["--port=nonsense"]],
    "demo_data": [["--nonsense"]],
    "drain_escalations": [
        ["--tier=nonsense"],
        ["--tier="],
        ["--ladder=nonsense"],
        ["--ladder="],
        ["--limit=0"],
    ],
    "export_anchors": [["nowhere/anchors"], ["."], ["--since=nonsense"]],
    "import_disputes": [["nowhere.csv"], ["--ladder=nonsense", "nowhere.csv"], ["--zone=x", "."]],
    "load_ladder_presets": [["nonsense"], ["default", "nonsense"]],
    "migrate": [["--database=nonsense"]],
    "reconcile_timeline": [["--check", "--repair"]],
    "replay_notifications": [["nonsense"]],
    "rqworker": [["--burst"], ["--burst", "nonsense"], ["--burst", "escalations", "nonsense"]],
    "run_poller": [["--nonsense"]],
    "verify_audit": [
        ["--dispute=nonsense"],
        ["--dispute="],
        [f"--dispute={NOBODY}"],
        ["--anchors=nowhere.jsonl"],
        ["--anchors="],
        [f"--dispute={NOBODY}", "--anchors=-"],
    ],
}
# What prints.
PRINTING = [
    ("audit_invariants", "--json"),
    ("drain_escalations",),
    ("export_anchors",),
    ("verify_audit", "--json"),
    ("drain_escalations", "--dry-run"),
    ("load_ladder_presets", "--list"),
    ("reconcile_timeline",),
    ("replay_notifications",),
    ("run_poller", "--once"),
    ("verify_audit", "--help"),
]


def url_here() -> str:
    """This test's database."""
    database = connection.settings_dict
    return (
        f"postgresql://{database['USER']}:{database['PASSWORD']}"
        f"@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    )


def run(words: Sequence[str], *, stdout: int = subprocess.PIPE, **environment: str):
    """The command as a process, on this test's database."""
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": url_here(),
            "LOG_LEVEL": "ERROR",
            # What is written shows only when it is flushed, as it is everywhere by default.
            "PYTHONUNBUFFERED": "",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=90,
    )


def run_unread(words: Sequence[str]):
    """The command with nobody at the other end of its pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run(words, stdout=writer)
    finally:
        os.close(writer)


def run_full(words: Sequence[str]):
    """The command with a disk that takes no byte."""
    with Path("/dev/full").open("w") as full:
        return run(words, stdout=full.fileno())


@pytest.fixture
def ada() -> None:
    """One person, one dispute that is not due, one anchor."""
    default_ladder()
    person("ada", "standard")
    now = database_now()
    opened(now=now, due_at=now + HOUR)
    assert anchor_duty(now=now)


def test_the_table_of_wrong_arguments_knows_every_command() -> None:
    rooms = ("config", "disputes", "escalation", "reviewqueue")
    assert set(WRONG) == {name for name, app in get_commands().items() if app in rooms}


@pytest.mark.parametrize(
    ("name", "words"),
    [(name, words) for name, cases in WRONG.items() for words in cases],
    ids=str,
)
def test_wrong_arguments_are_said_and_exit_with_2(ada, name, words, capsys) -> None:
    command = load_command_class(get_commands()[name], name)
    with pytest.raises(SystemExit) as end:
        command.run_from_argv(["manage.py", name, *words])
    assert end.value.code == 2
    assert capsys.readouterr().err
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(
    "words",
    [["drain_escalations", "--tier=\udcff"], ["demo", "--data=manage.py"], ["migrate", "nonsense"]],
    ids=ascii,
)
def test_arguments_that_only_the_process_itself_can_refuse_exit_with_2_too(words) -> None:
    done = run(words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_records(owner_connection) -> None:
    with table_away(owner_connection):
        done = run(["verify_audit"])
    assert done.returncode == 2
    assert "disputes_anchoredhead" in done.stderr


@contextlib.contextmanager
def table_away(owner_connection) -> Iterator[None]:
    """A database whose migrations are not those of the program."""
    owner_connection.execute("ALTER TABLE disputes_anchoredhead RENAME TO away")
    try:
        yield
    finally:
        owner_connection.execute("ALTER TABLE away RENAME TO disputes_anchoredhead")


def test_bad_settings_exit_with_2_where_1_would_be_a_fault_of_the_records() -> None:
    done = run(["verify_audit"], ESCALATION='{"polls": 1}')
    assert done.returncode == 2, done.stderr
    assert "escalation.E002" in done.stderr


def test_a_worker_without_redis_says_so_and_exits_with_2() -> None:
    done = run(["rqworker", "--burst", "escalations"], REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 2, done.stderr
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_reader_that_went_away_ends_a_command_with_2_and_no_word(ada, words) -> None:
    done = run_unread(words)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("words", PRINTING[:4], ids=" ".join)
def test_a_full_disk_ends_a_command_with_2_and_a_line(ada, words) -> None:
    done = run_full(words)
    assert done.returncode == 2
    assert done.stderr == "Standard output cannot be written: No space left on device\n"


def test_what_was_found_is_no_exit_code_where_it_could_not_be_told(owner_connection) -> None:
    default_ladder()
    opened(now=database_now(), due_at=database_now() + HOUR)
    with owner_connection.transaction():
        owner_connection.execute("ALTER TABLE disputes_auditentry DISABLE TRIGGER USER")
        owner_connection.execute("UPDATE disputes_auditentry SET reason = 'tampered'")
        owner_connection.execute("ALTER TABLE disputes_auditentry ENABLE TRIGGER USER")
    assert run(["verify_audit"]).returncode == 1
    assert run_unread(["verify_audit"]).returncode == 2


@pytest.mark.parametrize("run_lost", [run_unread, run_full])
def test_a_token_whose_secret_could_not_be_shown_does_not_exist(ada, run_lost) -> None:
    done = run_lost(TOKEN)
    assert done.returncode == 2
    assert "so there is no token" in done.stderr
    assert "Traceback" not in done.stderr
    assert not ApiToken.objects.exists()
    assert run(TOKEN).returncode == 0


def test_the_demos_sign_ins_that_could_not_be_shown_are_made_again() -> None:
    assert run_unread(["demo_data"]).returncode == 2
    assert not ApiToken.objects.exists()
    assert '"sign_ins"' in run(["demo_data"]).stdout


def closed_from_the_start(words: Sequence[str], which: str):
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {which}', "sh", sys.executable, "manage.py", *words],
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=90,
    )


@pytest.mark.parametrize(
    ("which", "code"), [(">&-", 2), ("2>&-", 0), ("<&-", 0), (">&- 2>&-", 2), (">&- 2>&- <&-", 2)]
)
def test_a_stream_that_was_closed_from_the_start(which, code) -> None:
    done = closed_from_the_start(["load_ladder_presets", "--list"], which)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("Standard output" in done.stderr) == (which == ">&-")


@pytest.fixture
def tables(tmp_path) -> list[str]:
    """Two files, the second with a row that is refused."""
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("id,amount,currency\nA-1,1.00,USD\n")
    second.write_text("id,amount,currency\nB-1,1.00,USD\nB-2,x,USD\n")
    return [str(first), str(second)]


def imported() -> list[str]:
    return sorted(Dispute.objects.filter(source="csv").values_list("reference", flat=True))


@pytest.mark.parametrize(("words", "run_lost"), [([], run_full), (["--json"], run_unread)])
def test_an_import_goes_on_without_its_report_and_says_so(ada, tables, run_lost, words) -> None:
    done = run_lost(["import_disputes", *words, *tables])
    assert done.returncode == 2
    assert "the import goes on" in done.stderr
    assert "Rows that were refused: 1. The report is incomplete, the import is not" in done.stderr
    assert "Traceback" not in done.stderr
    assert imported() == ["A-1", "B-1"]
    again = run(["import_disputes", *words, *tables])
    assert again.returncode == 1
    assert "unchanged" in again.stdout


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_dry_run_that_nobody_reads_stops(ada, tables, words) -> None:
    done = run_unread(["import_disputes", "--dry-run", *words, *tables])
    assert (done.returncode, done.stderr) == (2, "")
    assert imported() == []


def test_refused_rows_that_nobody_can_be_told_of_do_not_stop_an_import(ada, tables) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.Popen(
            [sys.executable, "manage.py", "import_disputes", *reversed(tables)],
            cwd=BASE_DIR,
            env={**os.environ, "DATABASE_URL": url_here()},
            stdout=subprocess.DEVNULL,
            stderr=writer,
        )
        assert done.wait(timeout=90) == 1
    finally:
        os.close(writer)
    assert imported() == ["A-1", "B-1"]


def test_a_message_that_is_not_there_or_not_failed_is_named(ada) -> None:
    waiting = Notification.objects.get()
    done = run(["replay_notifications", "999999", str(waiting.pk)])
    assert done.returncode == 1
    assert done.stderr == f"999999: no such message\n{waiting.pk}: not failed but pending\n"


def test_a_name_that_is_no_command_exits_with_2() -> None:
    done = run(["nosuch"])
    assert (done.returncode, "Unknown command" in done.stderr) == (2, True)


def test_links_in_a_circle_are_no_place_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    done = run(["export_anchors", str(tmp_path / "one")])
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_in_the_middle_of_any_command_is_130_and_a_line(tmp_path: Path) -> None:
    default_ladder()
    opened()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    environment = {**os.environ, "DATABASE_URL": url_here()}
    environment["FAILPOINTS"] = f"verify.rows_read=block:{gate}"
    process = subprocess.Popen(
        [sys.executable, "manage.py", "verify_audit"],
        cwd=BASE_DIR,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Opened for writing only once it stands there, reading.
    with gate.open("w"):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "Stopped.\n")
