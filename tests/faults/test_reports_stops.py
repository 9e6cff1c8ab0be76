"""SIGTERM at bad moments: faults reported of neighbours. Nobody hands anything back; locks expire.

Promise: whoever is stopped, wherever he stands, each deadline ends once and soon.
"""

import random
import signal
import time
from collections.abc import Iterator

import pytest
from redis import Redis

from escalation.doorbell import ring
from escalation.timeline_keys import keys
from tests.conftest import connect_as_owner
from tests.faults.harness import (
    Crew,
    Member,
    assert_each_promoted_once,
    nothing_is_due,
    open_due,
    promotions,
    redis_is_in_step,
)
from tests.situations import default_ladder

pytestmark = pytest.mark.processes

LOCK_TTL_S = 5
POLL_INTERVAL_S = 1
# What is promised, and what a busy machine may add to start, look and write.
PROMISED_S = LOCK_TTL_S + 2 * POLL_INTERVAL_S
BUSY_S = 10
# A poller promotes by itself what is later than its lock_ttl_s; this one leaves it to the workers.
ONLY_RINGS = '{"poll_interval_s": 1, "lock_ttl_s": 300, "drain_linger_s": 0}'
ONE_BY_ONE = (
    '{"poll_interval_s": 1, "lock_ttl_s": 5, "drain_linger_s": 0, "batch_size": 1,'
    ' "drain_budget_s": 1}'
)


def assert_others_promote_in_time(crew: Crew) -> None:
    crew.wait(nothing_is_due, timeout_s=PROMISED_S + BUSY_S)


@pytest.mark.parametrize("point", ["poller.before_ring", "poller.after_ring"])
def test_bug_14_a_poller_stopped_while_it_stands_here_keeps_no_deadline_from_the_others(
    crew: Crew, point: str
) -> None:
    default_ladder()
    ids = open_due(10)
    latch = crew.latch()
    stopped = crew.poller(FAILPOINTS=f"{point}={latch.order}", ESCALATION=ONLY_RINGS)
    crew.wait(latch.somebody_stands_here)
    stopped.process.send_signal(signal.SIGTERM)
    crew.worker("escalations")
    crew.poller(ESCALATION=ONLY_RINGS)
    assert_others_promote_in_time(crew)
    assert stopped.is_running, "it stands there all the while"
    latch.let_go()
    assert_ends_in_peace(crew, stopped)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def test_bug_14_a_worker_stopped_between_taking_a_job_and_beginning_it_loses_a_job_and_no_deadline(
    crew: Crew, redis_client: Redis
) -> None:
    """The job is gone for good; it carried no dispute, so the poller rings again."""
    default_ladder()
    ids = open_due(10)
    latch = crew.latch()
    stopped = crew.worker(
        "escalations",
        "--worker-class=tests.faults.standing_worker.StandingWorker",
        FAILPOINTS=f"worker.dequeued={latch.order}",
    )
    crew.poller(ESCALATION=ONLY_RINGS)
    crew.wait(latch.somebody_stands_here)
    stopped.process.send_signal(signal.SIGTERM)
    assert_ends_in_peace(crew, stopped)
    assert not stopped.said("Job OK"), "it was to stop before the job began"
    crew.worker("escalations")
    assert_others_promote_in_time(crew)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def test_bug_14_a_worker_stopped_after_its_claim_leaves_it_to_the_expiry_of_the_lock(
    crew: Crew, redis_client: Redis
) -> None:
    default_ladder()
    ids = open_due(10)
    latch = crew.latch()
    stopped = crew.worker("escalations", FAILPOINTS=f"drain.claimed={latch.order}")
    crew.poller(ESCALATION=ONLY_RINGS)
    crew.wait(latch.somebody_stands_here)
    stopped.process.send_signal(signal.SIGTERM)
    assert len(list(redis_client.scan_iter(match=f"{keys().lock}*"))) == len(ids)
    crew.worker("escalations")
    assert_others_promote_in_time(crew)
    assert stopped.is_running, "it stands there all the while"
    latch.let_go()
    assert_ends_in_peace(crew, stopped)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)


def assert_ends_in_peace(crew: Crew, member: Member) -> None:
    crew.wait(lambda: not member.is_running)
    assert member.process.returncode == 0, crew.story()


@pytest.fixture
def slow_postgres(transactional_db: None) -> Iterator[None]:
    """Every entry of the log takes its time, so that a backlog lasts and stops come in mid-work."""
    with connect_as_owner() as owner:
        owner.execute(
            "CREATE FUNCTION take_your_time() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$"
        )
        owner.execute(
            "CREATE TRIGGER take_your_time BEFORE INSERT ON disputes_auditentry"
            " FOR EACH ROW WHEN (NEW.action = 'promoted') EXECUTE FUNCTION take_your_time()"
        )
        yield
        owner.execute("DROP TRIGGER take_your_time ON disputes_auditentry")
        owner.execute("DROP FUNCTION take_your_time")


@pytest.mark.usefixtures("slow_postgres")
@pytest.mark.parametrize(
    ("stops", "disputes"), [(10, 60), pytest.param(100, 200, marks=pytest.mark.long)]
)
def test_bug_23_workers_stopped_again_and_again_at_random_moments_promote_everything_once(
    crew: Crew, stops: int, disputes: int
) -> None:
    """Most stops reach the work horse too and end it in mid-work; the others let it finish.

    The test rings: a poller would begin to promote by itself before the long run is over.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    finished = 0
    default_ladder()
    ids = open_due(disputes)
    for number in range(stops):
        ring("escalations")
        worker = crew.worker("escalations", ESCALATION=ONE_BY_ONE)
        crew.wait(lambda worker=worker: worker.said("escalation.jobs.drain"))
        time.sleep(chance.uniform(0, 0.25))  # the random moment itself
        left = disputes - promotions()
        assert left, f"all was done before stop {number}: the stops came too late"
        # One that finishes takes ten or twenty with it; enough must be left for the next ones.
        if number % 5 == 2 and left > 2 * (stops - number) + 20:
            worker.process.send_signal(signal.SIGTERM)
            finished += 1
        else:
            worker.signal_all(signal.SIGTERM)
        crew.wait(lambda worker=worker: not worker.is_running)
    assert finished, "no stop let a work horse finish"
    assert promotions() < disputes
    crew.worker("escalations", ESCALATION=ONE_BY_ONE)
    crew.poller(ESCALATION=ONLY_RINGS)
    crew.wait(nothing_is_due, timeout_s=120)
    crew.wait(redis_is_in_step)
    assert_each_promoted_once(ids)
