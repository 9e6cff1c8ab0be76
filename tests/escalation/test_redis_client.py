"""Servers that are full, unfit, hanging or gone: limits hold, and nothing is half-written."""

import secrets
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from config.local_valkey import redis_url, start_valkey
from escalation import timeline, timeline_survey
from escalation.redis_client import (
    BATCH_TIMEOUT_S,
    UnfitRedis,
    refuse_evicting_policy,
    timeline_client,
)
from escalation.timeline import Entry

DUE_US, LATER_US = 1_000_000, 2_000_000


def entry(dispute_id: str, look_at_us: int, version: int) -> Entry:
    return Entry(dispute_id, look_at_us, version, "standard", "1250.00", "a1" * 32)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of this file's own: its settings may be changed."""
    password = secrets.token_hex(8)
    folder: Path = tmp_path_factory.mktemp("own")
    child = start_valkey(folder, password, durable=False)
    yield redis_url(child.port, password)
    child.stop()


@pytest.fixture
def admin(own_server) -> Iterator[redis.Redis]:
    """The own server, empty, with its settings put back afterwards."""
    with redis.Redis.from_url(own_server, decode_responses=True) as client:
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def client(settings, own_server, admin) -> redis.Redis:
    """The product's client of the own server."""
    settings.TIMELINE_REDIS_URL = own_server
    return timeline_client()


def fill(admin: redis.Redis) -> None:
    """Use the memory up to the last byte that a small write would need."""
    admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 100_000)
    writes = (admin.set(f"filler:{number}", "x" * 1_000) for number in range(10_000))
    with pytest.raises(OutOfMemoryError):
        deque(writes, maxlen=0)


def test_f24_bug_21_out_of_memory_leaves_the_old_score_and_payload(client, admin):
    one, new = str(uuid.uuid4()), str(uuid.uuid4())
    timeline.schedule([entry(one, DUE_US, version=1)])
    fill(admin)
    batch = [entry(new, DUE_US, version=1), entry(one, LATER_US, version=2)]
    with pytest.raises(OutOfMemoryError):
        timeline.schedule(batch, enqueued_at=datetime.now(UTC))
    assert timeline_survey.scores([one, new]) == {one: DUE_US}
    assert timeline_survey.payload_versions([one, new]) == {one: 1, new: None}


def test_f24_out_of_memory_a_removal_works_and_leaves_its_fence(client, admin):
    one = str(uuid.uuid4())
    timeline.schedule([entry(one, DUE_US, version=1)])
    fill(admin)
    assert timeline.unschedule([(one, 2)]) == 1
    assert timeline.depth() == 0
    admin.config_set("maxmemory", 0)
    assert timeline.schedule([entry(one, DUE_US, version=1)]) == 0


def test_f24_out_of_memory_nothing_is_claimed_and_nothing_is_lost(client, admin):
    one = str(uuid.uuid4())
    timeline.schedule([entry(one, DUE_US, version=1)])
    fill(admin)
    with pytest.raises(OutOfMemoryError):
        timeline.claim(now_us=DUE_US, limit=1, token="mine")
    admin.config_set("maxmemory", 0)
    assert timeline.claim(now_us=DUE_US, limit=1, token="mine").ids == (one,)


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru", "volatile-ttl"])
def test_f25_f26_a_server_that_evicts_is_refused(client, admin, policy):
    admin.config_set("maxmemory-policy", policy)
    with pytest.raises(UnfitRedis, match=f"{policy}.*Set maxmemory-policy to noeviction"):
        refuse_evicting_policy(client)


def test_a_server_that_does_not_evict_is_taken(client):
    refuse_evicting_policy(client)


@pytest.fixture
def limited(settings, own_server, admin) -> Iterator[redis.Redis]:
    """A user of the own server who may not ask for its configuration."""
    admin.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-config")
    address = own_server.replace("redis://:", "redis://limited:", 1)
    password = own_server.partition("redis://:")[2].partition("@")[0]
    settings.TIMELINE_REDIS_URL = address.replace(password, "secret")
    yield timeline_client()
    admin.execute_command("ACL", "DELUSER", "limited")


def test_where_the_configuration_is_hidden_the_policy_is_read_from_info(limited, admin):
    refuse_evicting_policy(limited)
    admin.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(UnfitRedis, match="allkeys-lru"):
        refuse_evicting_policy(limited)


def test_a_server_that_tells_nothing_is_believed_with_a_warning(limited, admin, caplog):
    admin.execute_command("ACL", "SETUSER", "limited", "-info")
    refuse_evicting_policy(limited)
    assert [record.message for record in caplog.records] == ["escalation.redis_policy_unknown"]


def test_a_request_gives_a_hanging_server_up_within_its_budget(settings):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.TIMELINE_REDIS_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        started = time.monotonic()
        with pytest.raises(redis.exceptions.TimeoutError):
            timeline.unschedule([(str(uuid.uuid4()), 1)], client=timeline_client("request"))
        assert time.monotonic() - started < BATCH_TIMEOUT_S


def test_a_request_does_not_try_twice(settings):
    with socket.create_server(("127.0.0.1", 0)) as closing:
        closing.settimeout(0.5)
        settings.TIMELINE_REDIS_URL = f"redis://127.0.0.1:{closing.getsockname()[1]}/0"
        client = timeline_client("request")
        with pytest.raises(redis.exceptions.RedisError):
            client.ping()
        closing.accept()[0].close()
        with pytest.raises(TimeoutError):
            closing.accept()


def test_a_worker_tries_once_more_when_the_connection_breaks_in_mid_command(settings):
    def break_first_answer_second() -> None:
        first, _ = listening.accept()
        first.recv(100)
        first.close()
        second, _ = listening.accept()
        second.recv(100)
        second.sendall(b"+PONG\r\n")
        second.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        settings.TIMELINE_REDIS_URL = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        server = threading.Thread(target=break_first_answer_second, daemon=True)
        server.start()
        client = timeline_client()
        assert client.ping()
        client.close()
        server.join(5)


def test_a_worker_outlives_connections_that_the_server_dropped(client, admin):
    timeline.schedule([entry(str(uuid.uuid4()), DUE_US, version=1)])
    admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert timeline.depth() == 1


def test_clients_are_shared_by_address_and_kind(client):
    assert timeline_client() is client
    assert timeline_client("request") is not client
