"""Put failed messages back into the outbox."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from disputes import outbox
from disputes.clock import database_now
from disputes.models import Notification
from escalation.poller import ring_quietly


class Command(BaseCommand):
    help = "Send failed messages again, with the same idempotency keys."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="*", type=int, help="notification ids; none: all failed")
        parser.add_argument("--list", action="store_true", help="list failed messages, change none")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            failed = Notification.objects.filter(status=Notification.Status.FAILED).order_by("pk")
            for message in failed.iterator():
                self.stdout.write(
                    f"{message.pk}\t{message.dispute_id}\t{message.event}\t{message.channel}\t"
                    f"{message.recipient}\t{message.last_error}"
                )
            return
        number = outbox.replay(ids=options["ids"] or None, now=database_now())
        if number:
            ring_quietly()
        self.stdout.write(
            json.dumps({"replayed": number}) if options["json"] else f"{number} messages put back"
        )
