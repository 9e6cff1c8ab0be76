"""The database and Redis of the tests.

Promise: the product connects as the role it has in production, which owns nothing; the schema is
the owner's, and only this file empties tables, as their owner.
"""

import os
from collections.abc import Iterator

import hypothesis
import psycopg
import pytest
import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.test import TransactionTestCase
from psycopg import sql
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

# Quick: the same cases in every run, and no clock that a busy machine could fail. Long: new ones.
hypothesis.settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "long", hypothesis.settings.get_profile("quick"), derandomize=False, max_examples=1_000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Rows that migrations and post_migrate made; tests rely on them and never change them.
KEPT_TABLES = ("django_migrations", "django_content_type", "auth_permission")
LOCK_WAIT_MS = 10_000
FEW_ROWS = 1000


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """A database of this test process, made by the owner, used by the application's role."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    name = f"test_escalations_{worker}" if worker else "test_escalations"
    keep = request.config.getoption("reuse_db") and not request.config.getoption("create_db")
    with django_db_blocker.unblock():
        make_database(name, keep=keep)
        for connection in connections.all():
            connection.close()
            settings.DATABASES[connection.alias]["NAME"] = name
            connection.settings_dict["NAME"] = name
        call_command("migrate", verbosity=0, interactive=False)
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        if not request.config.getoption("reuse_db"):
            drop_database(name)


def make_database(name: str, *, keep: bool) -> None:
    with psycopg.connect(settings.DATABASE_OWNER_URL, autocommit=True) as connection:
        query = "SELECT 1 FROM pg_database WHERE datname = %s"
        exists = connection.execute(query, [name]).fetchone()
    if exists and keep:
        return
    drop_database(name)
    with psycopg.connect(settings.DATABASE_OWNER_URL, autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'")
        connection.execute(create.format(sql.Identifier(name)))


def drop_database(name: str) -> None:
    """Forced: a thread of a test may have left its connection open."""
    with psycopg.connect(settings.DATABASE_OWNER_URL, autocommit=True) as connection:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        connection.execute(drop)


def connect_as_owner() -> psycopg.Connection:
    """The owner's own connection to this process's test database, outside Django."""
    name = connections["default"].settings_dict["NAME"]
    return psycopg.connect(settings.DATABASE_OWNER_URL, dbname=name, autocommit=True)


@pytest.fixture
def owner_connection(db: None) -> Iterator[psycopg.Connection]:
    """An autocommitting connection as the role that owns the tables."""
    with connect_as_owner() as connection:
        yield connection


def empty_all_tables() -> None:
    """Empty every table but the kept ones; user triggers that refuse it are off meanwhile.

    One transaction as table owner: nobody else ever sees the triggers off. A test that left a
    transaction open shows up as a lock timeout here.
    """
    with connect_as_owner() as connection, connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
        rows = rows_up_to(connection, FEW_ROWS + 1)
        if max(rows.values()) <= FEW_ROWS:
            # Much faster than TRUNCATE, which makes new files for every table and index.
            empty, words = [name for name in rows if rows[name]], "DELETE FROM {}"
        else:
            empty, words = list(rows), "TRUNCATE {} CASCADE"
        tables = [sql.Identifier(name) for name in empty]
        for table in tables:
            connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
        for table in tables:
            connection.execute(sql.SQL(words).format(table))
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in tables:
            connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(table))


def rows_up_to(connection: psycopg.Connection, limit: int) -> dict[str, int]:
    """How many rows each table to be emptied has, counted no further than the limit."""
    names = connection.execute(
        """
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> ALL (%s)
        """,
        [list(KEPT_TABLES)],
    ).fetchall()
    counts = [
        sql.SQL("SELECT {}, (SELECT count(*) FROM (SELECT FROM {} LIMIT {}) few)").format(
            sql.Literal(name), sql.Identifier(name), limit
        )
        for (name,) in names
    ]
    return dict(connection.execute(sql.SQL(" UNION ALL ").join(counts)).fetchall())


def _empty_after_test(case: TransactionTestCase) -> None:
    """Django's flush runs as the application's role, which may not truncate."""
    connections.close_all()
    empty_all_tables()


TransactionTestCase._fixture_teardown = _empty_after_test


@pytest.fixture(scope="session")
def redis_client() -> Iterator[redis.Redis]:
    """This test process's own Redis database."""
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture(autouse=True)
def _empty_redis(redis_client: redis.Redis) -> None:
    """Every test starts with an empty Redis database."""
    redis_client.flushdb()


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Settings) -> None:
    """Hashing passwords as slowly as in production would be most of these tests' time."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
