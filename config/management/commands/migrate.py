"""`migrate` as the owner of the tables; the application's own role may not change them.

Promise: whatever alias a migration names or forgets to name, it runs on the owner's connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, connections

from disputes.commands import COULD_NOT

OWNER = "owner"


@contextmanager
def default_is_owner() -> Iterator[None]:
    """Some packages' migrations use the default alias whatever they were asked for."""
    own = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[OWNER]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = own


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._migrate(*args, **options)
        except CommandError as refusal:
            # Django's own 1 is what `--check` says of migrations that are missing.
            refusal.returncode = COULD_NOT
            raise

    def _migrate(self, *args: Any, **options: Any) -> None:
        if OWNER not in settings.DATABASES or options["database"] not in (OWNER, DEFAULT_DB_ALIAS):
            super().handle(*args, **options)
            return
        with default_is_owner():
            super().handle(*args, **{**options, "database": OWNER})
