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
        parser.add_argument("--json", action="store_true", help="print JSON, one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            for message in Notification.objects.filter(status=Notification.Status.FAILED).order_by(
                "pk"
            ):
                self._show(message, as_json=options["json"])
            return
        number = outbox.replay(ids=options["ids"] or None, now=database_now())
        if number:
            ring_quietly()
        self.stdout.write(
            json.dumps({"replayed": number}) if options["json"] else f"{number} messages put back"
        )

    def _show(self, message: Notification, *, as_json: bool) -> None:
        shown = {
            "id": message.pk,
            "dispute": str(message.dispute_id),
            "event": message.event,
            "channel": message.channel,
            "recipient": message.recipient,
            "error": message.last_error,
        }
        self.stdout.write(json.dumps(shown) if as_json else "\t".join(map(str, shown.values())))
