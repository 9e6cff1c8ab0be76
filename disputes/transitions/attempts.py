"""Runs one change as an outermost transaction, again where Postgres says that is safe."""

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from disputes.exceptions import Busy, DisputeNotFound, LostRace
from disputes.models import Dispute

TRIES = 3
# Longer than any batch holds its rows; a person never waits longer than TRIES times this.
LOCK_TIMEOUT_MS = 500

# connection, transaction rollback (deadlock, serialization), resources, lock not available,
# operator intervention (timeouts, restart).
TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57"})
_COLLISION_CLASSES = frozenset({"40", "55"})
_STATEMENT_TIMEOUT = "57014"


def sqlstate(error: DatabaseError) -> str:
    """Postgres' five-character code, or "" where the error has none."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def is_transient(error: DatabaseError) -> bool:
    """Whether trying the same again may work: nothing is wrong with the data."""
    code = sqlstate(error)
    lost = connection.connection is None or connection.connection.closed
    return code[:2] in TRANSIENT_CLASSES or (not code and bool(lost))


def is_collision(error: DatabaseError) -> bool:
    """A lock time-out, deadlock, serialization failure or statement time-out."""
    code = sqlstate(error)
    return code[:2] in _COLLISION_CLASSES or code == _STATEMENT_TIMEOUT


def limit_lock_waits() -> None:
    """Bound every lock wait of the present transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")


T = TypeVar("T")


def in_attempts(change: Callable[[int], T]) -> T:
    """Call `change(number)` in a new outermost transaction, up to three times.

    Lost races and lock collisions are tried again; the third such failure
    raises Busy. Everything else passes through at once, rolled back.
    """
    for number in range(1, TRIES + 1):
        try:
            with transaction.atomic(durable=True):
                limit_lock_waits()
                return change(number)
        except LostRace:
            if number == TRIES:
                raise
        except DatabaseError as error:
            if not is_collision(error):
                raise
            if number == TRIES:
                raise Busy("the dispute is being changed by others; try again") from error
    raise AssertionError("unreachable")


def locked(dispute_id: UUID) -> Dispute:
    """The dispute with its row locked for this transaction. Raises DisputeNotFound."""
    dispute = Dispute.objects.select_for_update(no_key=True).filter(pk=dispute_id).first()
    if dispute is None:
        raise DisputeNotFound(f"there is no dispute {dispute_id}")
    return dispute


def unlocked(dispute_id: UUID) -> Dispute:
    """The dispute as it is now; the version guard of the write decides. Raises DisputeNotFound."""
    dispute = Dispute.objects.filter(pk=dispute_id).first()
    if dispute is None:
        raise DisputeNotFound(f"there is no dispute {dispute_id}")
    return dispute
