"""Whether this system works: for load balancers, for operators, for the banner on the pages."""

from dataclasses import dataclass, field
from datetime import timedelta

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from redis.exceptions import RedisError, ResponseError

from disputes.clock import database_now
from disputes.outbox import stranded
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.conf import conf
from escalation.delivery import LEASE
from escalation.destinations import troubles
from escalation.drain import lateness
from escalation.models import Failure, Heartbeat
from escalation.redis_client import timeline_client

# Senders may be busy; those of the limit, and of channels that rest, are put off and not late.
MESSAGES_LATE = timedelta(seconds=60)


@dataclass(slots=True)
class Health:
    """`degraded` says in words what is missing while people can still work."""

    degraded: list[str] = field(default_factory=list)
    late_s: float = 0.0
    parked: int = 0

    @property
    def status(self) -> str:
        """ok or degraded."""
        return "degraded" if self.degraded else "ok"


def pending_migrations() -> int:
    """How many migrations the database lacks. Raises what Postgres raises."""
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _redis_trouble() -> list[str]:
    client = timeline_client("request")
    try:
        survey.is_built(client=client)
        timeline.depth(client=client)
    except survey.LayoutMismatch:
        return ["the timeline in Redis belongs to another release: see docs/operations.md"]
    except ResponseError as error:
        return [f"the timeline in Redis cannot be used ({str(error)[:80]})"]
    except (RedisError, OSError):
        return ["Redis cannot be reached: escalations are slower, nothing is lost"]
    return []


def health() -> Health:
    """Look at Postgres, Redis and the pollers. Raises what Postgres raises."""
    now = database_now()
    found = Health()
    found.degraded += _redis_trouble()
    alive_since = now - 3 * timedelta(seconds=conf().poll_interval_s * (1 + conf().jitter))
    if not Heartbeat.objects.filter(kind="poller", at__gte=alive_since).exists():
        found.degraded.append("no poller is running: escalations wait")
    late = lateness(now=now)
    found.late_s = round(late.total_seconds(), 1)
    if late > timedelta(seconds=conf().lock_ttl_s + 2 * conf().poll_interval_s):
        found.degraded.append(f"escalations are {int(late.total_seconds())} s late")
    found.parked = Failure.objects.filter(parked_at__isnull=False).count()
    if found.parked:
        found.degraded.append(f"parked disputes that need an operator: {found.parked}")
    if stranded(now=now, lease=LEASE, grace=MESSAGES_LATE):
        found.degraded.append(f"messages have waited for more than {MESSAGES_LATE.seconds} s")
    found.degraded += troubles()
    return found
