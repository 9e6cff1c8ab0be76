"""The clock's commands: help, exit codes, JSON, and a dry run that writes nothing at all."""

import io
import json
import os
import subprocess
import sys
from datetime import timedelta

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command, load_command_class
from psycopg import sql
from redis import Redis

from disputes.clock import database_now
from disputes.models import Dispute, Notification
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.doorbell import waiting
from escalation.failures import put_off
from escalation.models import Heartbeat
from escalation.redis_client import UnfitRedis, timeline_client
from escalation.timeline_keys import keys
from tests.situations import HOUR, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

COMMANDS = ("run_poller", "drain_escalations", "reconcile_timeline", "replay_notifications")
NOBODY = "redis://127.0.0.1:1/0"


def run(*words: str) -> tuple[str, int]:
    """What the command printed, and its exit code."""
    out = io.StringIO()
    try:
        call_command(*words, stdout=out)
    except SystemExit as ended:
        return out.getvalue(), int(ended.code or 0)
    except CommandError as error:
        return f"{out.getvalue()}{error}", error.returncode
    return out.getvalue(), 0


def run_json(*words: str) -> tuple[dict[str, object], int]:
    text, code = run(*words, "--json")
    return json.loads(text), code


def due(**facts: object) -> Dispute:
    now = database_now()
    return opened(now=now - 3 * HOUR, due_at=now - timedelta(seconds=1), **facts)


def everything(owner: psycopg.Connection, redis_client: Redis) -> dict[str, object]:
    """All rows of all tables, and every key of Redis with its bytes and its time to live."""
    names = owner.execute(
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname"
    ).fetchall()
    found: dict[str, object] = {}
    for (name,) in names:
        query = sql.SQL("SELECT t.ctid::text, t.xmin::text, t::text FROM {} t ORDER BY 1")
        found[name] = owner.execute(query.format(sql.Identifier(name))).fetchall()
    for key in sorted(redis_client.scan_iter()):
        found[key.decode()] = (redis_client.dump(key), redis_client.ttl(key))
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_what_it_is_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = load_command_class("escalation", name)
    assert command.help.endswith(".")
    with pytest.raises(SystemExit) as ended:
        command.run_from_argv(["manage.py", name, "--help"])
    assert ended.value.code == 0
    assert command.help.split()[0] in capsys.readouterr().out


def test_a_dry_run_writes_nothing_at_all(
    owner_connection: psycopg.Connection, redis_client: Redis
) -> None:
    default_ladder()
    person("sam", "senior")
    for _ in range(3):
        due()
    before = everything(owner_connection, redis_client)
    assert before["disputes_dispute"]
    assert f"{keys().pending}" in before
    assert run_json("drain_escalations", "--dry-run") == ({"due": 3}, 0)
    text, _ = run("drain_escalations", "--dry-run", "--limit=2")
    assert text == "2 disputes due, nothing written\n"
    assert everything(owner_connection, redis_client) == before
    run("drain_escalations")
    assert everything(owner_connection, redis_client) != before


def test_a_check_of_the_timeline_writes_nothing_at_all(
    owner_connection: psycopg.Connection, redis_client: Redis
) -> None:
    default_ladder()
    lost = due()
    timeline_client().zrem(keys().pending, str(lost.pk))
    timeline_client().zadd(keys().pending, {"garbage": 5})
    before = everything(owner_connection, redis_client)
    found, code = run_json("reconcile_timeline", "--check")
    assert code == 1
    assert (found["missing"], found["stuck"], found["repaired"]) == ([str(lost.pk)], ["garbage"], 0)
    assert (found["clean"], found["built"]) == (False, False)
    assert everything(owner_connection, redis_client) == before


def test_a_list_of_failed_messages_changes_none(
    owner_connection: psycopg.Connection, redis_client: Redis
) -> None:
    failed = failed_message()
    # The bell's quiet time would end by itself meanwhile.
    redis_client.delete(f"{keys().bell}notifications")
    before = everything(owner_connection, redis_client)
    text, code = run("replay_notifications", "--list")
    assert code == 0
    assert text.split("\t") == [
        str(failed.pk),
        str(failed.dispute_id),
        "arrived",
        "email",
        failed.recipient,
        "no such mailbox\n",
    ]
    assert everything(owner_connection, redis_client) == before


