"""Parts of this suite, run again in a process of their own on other servers."""

import os
import subprocess
import sys

from config.embedded import Addresses
from config.stack import BASE_DIR

TIMEOUT_S = 1_800
# Variables of the outer run that would steer the inner one.
OURS = ("TEST_", "PYTEST_", "DATABASE_", "REDIS_URL", "TIMELINE_REDIS_URL", "ESCALATION")


def run_suite(addresses: Addresses, *paths: str) -> str:
    """What pytest said; fails the test with it unless everything passed."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--services=env", "-p", "no:cacheprovider", *paths],
        cwd=BASE_DIR,
        env={
            **inherited,
            "TEST_DATABASE_URL": addresses.database_owner_url,
            "TEST_DATABASE_APP_URL": addresses.database_url,
            "TEST_REDIS_URL": addresses.redis_url,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout
