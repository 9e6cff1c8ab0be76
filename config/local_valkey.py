"""Valkey (or Redis) in the data folder.

Promise: never evicts, asks for a password, and keeps an append-only file where durability counts.
"""

import signal
from pathlib import Path

import redis

from config.binaries import valkey_server
from config.server_child import HOST, ServerChild, stop_left_over

# One per test process, and some to spare.
DATABASES = 64


def start_valkey(data: Path, password: str, *, durable: bool) -> ServerChild:
    """The data folder's Valkey, answering."""
    folder = data / "valkey"
    folder.mkdir(exist_ok=True, mode=0o700)
    config = folder / "valkey.conf"
    config.touch(0o600)
    # The working directory is the folder, so no path has to survive the file's quoting rules.
    config.write_text(
        f"bind {HOST}\nrequirepass {password}\ndatabases {DATABASES}\npidfile valkey.pid\n"
        f"appendonly {'yes' if durable else 'no'}\nsave ''\n"
        "maxmemory-policy noeviction\nset-proc-title no\n"
    )
    stop_left_over(folder / "valkey.pid", proof=str(config), signum=signal.SIGTERM)
    return ServerChild(
        name="valkey",
        command=[str(valkey_server()), str(config), "--port", "{port}"],
        folder=folder,
        log=data / "valkey.log",
        stop_signal=signal.SIGTERM,
        answers=lambda port: _answers(redis_url(port, password)),
    ).start()


def redis_url(port: int, password: str) -> str:
    return f"redis://:{password}@{HOST}:{port}/0"


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, socket_timeout=2) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
