"""Servers of a test's own, which it may stop, kill, starve and put back to an older state.

Promise: nobody else uses them, they keep their address over restarts, and they end with the test.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connections

from config.binaries import DEBIAN, postgres_bin
from config.embedded import Addresses
from config.local_postgres import (
    cluster_folder,
    database_url,
    remove_outside_data,
    start_postgres,
    superuser_url,
)
from config.local_valkey import redis_url, start_valkey
from config.processes import wait_until
from config.server_child import HOST, ServerChild, free_port
from disputes.ladders import forget_cached_tiers


@dataclass
class OwnRedis:
    """A Valkey or Redis that keeps nothing but what `save_snapshot` put aside."""

    child: ServerChild
    url: str

    @property
    def client(self) -> redis.Redis:
        """A new client, for the test's own questions and settings."""
        return redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=10)

    def save_snapshot(self) -> Path:
        """The whole content as a file of its own."""
        with self.client as client:
            client.save()
        kept = self.child.folder / f"{secrets.token_hex(4)}.snapshot"
        shutil.copy(self.child.folder / "dump.rdb", kept)
        return kept

    def restart(self, *, snapshot: Path | None = None) -> None:
        """kill -9 and start again, empty or with what the snapshot holds."""
        assert self.child.process
        self.child.process.kill()
        self.child.process.wait()
        dump = self.child.folder / "dump.rdb"
        dump.unlink(missing_ok=True)
        if snapshot:
            shutil.copy(snapshot, dump)
        self.child.start_again()


@contextlib.contextmanager
def own_redis(folder: Path, program: Path | None = None) -> Iterator[OwnRedis]:
    """The usual server in this folder, or another program that speaks the same."""
    password = secrets.token_hex(8)
    child = start_valkey(folder, password, durable=False)
    if program:
        child.stop()
        child.command[0] = str(program)
        child.start_again()
    try:
        yield OwnRedis(child, redis_url(child.port, password))
    finally:
        child.stop()


def redis_7() -> Path:
    """The program of Redis 7; skips the test where there is none."""
    found = os.environ.get("REDIS_7_BIN") or shutil.which("redis-server")
    if not found:
        pytest.skip("no redis-server on the PATH and REDIS_7_BIN is not set")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if "v=7." not in said:
        pytest.skip(f"{found} is no Redis 7: {said.strip()}")
    return Path(found)


def use_redis(product_settings, url: str) -> None:
    """Everything of this process that speaks to Redis does so at this address from now on."""
    product_settings.REDIS_URL = product_settings.TIMELINE_REDIS_URL = url
    cache = product_settings.CACHES["default"]
    product_settings.CACHES = {"default": {**cache, "LOCATION": url}}


@dataclass
class OwnPostgres:
    """A cluster of its own, durable: what it has committed is there after a crash."""

    child: ServerChild
    addresses: Addresses

    def stop_immediately(self) -> None:
        """As `pg_ctl stop -m immediate`: no checkpoint, the next start recovers from the log."""
        assert self.child.process
        self.child.process.send_signal(signal.SIGQUIT)
        self.child.process.wait(30)

    def start_again(self) -> None:
        """At the same address; this process forgets connections that died with the old server."""
        self.child.start_again()
        connections.close_all()


@contextlib.contextmanager
def own_postgres(folder: Path) -> Iterator[OwnPostgres]:
    """A new cluster with the roles and the empty database of an installation.

    Its tables are made by whoever needs them, while no test forbids the owner's connection.
    """
    passwords = {role: secrets.token_hex(8) for role in ("postgres", "owner", "app")}
    child = start_postgres(folder, passwords, durable=True)
    try:
        yield OwnPostgres(child, _addresses(child, passwords))
    finally:
        child.stop()
        remove_outside_data(folder)


def postgres_with_tls() -> Path:
    """The folder of PostgreSQL's programs built with TLS; skips the test where there is none."""
    for folder in [postgres_bin(), *(path / "bin" for path in sorted(DEBIAN.glob("*")))]:
        if b"SSL is not supported by this build" not in (folder / "postgres").read_bytes():
            return folder
    pytest.skip("no PostgreSQL built with TLS is installed")


