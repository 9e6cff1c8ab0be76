"""The fixture that empties the database between tests, and the two roles of the tests."""

import psycopg
import pytest
from django.contrib.auth.models import Group, Permission
from django.db import ProgrammingError, connection

from tests.conftest import FEW_ROWS, empty_all_tables

GUARDED = """
CREATE TABLE guarded (id int PRIMARY KEY);
CREATE TABLE guarded_child (parent_id int REFERENCES guarded DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused'; END $$;
CREATE TRIGGER no_delete BEFORE DELETE ON guarded FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON guarded FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def guarded(owner_connection: psycopg.Connection):
    owner_connection.execute(GUARDED)
    yield
    owner_connection.execute("DROP TABLE guarded, guarded_child; DROP FUNCTION refuse")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rows", [1, FEW_ROWS + 1])
def test_emptying_passes_the_guards_and_leaves_them_on(
    guarded: None, owner_connection: psycopg.Connection, rows: int
) -> None:
    owner_connection.execute("INSERT INTO guarded SELECT generate_series(1, %s)", [rows])
    owner_connection.execute("INSERT INTO guarded_child SELECT id FROM guarded")
    empty_all_tables()
    assert owner_connection.execute("SELECT count(*) FROM guarded_child").fetchone() == (0,)
    owner_connection.execute("INSERT INTO guarded VALUES (1)")
    with pytest.raises(psycopg.errors.RaiseException, match="refused"):
        owner_connection.execute("DELETE FROM guarded")
    with pytest.raises(psycopg.errors.RaiseException, match="refused"):
        owner_connection.execute("TRUNCATE guarded CASCADE")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_a_transactional_test_finds_the_database_empty_but_for_permissions(turn: int) -> None:
    assert not Group.objects.exists()
    assert Permission.objects.exists()
    Group.objects.create(name="left by the other turn")


@pytest.mark.django_db
def test_the_product_connects_as_a_role_that_owns_nothing() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_tables WHERE tableowner = current_user")
        assert cursor.fetchone() == (0,)
        with pytest.raises(ProgrammingError, match="permission denied|must be owner"):
            cursor.execute("ALTER TABLE auth_group ADD COLUMN more int")
