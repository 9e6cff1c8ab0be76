"""Put failed messages back into the outbox."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from disputes import outbox
from disputes.clock import database_now
from disputes.commands import SOMETHING_WRONG
from disputes.models import Notification
from escalation.poller import ring_quietly


class Command(BaseCommand):
    help = (
        "Send failed messages again, with the same idempotency keys. Exit 1 if one of the ids is "
        "no failed message; the others are put back."
    )

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
        left = why_not(options["ids"])
        number = outbox.replay(ids=options["ids"] or None, now=database_now())
        if number:
            ring_quietly()
        if options["json"]:
            self.stdout.write(json.dumps({"replayed": number, "not_replayed": left}))
        else:
            self.stdout.write(f"{number} messages put back")
        for pk, why in left.items():
            self.stderr.write(f"{pk}: {why}")
        if left:
            sys.exit(SOMETHING_WRONG)

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


def why_not(ids: Sequence[int]) -> dict[int, str]:
    """The ids that cannot be put back, in the order given, with the reason."""
    statuses = dict(Notification.objects.filter(pk__in=ids).values_list("pk", "status"))
    reasons = {
        pk: f"not failed but {statuses[pk]}" if pk in statuses else "no such message" for pk in ids
    }
    return {pk: reasons[pk] for pk in ids if statuses.get(pk) != Notification.Status.FAILED}
