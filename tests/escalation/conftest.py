"""A Redis server of one's own, for tests that read or change what all its users share."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from config.local_valkey import redis_url, start_valkey


@pytest.fixture
def own_redis(settings, tmp_path: Path) -> Iterator[Redis]:
    """The timeline and RQ use it while the test runs."""
    password = secrets.token_hex(8)
    child = start_valkey(tmp_path, password, durable=False)
    settings.REDIS_URL = settings.TIMELINE_REDIS_URL = redis_url(child.port, password)
    with Redis.from_url(settings.REDIS_URL) as client:
        yield client
    child.stop()
