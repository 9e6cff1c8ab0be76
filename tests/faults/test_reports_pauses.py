"""Long quiet and long pauses: faults reported of neighbours.

Promise: who waited long hears at once, and what was paused goes on, whatever was lost meanwhile.
"""

import re
import time
from datetime import timedelta

import pytest
from redis import Redis

from disputes.clock import database_now
from disputes.models import AuditEntry, Dispute
from disputes.transitions.moving import pause
from disputes.transitions.reviewing import acknowledge
from escalation import timeline_survey
from escalation.models import Heartbeat
from escalation.redis_client import WORKER_TIMEOUT_S
from escalation.timeline_survey import is_built
from tests.faults.database_clock import DatabaseClock
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    assert_sound,
    nothing_is_due,
    open_due_in,
    promotions,
    redis_is_in_step,
)
from tests.situations import HOUR, MINUTE, default_ladder, person

pytestmark = pytest.mark.processes

TROUBLE = re.compile(r"error|warning|Traceback|Timeout", re.IGNORECASE)
# So rarely that only a message through the idle connection can be in time.
LOOKS_EACH_MINUTE = '{"poll_interval_s": 60, "lock_ttl_s": 5, "drain_linger_s": 0}'
SOON = timedelta(seconds=10)


@pytest.mark.parametrize("idle_s", [WORKER_TIMEOUT_S + 2, pytest.param(60, marks=pytest.mark.long)])
def test_bug_24_after_a_long_idle_time_a_deadline_is_picked_up_at_once_and_nobody_complained(
    crew: Crew, redis_client: Redis, idle_s: float
) -> None:
    """Longer than any time-out of a socket: those that wait for messages wait without error."""
    default_ladder()
    poller = crew.poller(ESCALATION=LOOKS_EACH_MINUTE)
    worker = crew.worker("escalations", "notifications")
    crew.wait(Heartbeat.objects.filter(detail__degraded="").exists)
    crew.wait(lambda: bool(redis_client.smembers("rq:workers")))
    quiet_from = {member: len(member.log.read_text()) for member in (poller, worker)}
    until = time.monotonic() + idle_s
    crew.wait(lambda: time.monotonic() > until, timeout_s=idle_s + 30)
    said = [member.log.read_text()[start:] for member, start in quiet_from.items()]
    assert not any(map(TROUBLE.search, said)), crew.story()
    ids = open_due_in(3, seconds=2)
    crew.wait(nothing_is_due)
    crew.wait(lambda: promotions() == len(ids))
    for entry in AuditEntry.objects.filter(dispute__in=ids, action="promoted"):
        assert entry.recorded_at - entry.from_due_at < SOON, crew.story()
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def test_bug_28_what_was_held_or_paused_goes_on_in_time_although_all_of_redis_was_lost(
    crew: Crew, crews_clock: DatabaseClock, redis_client: Redis
) -> None:
    """A hold of half an hour and a pause of an hour; their ends stand in Postgres."""
    clock = crews_clock
    default_ladder()
    ada = person("ada", "standard")
    held, paused = open_due_in(2, seconds=1800)
    poller, worker = crew.poller(), crew.worker("escalations", "notifications")
    crew.wait(is_built)
    now = database_now()
    acknowledge(held, actor=ada, seen_version=1, now=now)
    pause(paused, actor=ada, reason="waits for the bank", now=now, until=now + HOUR)
    ends = {str(pk): due for pk, due in Dispute.objects.values_list("pk", "due_at")}
    assert set(ends.values()) == {now + 30 * MINUTE, now + HOUR}
    poller.kill()
    worker.kill()
    redis_client.flushdb()
    crew.poller()
    # The holder is told; what nobody sends would count as stranded when the clock jumps.
    crew.worker("escalations", "notifications")
    crew.wait(is_built)
    assert timeline_survey.scores(list(ends)).keys() == ends.keys()
    assert promotions() == 0
    clock.move(HOUR)
    # The hold gives the deadline of before back, which has passed; the pause gives back the rest.
    crew.wait(lambda: promotions([held]) == 1)
    crew.wait(lambda: Dispute.objects.get(pk=paused).status == "open")
    assert actions(held) == ["created", "acknowledged", "hold_expired", "promoted"]
    assert actions(paused) == ["created", "paused", "pause_expired"]
    clock.move(HOUR)
    crew.wait(lambda: promotions([paused]) == 1)
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert promotions() == 2
    assert actions(paused) == ["created", "paused", "pause_expired", "promoted"]
    assert_sound()


def actions(dispute_id) -> list[str]:
    entries = AuditEntry.objects.filter(dispute=dispute_id).order_by("version")
    return list(entries.values_list("action", flat=True))