def failed_message() -> Notification:
    default_ladder()
    person("ada", "standard")
    now = database_now()
    opened(now=now, due_at=now + HOUR)
    Notification.objects.update(status="failed", attempts=8, last_error="no such mailbox")
    return Notification.objects.get()


def test_draining_promotes_what_is_due_and_says_how_it_went() -> None:
    default_ladder()
    first, last = due(), due(tier="compliance")
    found, code = run_json("drain_escalations")
    assert found == {
        "promoted": 2,
        "outcomes": {"PROMOTED_TO_SENIOR": 1, "TERMINAL_ESCALATION": 1},
    }
    assert code == 0
    assert again(first).tier.slug == "senior"
    assert again(last).exhausted_at is not None
    assert run("drain_escalations") == ("0 disputes changed\n", 0)


def test_draining_in_words() -> None:
    default_ladder()
    due()
    assert run("drain_escalations") == ("1 disputes changed: 1 PROMOTED_TO_SENIOR\n", 0)


def test_draining_works_with_redis_away(settings, redis_client: Redis) -> None:
    default_ladder()
    dispute = due()
    settings.REDIS_URL = settings.TIMELINE_REDIS_URL = NOBODY
    assert run_json("drain_escalations")[0]["promoted"] == 1
    assert again(dispute).tier.slug == "senior"


def test_draining_can_be_narrowed_to_a_ladder_a_tier_and_a_number() -> None:
    default_ladder()
    default_ladder(slug="other")
    here, there = due(), due(ladder="other")
    upstairs = [due(tier="senior") for _ in range(2)]
    assert run_json("drain_escalations", "--ladder=other")[0]["promoted"] == 1
    assert again(there).version == 2
    assert run_json("drain_escalations", "--tier=senior", "--limit=1")[0]["promoted"] == 1
    assert sorted(again(d).version for d in upstairs) == [1, 2]
    assert again(here).version == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ladder=nowhere",), "nowhere"),
        (("--limit=0",), "--limit must be at least 1"),
        (("--limit=-5",), "--limit must be at least 1"),
        (("--tier=attic",), "attic"),
        (("--tier=",), "no ladder has a tier ''"),
        (("--ladder=",), "ladder"),
    ],
)
def test_nonsense_is_refused_and_nothing_is_promoted(words: tuple[str, ...], says: str) -> None:
    default_ladder()
    dispute = due()
    text, code = run("drain_escalations", *words)
    assert says in text
    assert code == 2
    assert again(dispute).version == 1


def test_a_put_off_dispute_is_not_drained() -> None:
    default_ladder()
    put_off(due().pk, error=ValueError("x"), now=database_now())
    assert run_json("drain_escalations")[0] == {"promoted": 0, "outcomes": {}}


def test_a_sound_timeline_passes_the_check() -> None:
    default_ladder()
    due()
    survey.set_epoch()
    found, code = run_json("reconcile_timeline", "--check")
    assert (found["clean"], found["built"], found["checked"], code) == (True, True, 1, 0)


def test_a_sound_timeline_that_was_never_completed_fails_the_check() -> None:
    default_ladder()
    due()
    text, code = run("reconcile_timeline", "--check")
    assert code == 1
    assert "The timeline was lost or never built." in text


def test_drift_is_repaired_and_named() -> None:
    default_ladder()
    lost = due()
    survey.set_epoch()
    timeline_client().zrem(keys().pending, str(lost.pk))
    text, code = run("reconcile_timeline", "--repair")
    assert code == 0
    assert "1 disputes compared: 1 missing" in text
    assert run("reconcile_timeline", "--check")[1] == 0


def test_a_lost_timeline_is_rebuilt(redis_client: Redis) -> None:
    default_ladder()
    due()
    redis_client.flushdb()
    assert run("reconcile_timeline")[1] == 0
    assert timeline.depth() == 1
    assert survey.is_built()


def test_comparing_with_redis_away_is_an_exit_code_of_its_own(settings) -> None:
    settings.TIMELINE_REDIS_URL = NOBODY
    text, code = run("reconcile_timeline", "--check")
    assert code == 2
    assert "Redis cannot be reached" in text


