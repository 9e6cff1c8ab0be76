"""The clock of record, which tests may move or stop: a function that is found before Postgres' own.

Promise: every session of this test's database that begins while it is there sees it, processes
included; `recorded_at`, whose default was made before, goes on telling the real instant.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
from django.db import connections
from psycopg import sql

from tests.conftest import connect_as_owner

CLOCK = """
CREATE SCHEMA test_clock;
CREATE TABLE test_clock.setting (stands_at timestamptz, ahead interval NOT NULL DEFAULT '0');
INSERT INTO test_clock.setting DEFAULT VALUES;
CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
SECURITY DEFINER AS $$
    SELECT coalesce(stands_at, pg_catalog.clock_timestamp()) + ahead FROM test_clock.setting
$$;
GRANT USAGE ON SCHEMA test_clock TO PUBLIC;
"""


class DatabaseClock:
    """What `database_now` will say from now on."""

    def __init__(self, owner: psycopg.Connection) -> None:
        self._owner = owner

    def stop_at(self, instant: datetime) -> None:
        """It stands still until told otherwise."""
        self._owner.execute("UPDATE test_clock.setting SET stands_at = %s", [instant])

    def move(self, span: timedelta) -> None:
        """It jumps, forwards or back, and goes on from there."""
        self._owner.execute("UPDATE test_clock.setting SET ahead = ahead + %s", [span])


@contextlib.contextmanager
def movable_clock() -> Iterator[DatabaseClock]:
    """A clock of this test's own; no process of the product may outlive it."""
    name = sql.Identifier(connections["default"].settings_dict["NAME"])
    path = sql.SQL("ALTER DATABASE {} SET search_path = test_clock, pg_catalog, public")
    with connect_as_owner() as owner:
        owner.execute(CLOCK)
        owner.execute(path.format(name))
        connections.close_all()
        try:
            yield DatabaseClock(owner)
        finally:
            connections.close_all()
            owner.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(name))
            owner.execute("DROP SCHEMA test_clock CASCADE")
