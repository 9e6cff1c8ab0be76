"""The choice of the servers that the tests run on, and that they are there when it is said."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from config.embedded import EmbeddedServers
from config.local_postgres import MAX_CONNECTIONS, remove_outside_data
from config.local_valkey import DATABASES
from config.server_child import free_port
from tests.services import redis_database_of

ROOT = Path(__file__).resolve().parent.parent


def run_pytest(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TEST_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def pytest_says(*words: str, **environment: str) -> str:
    """What a test run says that must refuse to start."""
    done = run_pytest("--collect-only", __file__, *words, **environment)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    return done.stderr


def test_insisting_on_the_environment_without_addresses_fails_and_says_what_to_set() -> None:
    said = pytest_says("--services=env")
    assert "Set both TEST_DATABASE_URL and TEST_REDIS_URL" in said


def test_half_an_environment_is_refused_rather_than_mixed() -> None:
    said = pytest_says(TEST_DATABASE_URL="postgresql://somewhere/else")
    assert "Set both TEST_DATABASE_URL and TEST_REDIS_URL" in said


def test_insisting_on_containers_without_an_engine_fails_and_says_why() -> None:
    said = pytest_says("--services=containers", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert "--services=containers: no Docker engine answers" in said


@pytest.mark.parametrize(
    ("worker", "expected"),
    [("gw0", "redis://:secret@127.0.0.1:7000/1"), ("gw11", "redis://:secret@127.0.0.1:7000/12")],
)
def test_every_test_process_has_a_redis_database_of_its_own(worker: str, expected: str) -> None:
    assert redis_database_of("redis://:secret@127.0.0.1:7000/0", worker) == expected


# Any small test that asks Postgres and Redis something; it is run at once after each start.
SMOKE = "tests/disputes/test_clock.py"


@pytest.mark.processes
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
def test_bug_62_servers_answer_with_the_expected_settings_as_soon_as_they_are_said_to_be_there(
    times: int, tmp_path: Path
) -> None:
    """One question to each, over TCP, as the first thing that anybody does; never a second try."""
    for number in range(times):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            with EmbeddedServers(folder, durable=False) as servers:
                addresses = servers.addresses
                with psycopg.connect(addresses.database_url, connect_timeout=5) as postgres:
                    found = postgres.execute(
                        "SELECT current_user, current_setting('max_connections'),"
                        " current_setting('server_encoding'), current_setting('fsync'),"
                        " inet_server_addr() IS NOT NULL, pg_is_in_recovery()"
                    ).fetchone()
                with Redis.from_url(addresses.redis_url, socket_timeout=5) as redis:
                    kept = redis.config_get("maxmemory-policy", "databases")
            assert found == ("app", str(MAX_CONNECTIONS), "UTF8", "off", True, False)
            assert kept == {"maxmemory-policy": "noeviction", "databases": str(DATABASES)}
        finally:
            remove_outside_data(folder)


@pytest.mark.processes
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.long)])
def test_bug_62_tests_that_run_at_once_after_the_start_pass_every_time(times: int) -> None:
    for _ in range(times):
        done = run_pytest("-q", "--services=embedded", SMOKE)
        assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
        assert "skipped" not in done.stdout


def fails_and_skips_nothing(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert " passed" not in done.stdout
    assert " skipped" not in done.stdout


@pytest.mark.processes
@pytest.mark.parametrize("also", [(), ("TEST_DATABASE_APP_URL",)], ids=["owner", "owner and role"])
def test_bug_62_with_an_absent_postgres_the_run_fails_and_skips_nothing(also: tuple[str]) -> None:
    absent = f"postgresql://a:b@127.0.0.1:{free_port()}/x"
    done = run_pytest(
        *("-q", "--services=env", SMOKE),
        TEST_REDIS_URL=os.environ["REDIS_URL"],
        **dict.fromkeys(("TEST_DATABASE_URL", *also), absent),
    )
    fails_and_skips_nothing(done)
    assert "connection refused" in (done.stdout + done.stderr).lower()


@pytest.mark.processes
def test_bug_62_without_a_postgres_that_starts_the_run_fails_and_skips_nothing(
    tmp_path: Path,
) -> None:
    for name in ("postgres", "initdb"):
        shutil.copy("/bin/false", tmp_path / name)
    done = run_pytest("-q", "--services=embedded", SMOKE, PG_BIN=str(tmp_path))
    fails_and_skips_nothing(done)
    assert "initdb failed" in done.stdout + done.stderr
