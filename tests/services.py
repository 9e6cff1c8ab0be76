"""Early pytest plugin: real PostgreSQL and Redis before Django reads its settings.

Promise: the tests never run on a stand-in, the kind that was insisted on is the kind that runs,
and whatever this run started is gone when it ends.

`--services=auto` takes TEST_DATABASE_URL and TEST_REDIS_URL if set, else containers where a Docker
engine answers and has the images, else the embedded servers.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import docker
import psycopg
import pytest
from docker.errors import DockerException
from psycopg import sql
from testcontainers.community.postgres import PostgresContainer
from testcontainers.community.redis import RedisContainer

from config.embedded import Addresses, EmbeddedServers
from config.local_postgres import DATABASE, prepare_roles, remove_outside_data
from config.local_valkey import DATABASES as REDIS_DATABASES

KINDS = ("auto", "containers", "embedded", "env")
POSTGRES_IMAGE = "postgres:15"
REDIS_IMAGE = "redis:7"


@dataclass(frozen=True)
class Services:
    """What this run uses, in words for the header line, and where it listens."""

    words: str
    addresses: Addresses


running = pytest.StashKey[Services]()
closing = pytest.StashKey[contextlib.ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--services", choices=KINDS, default="auto", help="where PostgreSQL and Redis come from"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """A wrapper, so that it runs before pytest-django's own hook, which loads the settings."""
    options = early_config.known_args_namespace
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        os.environ["REDIS_URL"] = redis_database_of(os.environ["REDIS_URL"], worker)
    elif not (options.help or options.version):
        with contextlib.ExitStack() as stack:
            services = start_services(options.services, stack)
            publish(services.addresses)
            early_config.stash[running] = services
            early_config.stash[closing] = stack.pop_all()
    yield


def pytest_report_header(config: pytest.Config) -> str | None:
    services = config.stash.get(running, None)
    return f"services: {services.words}" if services else None


def pytest_unconfigure(config: pytest.Config) -> None:
    stack = config.stash.get(closing, None)
    if stack:
        stack.close()


def publish(addresses: Addresses) -> None:
    """The environment of the settings, for this process and the test processes it starts."""
    os.environ.update(
        DATABASE_URL=addresses.database_url,
        DATABASE_OWNER_URL=addresses.database_owner_url,
        REDIS_URL=addresses.redis_url,
        SECRET_KEY=secrets.token_urlsafe(48),
        DEBUG="false",
        HTTPS="false",
        LOG_FORMAT="plain",
        PUBLIC_URL="http://testserver",
    )
    os.environ.pop("TIMELINE_REDIS_URL", None)
    os.environ.pop("ESCALATION", None)


def redis_database_of(url: str, worker: str) -> str:
    """Every test process has a Redis database of its own: worker gw0 has number 1."""
    parts = urlsplit(url)
    number = int(parts.path.strip("/") or 0) + 1 + int(worker.removeprefix("gw"))
    return urlunsplit(parts._replace(path=f"/{number}"))


def start_services(kind: str, stack: contextlib.ExitStack) -> Services:
    """What was asked for, or what is there, in the order of the module's first paragraph."""
    if kind == "env" or (kind == "auto" and "TEST_DATABASE_URL" in os.environ):
        return from_environment(stack)
    if kind == "embedded":
        return embedded(stack)
    missing = why_no_containers()
    if not missing:
        return containers(stack)
    if kind == "containers":
        raise pytest.UsageError(f"--services=containers: {missing}")
    return embedded(stack)


def from_environment(stack: contextlib.ExitStack) -> Services:
    database = os.environ.get("TEST_DATABASE_URL")
    redis_url = os.environ.get("TEST_REDIS_URL")
    if not (database and redis_url):
        raise pytest.UsageError("Set both TEST_DATABASE_URL and TEST_REDIS_URL.")
    app = os.environ.get("TEST_DATABASE_APP_URL") or stack.enter_context(app_role(database))
    return Services(
        f"{urlsplit(database).hostname} and {urlsplit(redis_url).hostname} from the environment",
        Addresses(database_url=app, database_owner_url=database, redis_url=redis_url),
    )


@contextlib.contextmanager
def app_role(owner_url: str) -> Iterator[str]:
    """A plain role for this run, where TEST_DATABASE_URL's own may make one."""
    role, password = f"escalations_test_{secrets.token_hex(4)}", secrets.token_urlsafe(24)
    name = sql.Identifier(role)
    with psycopg.connect(owner_url, autocommit=True) as connection:
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(password))
        try:
            connection.execute(create)
        except psycopg.errors.InsufficientPrivilege:
            raise pytest.UsageError(
                "TEST_DATABASE_URL's role may not create roles: give the address of a plain "
                "role in the same database server as TEST_DATABASE_APP_URL."
            ) from None
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))
    parts = urlsplit(owner_url)
    host = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{role}:{quote(password)}@{host}"))
    with psycopg.connect(owner_url, autocommit=True) as connection:
        # With --reuse-db the kept database still knows the role, which then stays too.
        with contextlib.suppress(psycopg.errors.DependentObjectsStillExist):
            connection.execute(sql.SQL("DROP ROLE {}").format(name))


def embedded(stack: contextlib.ExitStack) -> Services:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="escalations-tests-"))
    stack.callback(remove_outside_data, Path(folder))
    servers = stack.enter_context(EmbeddedServers(Path(folder), durable=False))
    return Services("embedded PostgreSQL and Valkey", servers.addresses)


def why_no_containers() -> str:
    """Empty where a Docker engine answers and has both images; nothing is ever pulled."""
    try:
        client = docker.from_env(timeout=5)
        with contextlib.closing(client):
            tags = {tag for image in client.images.list() for tag in image.tags}
    except DockerException as error:
        return f"no Docker engine answers ({error})"
    missing = {POSTGRES_IMAGE, REDIS_IMAGE} - tags
    return f"the engine has no image {', '.join(sorted(missing))}" if missing else ""


def containers(stack: contextlib.ExitStack) -> Services:
    passwords = {role: secrets.token_urlsafe(24) for role in ("postgres", "owner", "app")}
    postgres = stack.enter_context(
        PostgresContainer(
            POSTGRES_IMAGE,
            username="postgres",
            password=passwords["postgres"],
            dbname="postgres",
            driver=None,
        ).with_command("postgres -c fsync=off -c full_page_writes=off -c max_connections=200")
    )
    redis_server = stack.enter_context(
        RedisContainer(REDIS_IMAGE).with_command(
            f"redis-server --databases {REDIS_DATABASES} --save '' --maxmemory-policy noeviction"
        )
    )
    prepare_roles(postgres.get_connection_url(), passwords)
    place = f"{postgres.get_container_host_ip()}:{postgres.get_exposed_port(5432)}"
    redis_place = f"{redis_server.get_container_host_ip()}:{redis_server.get_exposed_port(6379)}"
    return Services(
        f"containers {POSTGRES_IMAGE} and {REDIS_IMAGE}",
        Addresses(
            database_url=f"postgresql://app:{passwords['app']}@{place}/{DATABASE}",
            database_owner_url=f"postgresql://owner:{passwords['owner']}@{place}/{DATABASE}",
            redis_url=f"redis://{redis_place}/0",
        ),
    )
