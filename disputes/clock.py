"""The clock of record is Postgres'; hosts' clocks decide nothing."""

from datetime import UTC, datetime

from django.db import connection


def database_now() -> datetime:
    """Postgres' clock at this moment (not the transaction's start), aware, UTC."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    return now.astimezone(UTC)
