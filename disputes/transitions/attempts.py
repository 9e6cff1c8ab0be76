"""Runs one change as an outermost transaction, again where Postgres says that is safe."""

import logging
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from disputes.exceptions import Busy, DisputeNotFound, LostRace
from disputes.models import Dispute

log = logging.getLogger(__name__)

TRIES = 3
# Longer than any batch holds its rows; a person never waits longer than TRIES times this.
LOCK_TIMEOUT_MS = 500
# A process that stands still in its transaction (stopped, or its machine frozen) would keep its
# rows from everybody until it woke; Postgres ends its session instead, and all is rolled back.
IDLE_LIMIT_S = 30

# connection, transaction rollback (deadlock, serialization), resources, lock not available,
# operator intervention (timeouts, restart), system (input and output).
_PASSING_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
# Read-only since a failover, log-in refused, no such database or schema, a missing column or
# right: of the installation, and the same for every dispute until somebody mends it.
_INSTALLATION_CLASSES = frozenset({"25", "28", "3D", "3F", "42"})
TRANSIENT_CLASSES = _PASSING_CLASSES | _INSTALLATION_CLASSES
_COLLISION_CLASSES = frozenset({"40", "55"})
_STATEMENT_TIMEOUT = "57014"


def sqlstate(error: DatabaseError) -> str:
    """Postgres' five-character code, or "" where the error has none."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def is_transient(error: DatabaseError) -> bool:
    """Whether the same may work later as it is: nothing is wrong with the data."""
    code = sqlstate(error)
    # An OperationalError without a code is the client's own word for a broken connection.
    return code[:2] in TRANSIENT_CLASSES or (not code and isinstance(error, OperationalError))


def is_outage(error: BaseException | None) -> bool:
    """Whether it says that Postgres is away or refuses everybody, as against a defect of ours."""
    return isinstance(error, InterfaceError) or (
        isinstance(error, DatabaseError) and is_transient(error)
    )


def is_collision(error: DatabaseError) -> bool:
    """A lock time-out, deadlock, serialization failure or statement time-out."""
    code = sqlstate(error)
    return code[:2] in _COLLISION_CLASSES or code == _STATEMENT_TIMEOUT


def limit_lock_waits() -> None:
    """Bound every lock wait of the present transaction, and how long others may wait for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)",
            [f"{LOCK_TIMEOUT_MS}ms", f"{IDLE_LIMIT_S}s"],
        )


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


def in_passing(change: Callable[[], T], otherwise: T) -> T:
    """Bookkeeping beside the work, as a short transaction of its own.

    Where somebody else has its rows locked it is left undone, and `otherwise` is returned: no
    deadline and no message waits for it.
    """
    try:
        with transaction.atomic(durable=True):
            limit_lock_waits()
            return change()
    except DatabaseError as error:
        if not is_collision(error):
            raise
        log.warning("bookkeeping.passed_over", extra={"error": str(error)[:200]})
        return otherwise


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
