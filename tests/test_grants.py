"""What the application's database role may do, tried as that role against the real server."""

import psycopg
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from disputes.roles import ALL, RIGHTS, rights_on

pytestmark = pytest.mark.django_db(transaction=True)

FORBIDDEN = "42501"  # insufficient_privilege
EVERY_RIGHT = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


def as_application(query: str, *values: object) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchall()


def tables() -> list[str]:
    return [
        name
        for (name,) in as_application(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') ORDER BY relname"
        )
    ]


def has(table: str) -> tuple[str, ...]:
    """What it may do in fact, whichever way the right came to it."""
    (row,) = as_application(
        "SELECT " + ", ".join(["has_table_privilege(%s, %s)"] * len(EVERY_RIGHT)),
        *(word for right in EVERY_RIGHT for word in (f"public.{table}", right)),
    )
    return tuple(right for right, held in zip(EVERY_RIGHT, row, strict=True) if held)


def refused(statement: str) -> str | None:
    """The code that the application's role is refused with, if it is."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
            transaction.set_rollback(True)
    except DatabaseError as error:
        return error.__cause__.sqlstate
    return None


def test_on_every_table_it_has_the_rights_of_the_list_and_no_other():
    found = tables()
    assert len(found) > 20
    assert {table: has(table) for table in found} == {table: rights_on(table) for table in found}


def test_the_list_names_no_table_that_is_not_there():
    assert set(RIGHTS) <= set(tables())


@pytest.mark.parametrize(
    ("table", "rights"),
    [
        ("disputes_auditentry", ("SELECT", "INSERT")),
        ("disputes_anchor", ("SELECT", "INSERT")),
        ("disputes_anchoredhead", ("SELECT", "INSERT")),
        ("disputes_dispute", ("SELECT", "INSERT", "UPDATE")),
        ("disputes_note", ("SELECT", "INSERT")),
        ("disputes_notification", ("SELECT", "INSERT", "UPDATE")),
        ("disputes_sourcerecord", ("SELECT", "INSERT")),
        ("auth_user_groups", ("SELECT", "INSERT", "DELETE")),
        ("escalation_heartbeat", ("SELECT", "INSERT", "UPDATE")),
        ("reviewqueue_apitoken", ("SELECT", "INSERT", "UPDATE")),
        ("django_migrations", ("SELECT",)),
        ("django_session", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    ],
)
def test_the_tables_that_matter_most_have_these_rights(table, rights):
    assert has(table) == rights


DO = {
    "SELECT": "SELECT FROM {} LIMIT 1",
    "UPDATE": "UPDATE {0} SET {1} = {1} WHERE false",
    "DELETE": "DELETE FROM {} WHERE false",
    "TRUNCATE": "TRUNCATE {} CASCADE",
}


@pytest.mark.parametrize("right", DO)
def test_what_the_list_says_is_what_happens(right):
    columns = dict(
        as_application(
            "SELECT table_name, min(column_name) FROM information_schema.columns"
            " WHERE table_schema = 'public' GROUP BY table_name"
        )
    )
    for table in tables():
        allowed = right in rights_on(table)
        statement = DO[right].format(f'"{table}"', f'"{columns[table]}"')
        assert refused(statement) == (None if allowed else FORBIDDEN), statement


def test_it_owns_nothing_and_is_nobody_special():
    (role,) = as_application(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
        " FROM pg_roles WHERE rolname = current_user"
    )
    assert role == (False,) * 5
    for catalogue, owner in (
        ("pg_class", "relowner"),
        ("pg_proc", "proowner"),
        ("pg_namespace", "nspowner"),
        ("pg_type", "typowner"),
        ("pg_database", "datdba"),
    ):
        query = f"SELECT count(*) FROM {catalogue} WHERE pg_has_role({owner}, 'MEMBER')"
        assert as_application(query) == [(0,)], catalogue
    memberships = "SELECT count(*) FROM pg_auth_members WHERE member = current_user::regrole"
    assert as_application(memberships) == [(0,)]


DOORS = [
    "CREATE TABLE mine (id int)",
    "CREATE VIEW mine AS SELECT 1",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA mine",
    "CREATE ROLE mine",
    "CREATE TRIGGER mine BEFORE INSERT ON disputes_auditentry"
    " FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE mine AS ON INSERT TO disputes_auditentry DO INSTEAD NOTHING",
    "CREATE INDEX mine ON disputes_auditentry (at)",
    "CREATE OR REPLACE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN NEW; END'",
    "ALTER FUNCTION refuse_unproven_entry() SET search_path = pg_temp",
    "ALTER TABLE disputes_auditentry DISABLE TRIGGER USER",
    "ALTER TABLE disputes_auditentry DISABLE TRIGGER ALL",
    "ALTER TABLE disputes_auditentry DROP CONSTRAINT one_audit_entry_per_version",
    "ALTER TABLE disputes_anchor ADD COLUMN mine int",
    "ALTER TABLE disputes_anchoredhead OWNER TO CURRENT_USER",
    "ALTER DATABASE postgres SET session_replication_role = replica",
    "ALTER SYSTEM SET fsync = off",
    "DROP TABLE disputes_anchor CASCADE",
    "DROP TRIGGER audit_is_append_only ON disputes_auditentry",
    "DROP FUNCTION refuse_rewriting CASCADE",
    "SET session_replication_role = replica",
    "SELECT setval('disputes_auditentry_id_seq', 1)",
    "COPY disputes_auditentry TO PROGRAM 'true'",
    "COPY disputes_auditentry FROM '/dev/null'",
    "SELECT pg_read_file('PG_VERSION')",
]


@pytest.mark.parametrize("statement", DOORS, ids=lambda statement: " ".join(statement.split()[:5]))
def test_it_may_not_open_the_door(statement):
    if statement.startswith("ALTER SYSTEM"):
        # Not allowed in a transaction either way; the right is looked at first outside of one.
        with pytest.raises(DatabaseError) as refusal, connection.cursor() as cursor:
            cursor.execute(statement)
        assert refusal.value.__cause__.sqlstate == FORBIDDEN
        return
    assert refused(statement) == FORBIDDEN


def test_it_may_not_become_the_owner_or_a_superuser(owner_connection):
    (owner,) = owner_connection.execute("SELECT quote_ident(current_user)").fetchone()
    (superuser,) = owner_connection.execute(
        "SELECT quote_ident(rolname) FROM pg_roles WHERE rolsuper LIMIT 1"
    ).fetchone()
    for role in (owner, superuser):
        assert refused(f"SET ROLE {role}") == FORBIDDEN
        assert refused(f"SET SESSION AUTHORIZATION {role}") == FORBIDDEN


def test_it_gives_itself_nothing():
    with connection.cursor() as cursor:
        # Postgres only warns that nothing was granted.
        cursor.execute("GRANT ALL ON disputes_auditentry TO CURRENT_USER")
    assert has("disputes_auditentry") == ("SELECT", "INSERT")


@pytest.fixture
def later_tables(owner_connection: psycopg.Connection):
    """As a later migration would make them, forgotten in the list."""
    owner_connection.execute("CREATE TABLE disputes_later (id int)")
    owner_connection.execute("CREATE TABLE escalation_later (id serial)")
    yield
    owner_connection.execute("DROP TABLE disputes_later, escalation_later")


@pytest.mark.django_db(transaction=True, databases=["default", "owner"])
def test_a_table_of_a_later_migration_has_the_rights_of_its_kind(later_tables):
    assert has("disputes_later") == has("escalation_later") == ()
    call_command("migrate", verbosity=0)
    assert has("disputes_later") == ("SELECT", "INSERT", "UPDATE")
    assert has("escalation_later") == ALL
    assert refused("INSERT INTO escalation_later DEFAULT VALUES") is None


@pytest.mark.django_db(transaction=True, databases=["default", "owner"])
def test_a_migration_takes_back_what_was_granted_by_hand(owner_connection):
    (role,) = as_application("SELECT quote_ident(current_user)")[0]
    owner_connection.execute(f"GRANT ALL ON disputes_auditentry, disputes_dispute TO {role}")
    owner_connection.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    assert "TRUNCATE" in has("disputes_auditentry")
    call_command("migrate", verbosity=0)
    assert has("disputes_auditentry") == ("SELECT", "INSERT")
    assert has("disputes_dispute") == ("SELECT", "INSERT", "UPDATE")
    assert refused("CREATE TABLE mine (id int)") == FORBIDDEN
