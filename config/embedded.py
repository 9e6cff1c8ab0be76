"""Start, keep and stop the local PostgreSQL and Valkey of `make demo` and `make test`.

Promise: both are children in the foreground on 127.0.0.1; when their starter goes, in whatever
way, they shut down cleanly, and the next start finds whole data.
"""

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from config.local_postgres import database_url, start_postgres
from config.local_valkey import redis_url, start_valkey
from config.server_child import ServerChild
from config.stack import write_secret

SECRETS_FILE = "secrets.json"
SECRET_NAMES = ("postgres", "owner", "app", "redis", "django")


@dataclass(frozen=True)
class Addresses:
    """How to reach the two servers. `owner` owns the tables; the application's role does not."""

    database_url: str
    database_owner_url: str
    redis_url: str


@dataclass
class EmbeddedServers:
    """The two servers of one data folder; the caller keeps others out of that folder.

    `durable=False` is for tests: faster, and a power cut may lose everything.
    """

    folder: Path
    durable: bool = field(default=True, kw_only=True)
    postgres: ServerChild | None = field(default=None, init=False)
    valkey: ServerChild | None = field(default=None, init=False)

    def start(self) -> Self:
        """Bring both up, new or as they were left."""
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        passwords = stored_secrets(self.folder)
        try:
            self.postgres = start_postgres(self.folder, passwords, durable=self.durable)
            self.valkey = start_valkey(self.folder, passwords["redis"], durable=self.durable)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Shut both down cleanly; what hangs is killed."""
        for server in (self.valkey, self.postgres):
            if server:
                server.stop()

    def keep_alive(self) -> list[str]:
        """Start what died again, at the same address; returns the names."""
        died = [s for s in (self.postgres, self.valkey) if s and not s.is_running()]
        for server in died:
            server.start_again()
        return [server.name for server in died]

    @property
    def addresses(self) -> Addresses:
        """Where the started servers listen."""
        if not (self.postgres and self.valkey):
            raise RuntimeError("the servers are not started")
        passwords = stored_secrets(self.folder)
        return Addresses(
            database_url=database_url(self.postgres.port, "app", passwords),
            database_owner_url=database_url(self.postgres.port, "owner", passwords),
            redis_url=redis_url(self.valkey.port, passwords["redis"]),
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def stored_secrets(folder: Path) -> dict[str, str]:
    """The folder's passwords and Django key, made at the first start; only its owner reads them."""
    path = folder / SECRETS_FILE
    if path.exists():
        known: dict[str, str] = json.loads(path.read_text())
        return known
    made = {name: secrets.token_urlsafe(48) for name in SECRET_NAMES}
    write_secret(path, json.dumps(made))
    return made
