"""Locks that end too early, too late or under somebody's hands: faults reported of neighbours.

Promise: a lock only saves work. Whatever becomes of it, each deadline ends once, nobody's lock is
taken away by anybody else, and no process ends of it.
"""

import signal
import time

import pytest
from redis import Redis
from rq import Queue
from rq.registry import FailedJobRegistry

from disputes.clock import database_now
from disputes.rules import microseconds
from escalation import timeline
from escalation.doorbell import ring
from escalation.drain import drain
from escalation.timeline_keys import keys
from tests.faults.harness import (
    Crew,
    Latch,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    open_transactions,
    promotions,
    redis_is_in_step,
)
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, default_ladder

pytestmark = pytest.mark.processes

LOCK_TTL_S = 5
CONTENTION = "match_decision=LOCK_CONTENTION"
# Locks that nobody sees expire, and pollers that leave all the work to the workers.
LASTING = '{"poll_interval_s": 1, "lock_ttl_s": 300, "drain_linger_s": 0}'
SMALL_BATCHES = '{"poll_interval_s": 1, "lock_ttl_s": 5, "drain_linger_s": 0, "batch_size": 5}'


def stand(crew: Crew, latch: Latch, *, seconds: float) -> None:
    """The span of the report, counted from when somebody stands there."""
    crew.wait(latch.somebody_stands_here)
    until = time.monotonic() + seconds
    crew.wait(lambda: time.monotonic() > until)


def test_bug_06_bug_17_a_batch_that_takes_three_times_its_lock_is_written_once_by_its_holder(
    crew: Crew,
) -> None:
    """The others claim it when the lock is over, find its rows in use, and pass on."""
    default_ladder()
    ids = open_due(10)
    latch = crew.latch()
    slow = crew.worker("escalations", FAILPOINTS=f"promote.selected={latch.order}")
    pollers = [crew.poller(LOG_LEVEL="DEBUG")]
    crew.wait(latch.somebody_stands_here)
    pollers.append(crew.poller(LOG_LEVEL="DEBUG"))
    second = crew.worker("escalations", LOG_LEVEL="DEBUG")
    stand(crew, latch, seconds=3 * LOCK_TTL_S)
    crew.wait(lambda: second.said(CONTENTION))
    crew.wait(lambda: any(poller.said(CONTENTION) for poller in pollers))
    assert promotions() == 0
    latch.let_go()
    crew.wait(nothing_is_due)
    crew.wait(lambda: slow.said("Job OK"))
    crew.wait(redis_is_in_step)
    assert not second.said("escalation.promoted")
    assert_each_promoted_once(ids)


def test_bug_09_four_pollers_ring_for_batches_slower_than_their_locks_and_none_is_doubled(
    crew: Crew, redis_client: Redis
) -> None:
    """Every promotion takes one and a half times the lock; two drains hold all of them."""
    default_ladder()
    ids = open_due(20)
    latch = crew.latch()
    for _ in range(2):
        crew.worker(
            "escalations",
            FAILPOINTS=f"promote.selected={latch.order}",
            ESCALATION=SMALL_BATCHES,
        )
    pollers = [crew.poller(ESCALATION=LASTING)]
    crew.wait(latch.somebody_stands_here)
    # Each drain of a backlog works on two batches at once.
    crew.wait(lambda: open_transactions() == 4)
    assert len(list(redis_client.scan_iter(match=f"{keys().lock}*"))) == len(ids)
    pollers += [crew.poller(ESCALATION=LASTING) for _ in range(3)]
    free = crew.worker("escalations", ESCALATION=SMALL_BATCHES, LOG_LEVEL="DEBUG")
    stand(crew, latch, seconds=1.5 * LOCK_TTL_S)
    crew.wait(lambda: free.said(CONTENTION))
    assert promotions() == 0
    latch.let_go()
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert all(poller.is_running for poller in pollers), crew.story()
    assert_each_promoted_once(ids)


def test_bug_07_a_worker_that_got_no_lock_and_is_stopped_leaves_the_lock_of_its_holder(
    crew: Crew, redis_client: Redis
) -> None:
    default_ladder()
    (held,) = open_due(1)
    holder, loser = crew.latch(), crew.latch()
    crew.worker("escalations", FAILPOINTS=f"promote.selected={holder.order}", ESCALATION=LASTING)
    crew.poller(ESCALATION=LASTING)
    crew.wait(holder.somebody_stands_here)
    lock = f"{keys().lock}{held}"
    token = redis_client.get(lock)
    assert token
    worker = crew.worker(
        "escalations", FAILPOINTS=f"drain.claimed={loser.order}", ESCALATION=LASTING
    )
    ring("escalations")
    crew.wait(loser.somebody_stands_here)
    worker.process.send_signal(signal.SIGTERM)
    loser.let_go()
    crew.wait(lambda: not worker.is_running)
    assert worker.process.returncode == 0
    assert worker.said("Job OK"), "it was to fail at its claim, and then end in peace"
    assert redis_client.get(lock) == token
    holder.let_go()
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once([held])


@pytest.mark.django_db(transaction=True)
def test_bug_08_a_drain_that_stood_still_before_its_release_leaves_the_lock_of_the_next_owner(
    redis_client: Redis,
) -> None:
    """Compared and deleted in one script, so that nobody can stand between the two."""
    default_ladder()
    (id_,) = open_due(1)
    far = microseconds(database_now() + 10 * HOUR)
    lock = f"{keys().lock}{id_}"
    with gate_at("drain.synced") as gate:
        work = Background(lambda: drain(linger_s=0))
        gate.wait()
        # As its time to live would.
        assert redis_client.delete(lock) == 1
        assert timeline.claim(now_us=far, limit=1, token="next").ids == (str(id_),)
        gate.open.set()
        work.result()
    assert redis_client.get(lock) == b"next"
    assert timeline.claim(now_us=far, limit=1, token="third").ids == ()


def test_bug_18_a_lock_deleted_under_its_holder_ends_no_process_and_doubles_nothing(
    crew: Crew, redis_client: Redis
) -> None:
    default_ladder()
    ids = open_due(5)
    latch = crew.latch()
    worker = crew.worker(
        "escalations", FAILPOINTS=f"promote.selected={latch.order}", ESCALATION=LASTING
    )
    crew.poller(ESCALATION=LASTING)
    crew.wait(latch.somebody_stands_here)
    assert redis_client.delete(*(f"{keys().lock}{id_}" for id_ in ids)) == len(ids)
    latch.let_go()
    crew.wait(nothing_is_due)
    # Nobody else is there to do these.
    ids += open_due(3)
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert worker.is_running, crew.story()
    assert not worker.said("Traceback"), crew.story()
    assert len(FailedJobRegistry(queue=Queue("escalations", connection=redis_client))) == 0
    assert_each_promoted_once(ids)
