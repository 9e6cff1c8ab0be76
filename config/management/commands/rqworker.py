"""django-rq's `rqworker`, reading jobs the way this project writes them.

Promise: a plain `rqworker escalations notifications` understands every job in those queues.
"""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django_rq.management.commands import rqworker

from disputes.commands import COULD_NOT


class Command(rqworker.Command):
    def add_arguments(self, parser: ArgumentParser) -> None:
        """django-rq's own default is pickle, whatever RQ_QUEUES says."""
        super().add_arguments(parser)
        parser.set_defaults(serializer=settings.RQ_QUEUES["escalations"]["SERIALIZER"])

    def handle(self, *args: Any, **options: Any) -> None:
        """django-rq's own, with our exit codes."""
        unknown = sorted(set(args).difference(settings.RQ_QUEUES))
        if unknown or not args:
            raise CommandError(
                f"Name the queues to work on: {', '.join(settings.RQ_QUEUES)}."
                + (f" There is none named {', '.join(unknown)}." if unknown else ""),
                returncode=COULD_NOT,
            )
        try:
            super().handle(*args, **options)
        except SystemExit as end:
            # Its own 1 is for a Redis that cannot be reached.
            end.code = end.code and COULD_NOT
            raise
