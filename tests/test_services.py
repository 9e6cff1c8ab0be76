"""The choice of the servers that the tests run on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import redis_database_of

ROOT = Path(__file__).resolve().parent.parent


def pytest_says(*words: str, **environment: str) -> str:
    """A test run of its own that must refuse to start."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TEST_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", __file__, *words],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
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
