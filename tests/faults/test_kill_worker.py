"""kill -9 of workers at every point of their work: each deadline still ends exactly once."""

import os
import signal

import pytest
from redis import Redis

from escalation import timeline_survey
from escalation.timeline_keys import keys
from tests.faults.harness import (
    Crew,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    open_transactions,
    promotions,
    redis_is_in_step,
)
from tests.situations import default_ladder

pytestmark = pytest.mark.processes

POINTS = (
    "drain.claimed",
    "journal.rows_written",
    "journal.audit_written",
    "promote.before_commit",
    "promote.committed",
    "drain.promoted",
    "drain.synced",
)
SMALL_BATCHES = '{"poll_interval_s": 1, "lock_ttl_s": 5, "drain_linger_s": 0, "batch_size": 10}'
# A poller promotes by itself what is later than its lock_ttl_s; this one leaves it to the workers.
ONLY_RINGS = '{"poll_interval_s": 1, "lock_ttl_s": 300, "batch_size": 10}'


def test_f01_a_work_horse_killed_at_any_point_costs_no_deadline_and_doubles_none(
    crew: Crew,
) -> None:
    """Each death keeps its own batch locked; all seven locks are waited for at once."""
    default_ladder()
    # A drain of a backlog works on two batches at once, and a death leaves both locked.
    ids = open_due(2 * 10 * len(POINTS) + 5)
    failpoints, files = crew.mortal_points(*POINTS)
    worker = crew.worker("escalations", FAILPOINTS=failpoints, ESCALATION=SMALL_BATCHES)
    crew.poller(ESCALATION=ONLY_RINGS)
    crew.wait(lambda: not any(map(os.path.exists, files)))
    worker.kill()
    assert promotions() < len(ids), "the deaths came too late to prove anything"
    crew.worker("escalations", ESCALATION=SMALL_BATCHES)
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


@pytest.mark.parametrize(
    ("point", "promoted", "has_new_scores"),
    [
        ("journal.audit_written", 0, False),
        ("announce.committed", 20, False),
        ("promote.committed", 20, True),
    ],
)
def test_f04_f06_bug_20_a_whole_worker_killed_while_it_stands_there_leaves_its_work_to_the_next(
    crew: Crew, point: str, promoted: int, has_new_scores: bool, redis_client: Redis
) -> None:
    """Worker and work horse die together: before the commit all is undone, after it all stays.

    At no moment is a dispute off the timeline: its old score is there until the new one is.
    """
    default_ladder()
    ids = open_due(20)
    members = [str(id_) for id_ in ids]
    before = timeline_survey.scores(members)
    latch = crew.latch()
    worker = crew.worker("escalations", FAILPOINTS=f"{point}={latch.order}")
    crew.poller(ESCALATION=ONLY_RINGS)
    crew.wait(latch.somebody_stands_here)
    worker.signal_all(signal.SIGKILL)
    worker.kill()
    crew.wait(lambda: open_transactions() == 0)
    assert promotions() == promoted
    left = timeline_survey.scores(members)
    assert len(left) == 20
    assert (left != before) == has_new_scores
    locks = list(redis_client.scan_iter(match=f"{keys().lock}*"))
    assert len(locks) == 20, "nothing that dies gives its locks back; they expire"
    crew.worker("escalations")
    crew.wait(nothing_is_due)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)
