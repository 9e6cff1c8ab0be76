"""Look for passed deadlines until stopped."""

import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from redis.exceptions import RedisError

from escalation.loop import stop_on_signals
from escalation.poller import Poller
from escalation.redis_client import refuse_evicting_policy, timeline_client


class Command(BaseCommand):
    help = "Look for passed deadlines and ring the workers, until SIGTERM. Run any number of them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="look once and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            refuse_evicting_policy(timeline_client())
        except (RedisError, OSError) as error:
            self.stderr.write(f"Redis cannot be reached yet: {error}")
        if options["once"]:
            found = Poller(stop=threading.Event()).look()
            self.stdout.write(
                f"{found.due} due, {found.rung} jobs rung, {found.handed_over} handed over"
                + (f" ({found.degraded})" if found.degraded else "")
            )
            return
        Poller(stop=stop_on_signals()).run()