@contextlib.contextmanager
def own_postgres_over_tls(folder: Path, certificate: Path) -> Iterator[OwnPostgres]:
    """As `own_postgres`, and who asks for TLS gets it: certificate and key in one file."""
    passwords = {role: secrets.token_hex(8) for role in ("postgres", "owner", "app")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PG_BIN", str(postgres_with_tls()))
        child = start_postgres(folder, passwords, durable=True)
    try:
        _turn_tls_on(folder, certificate, superuser_url(child.port, passwords))
        yield OwnPostgres(child, _addresses(child, passwords))
    finally:
        child.stop()
        remove_outside_data(folder)


def _turn_tls_on(folder: Path, certificate: Path, superuser: str) -> None:
    cluster = cluster_folder(folder)
    pem = cluster / "server.pem"
    shutil.copy(certificate, pem)
    # The server takes a key only that its own user alone can read.
    os.chown(pem, cluster.stat().st_uid, cluster.stat().st_gid)
    pem.chmod(0o600)
    with psycopg.connect(superuser, autocommit=True) as connection:
        for name, value in (
            ("ssl_cert_file", pem.name),
            ("ssl_key_file", pem.name),
            ("ssl", "on"),
        ):
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
    assert wait_until(lambda: _answers(f"{superuser}?sslmode=require"), timeout_s=30)


def _addresses(child: ServerChild, passwords: dict[str, str]) -> Addresses:
    return Addresses(
        database_url=database_url(child.port, "app", passwords),
        database_owner_url=database_url(child.port, "owner", passwords),
        redis_url="",
    )


@contextlib.contextmanager
def using_postgres(addresses: Addresses) -> Iterator[None]:
    """This process and those it starts work on this database."""
    before = {alias: dict(connections[alias].settings_dict) for alias in connections.settings}
    urls = {"default": addresses.database_url, "owner": addresses.database_owner_url}
    patch = pytest.MonkeyPatch()
    patch.setenv("DATABASE_URL", addresses.database_url)
    patch.setenv("DATABASE_OWNER_URL", addresses.database_owner_url)
    patch.setattr(settings, "DATABASE_OWNER_URL", addresses.database_owner_url)
    try:
        for alias in before:
            connections[alias].close()
            parts = urlsplit(urls[alias])
            connections[alias].settings_dict.update(
                HOST=parts.hostname,
                PORT=parts.port,
                USER=parts.username,
                PASSWORD=parts.password,
                NAME=parts.path.strip("/"),
            )
        forget_cached_tiers()
        yield
    finally:
        for alias, values in before.items():
            connections[alias].close()
            connections[alias].settings_dict.update(values)
        patch.undo()
        forget_cached_tiers()


@contextlib.contextmanager
def pgbouncer_before(url: str, *, pool_size: int) -> Iterator[str]:
    """PgBouncer in transaction mode before a server; the address that leads through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        pytest.skip("no pgbouncer is installed")
    parts = urlsplit(url)
    folder = Path(tempfile.mkdtemp(prefix="escalations-pgbouncer-"))
    user = "nobody" if os.geteuid() == 0 else None
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    port = free_port()
    (folder / "users.txt").write_text(f'"{parts.username}" "{parts.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={HOST} port={parts.port}\n"
        f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = plain\nauth_file = {folder}/users.txt\n"
        f"pool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = 200\n"
    )
    through = urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))
    child = ServerChild(
        name="pgbouncer",
        command=[program, str(folder / "pgbouncer.ini")],
        folder=folder,
        log=folder / "pgbouncer.log",
        stop_signal=signal.SIGINT,
        answers=lambda _: _answers(through),
        user=user,
        port=port,
    )
    try:
        child.start_again()
        yield through
    finally:
        child.stop()
        shutil.rmtree(folder)


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True, prepare_threshold=None) as c:
            c.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True
