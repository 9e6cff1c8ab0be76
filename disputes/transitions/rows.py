"""The three statements that write disputes and their log, each for a whole batch.

A batch goes to Postgres as one JSON array and comes out as rows there: much cheaper than one
array a column, which the driver would have to quote value by value.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import orjson
from django.db import connection

from disputes.audit import FOLDED, SEALED
from disputes.models import AuditEntry, Dispute

# Canonical values by column (or by field of the entry), as disputes.audit writes them.
Row = Mapping[str, object]

PROOF = ("id", "version", "audit_head")
ENTRY = (*SEALED, "hash")


@cache
def _types() -> dict[str, str]:
    """Column -> Postgres type, for both tables; a name in both has the same type in both."""
    fields = (*AuditEntry._meta.concrete_fields, *Dispute._meta.concrete_fields)
    return {field.attname: str(field.db_type(connection)) for field in fields}


def _recordset(columns: Sequence[str]) -> str:
    typed = ", ".join(f"{name} {_types()[name]}" for name in columns)
    return f"json_to_recordset(%s::json) AS new({typed})"


def _as_json(rows: Sequence[Row]) -> str:
    return orjson.dumps(rows).decode()


def update_rows(rows: Sequence[Row]) -> int:
    """Set the given columns of each dispute whose version is the one before; returns how many.

    All rows name the same columns.
    """
    columns = list(rows[0])
    assignments = ", ".join(f"{name} = new.{name}" for name in columns if name != "id")
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE disputes_dispute AS d SET {assignments} "  # noqa: S608 (own column names)
            f"FROM {_recordset(columns)} WHERE d.id = new.id AND d.version = new.version - 1",
            [_as_json(rows)],
        )
        return cursor.rowcount


def insert_rows(rows: Sequence[Row]) -> set[str]:
    """Insert new disputes and return the ids of those that are new.

    One whose source and reference exist already is left out. A column that is not named is null.
    """
    columns = [*PROOF, *FOLDED]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO disputes_dispute ({', '.join(columns)}) "  # noqa: S608 (own names)
            f"SELECT {', '.join(columns)} FROM {_recordset(columns)} "
            "ON CONFLICT (source, reference) DO NOTHING RETURNING id::text",
            [_as_json(rows)],
        )
        return {id_ for (id_,) in cursor.fetchall()}


def insert_entries(entries: Sequence[Row]) -> None:
    """Append to the log."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO disputes_auditentry ({', '.join(ENTRY)}) "  # noqa: S608 (own names)
            f"SELECT {', '.join(ENTRY)} FROM {_recordset(ENTRY)}",
            [_as_json(entries)],
        )
