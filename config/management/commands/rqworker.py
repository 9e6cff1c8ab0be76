"""django-rq's `rqworker`, reading jobs the way this project writes them.

Promise: a plain `rqworker escalations notifications` understands every job in those queues.
"""

from argparse import ArgumentParser

from django.conf import settings
from django_rq.management.commands import rqworker


class Command(rqworker.Command):
    def add_arguments(self, parser: ArgumentParser) -> None:
        """django-rq's own default is pickle, whatever RQ_QUEUES says."""
        super().add_arguments(parser)
        parser.set_defaults(serializer=settings.RQ_QUEUES["escalations"]["SERIALIZER"])
