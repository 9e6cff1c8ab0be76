"""The network between two hosts loses every packet: nobody is told, and nobody waits for ever.

Long, and only where the test may make a network namespace (Linux, root, `ip` and `iptables`).
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from escalation.models import Heartbeat
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    database_address,
    open_due,
    promotions,
    redis_is_in_step,
)
from tests.faults.proxy import proxy_before
from tests.situations import default_ladder

pytestmark = [pytest.mark.processes, pytest.mark.long]

HERE, THERE = "10.213.77.1", "10.213.77.2"


class OtherHost:
    """A host that reaches this one over a cable of its own."""

    def __init__(self) -> None:
        self.name = f"other{secrets.token_hex(3)}"
        self.within = ("ip", "netns", "exec", self.name)
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", "up0",
            "netns", self.name)  # fmt: skip
        run("ip", "addr", "add", f"{HERE}/30", "dev", self.name)
        run("ip", "link", "set", self.name, "up")
        run(*self.within, "ip", "addr", "add", f"{THERE}/30", "dev", "up0")
        run(*self.within, "ip", "link", "set", "up0", "up")

    def lose_packets(self, port: int, *, lose: bool) -> None:
        """Whether whatever this port of ours sends to it is lost, without a word."""
        rule = ("INPUT", "-p", "tcp", "--sport", str(port), "-j", "DROP")
        run(*self.within, "iptables", "-A" if lose else "-D", *rule)

    def remove(self) -> None:
        run("ip", "netns", "delete", self.name)


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def other_host() -> Iterator[OtherHost]:
    if os.geteuid() or not (shutil.which("ip") and shutil.which("iptables")):
        pytest.skip("needs root, ip and iptables")
    try:
        host = OtherHost()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr!r}")
    try:
        yield host
    finally:
        host.remove()


def test_a_postgres_that_vanishes_without_a_word_is_given_up_and_found_again(
    crew: Crew, other_host: OtherHost
) -> None:
    """The kernel alone would go on waiting for a quarter of an hour."""
    default_ladder()
    with (
        proxy_before(database_address(), host=HERE) as (postgres, database_url),
        proxy_before(os.environ["REDIS_URL"], host=HERE) as (_, redis_url),
    ):
        crew.within = other_host.within
        poller = crew.poller(DATABASE_URL=database_url, REDIS_URL=redis_url)
        crew.wait(Heartbeat.objects.exists)
        other_host.lose_packets(postgres.port, lose=True)
        ids = open_due(10)
        crew.wait(lambda: poller.said("escalation.postgres_away"), timeout_s=90)
        assert promotions() == 0
        other_host.lose_packets(postgres.port, lose=False)
        crew.wait(lambda: promotions() == len(ids))
        crew.wait(redis_is_in_step)
        assert poller.is_running
    assert_each_promoted_once(ids)