def test_failed_messages_are_put_back_with_their_keys_and_rung_for(redis_client: Redis) -> None:
    failed = failed_message()
    redis_client.flushdb()
    assert run_json("replay_notifications") == ({"replayed": 1, "not_replayed": {}}, 0)
    message = Notification.objects.get()
    assert (message.status, message.attempts) == ("pending", 0)
    assert message.idempotency_key == failed.idempotency_key
    assert waiting("notifications") == 1
    assert run("replay_notifications") == ("0 messages put back\n", 0)


def test_one_failed_message_can_be_put_back_alone() -> None:
    failed = failed_message()
    unknown = str(failed.pk + 1)
    left = {unknown: "no such message"}
    assert run_json("replay_notifications", unknown) == ({"replayed": 0, "not_replayed": left}, 1)
    found, code = run_json("replay_notifications", unknown, str(failed.pk))
    assert (found, code) == ({"replayed": 1, "not_replayed": left}, 1)
    assert Notification.objects.get().status == "pending"
    left = {str(failed.pk): "not failed but pending"}
    assert run_json("replay_notifications", str(failed.pk))[0]["not_replayed"] == left


def test_one_look_of_a_poller_says_what_it_found() -> None:
    default_ladder()
    due()
    text, code = run("run_poller", "--once")
    assert (text, code) == ("1 due, 1 jobs rung, 0 handed over\n", 0)
    assert Heartbeat.objects.get().kind == "poller"


def test_one_look_with_redis_away_promotes_and_says_so(settings) -> None:
    default_ladder()
    dispute = due()
    settings.REDIS_URL = settings.TIMELINE_REDIS_URL = NOBODY
    text, code = run("run_poller", "--once")
    assert (text, code) == ("0 due, 0 jobs rung, 0 handed over (Redis cannot be reached)\n", 0)
    assert again(dispute).tier.slug == "senior"


def test_a_poller_refuses_a_redis_that_would_evict_its_keys(own_redis: Redis) -> None:
    assert run("run_poller", "--once")[1] == 0
    own_redis.config_set("maxmemory-policy", "volatile-lru")
    with pytest.raises(UnfitRedis):
        call_command("run_poller", "--once")


def run_manage(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=settings.BASE_DIR,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words",
    [
        ("verify_audit", "--json"),
        ("audit_invariants",),
        ("drain_escalations", "--dry-run"),
        ("run_poller", "--once"),
        ("replay_notifications",),
    ],
)
def test_without_postgres_a_command_says_so_in_a_line_and_exits_2(words):
    done = run_manage(*words, DATABASE_URL="postgresql://a:b@127.0.0.1:9/none")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Postgres did not answer" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ESCALATION", "{bad", "ESCALATION is not JSON"),
        ("ESCALATION", "[]", "escalation.E001"),
        ("ESCALATION", '{"polls": 1}', "escalation.E002"),
        ("ESCALATION", '{"batch_size": 0}', "escalation.E004"),
        ("DATABASE_URL", "sqlite:///x.db", "DATABASE_URL must start with postgres://"),
        ("REDIS_URL", "http://x", "REDIS_URL must start with redis://"),
        ("DATABASE_URL", "postgresql://a:b@127.0.0.1:abc/x", "DATABASE_URL is not an address"),
        ("REDIS_URL", "redis://127.0.0.1:99999/0", "REDIS_URL is not an address"),
        ("SECRET_KEY", "", "SECRET_KEY is not set"),
    ],
)
def test_bad_settings_stop_the_start_in_words(variable, value, said):
    done = run_manage("check", **{variable: value})
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "id_"),
    [
        ("ESCALATION", '{"polls": 1}', "escalation.E002"),
        ("WEBHOOKS", '{"erp": {"url": "http://x", "secrets": ["a"]}}', "escalation.E021"),
    ],
)
def test_a_web_process_does_not_start_over_bad_settings(variable, value, id_):
    done = subprocess.run(
        [sys.executable, "-c", "import config.wsgi"],
        cwd=settings.BASE_DIR,
        env={**os.environ, variable: value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert id_ in done.stderr
