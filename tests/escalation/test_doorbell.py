"""A job says "there is work"; few ever wait, JSON only, and it runs in a real RQ worker."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from redis import Redis
from rq import Queue, SimpleWorker
from rq.registry import FailedJobRegistry
from rq.serializers import DefaultSerializer, JSONSerializer

from disputes.clock import database_now
from disputes.models import Dispute, Notification
from escalation.doorbell import MOST_WAITING, QUIET_MS, mend_queues, ring, waiting
from escalation.timeline_keys import keys
from tests.races.gates import Background
from tests.situations import HOUR, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


def work(redis_client: Redis, *queues: str) -> SimpleWorker:
    """Work off what waits, in this process, as `rqworker` does."""
    worker = SimpleWorker(
        [Queue(name, connection=redis_client, serializer=JSONSerializer) for name in queues],
        connection=redis_client,
        serializer=JSONSerializer,
    )
    worker.work(burst=True, logging_level="ERROR")
    return worker


def failed(redis_client: Redis, queue: str) -> int:
    return FailedJobRegistry(queue, connection=redis_client, serializer=JSONSerializer).count


def let_the_quiet_time_pass(redis_client: Redis) -> None:
    redis_client.delete(f"{keys().bell}escalations", f"{keys().bell}notifications")


@pytest.fixture
def due() -> Dispute:
    default_ladder()
    person("ada", "standard")
    person("sam", "senior")
    now = database_now()
    return opened(now=now - 3 * HOUR, due_at=now - timedelta(seconds=1))


def test_a_drain_job_promotes_and_a_delivery_job_sends(
    due: Dispute, redis_client: Redis, mailoutbox: list
) -> None:
    let_the_quiet_time_pass(redis_client)
    assert ring("escalations") == 1
    work(redis_client, "escalations")
    assert again(due).tier.slug == "senior"
    let_the_quiet_time_pass(redis_client)
    ring("notifications")
    work(redis_client, "notifications")
    assert waiting("escalations") == waiting("notifications") == 0
    assert failed(redis_client, "escalations") == failed(redis_client, "notifications") == 0
    # The arrival in the first tier is out of date and was cancelled; the one in the second is not.
    assert [sent.to for sent in mailoutbox] == [["sam@example.com"]]
    assert set(Notification.objects.values_list("status", flat=True)) == {"cancelled", "sent"}


def test_jobs_that_run_twice_or_for_nothing_do_no_harm(due: Dispute, redis_client: Redis) -> None:
    queue = Queue("escalations", connection=redis_client, serializer=JSONSerializer)
    for _ in range(5):
        queue.enqueue("escalation.jobs.drain")
    work(redis_client, "escalations")
    assert again(due).version == 2
    assert failed(redis_client, "escalations") == 0


def test_a_job_carries_no_dispute(due: Dispute, redis_client: Redis) -> None:
    ring("escalations")
    (job,) = Queue("escalations", connection=redis_client, serializer=JSONSerializer).jobs
    assert (job.func_name, job.args, job.kwargs) == ("escalation.jobs.drain", [], {})
    assert str(due.pk).encode() not in redis_client.dump(b"rq:job:" + job.id.encode())


class Touch:
    """Unpickled, it makes a file: what an attacker's pickle would do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickled_job_is_not_run_and_not_even_read(redis_client: Redis, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    poisoned = Queue("escalations", connection=redis_client, serializer=DefaultSerializer)
    poisoned.enqueue("builtins.print", Touch(trap))
    work(redis_client, "escalations")
    assert not trap.exists()
    assert failed(redis_client, "escalations") == 1


def test_the_products_own_worker_command_does_not_unpickle_either(
    redis_client: Redis, tmp_path: Path
) -> None:
    trap = tmp_path / "sprung"
    Queue("escalations", connection=redis_client).enqueue("builtins.print", Touch(trap))
    call_command("rqworker", "escalations", burst=True, worker_class="rq.SimpleWorker", verbosity=0)
    assert waiting("escalations") == 0
    assert not trap.exists()


def test_no_more_wait_than_were_asked_for(redis_client: Redis) -> None:
    assert ring("escalations", wanted=2) == 2
    let_the_quiet_time_pass(redis_client)
    assert ring("escalations", wanted=2) == 0
    assert ring("escalations", wanted=3) == 1
    assert waiting("escalations") == 3


def test_however_often_and_much_is_asked_for_few_wait(redis_client: Redis) -> None:
    for _ in range(20):
        let_the_quiet_time_pass(redis_client)
        ring("escalations", wanted=1000)
    assert waiting("escalations") == MOST_WAITING


def test_those_who_ring_at_one_instant_ring_once_between_them(redis_client: Redis) -> None:
    start = threading.Barrier(8)

    def ring_at_once() -> int:
        start.wait(10)
        return ring("escalations", wanted=MOST_WAITING)

    rung = [each.result() for each in [Background(ring_at_once) for _ in range(8)]]
    assert sorted(rung)[-2:] == [0, MOST_WAITING]
    assert waiting("escalations") == MOST_WAITING


def test_a_slow_ringer_counts_again_when_it_has_the_bell(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before another rang, and took the bell after the quiet time was over."""
    was, looks = Queue.count, []

    def count(self: Queue) -> int:
        number = was.fget(self)
        if not looks:
            looks.append(number)
            ring("escalations", wanted=MOST_WAITING)
            let_the_quiet_time_pass(redis_client)
        return number

    monkeypatch.setattr(Queue, "count", property(count))
    assert ring("escalations", wanted=MOST_WAITING) == 0
    monkeypatch.undo()
    assert looks == [0]
    assert waiting("escalations") == MOST_WAITING


def test_the_quiet_time_ends_by_itself(redis_client: Redis) -> None:
    ring("escalations")
    assert 0 < redis_client.pttl(f"{keys().bell}escalations") <= QUIET_MS


def test_one_queue_is_not_quiet_because_the_other_was_rung(redis_client: Redis) -> None:
    assert ring("escalations") == 1
    assert ring("notifications") == 1


@pytest.mark.parametrize("kind", ["string", "list", "long"])
def test_a_bell_that_never_ends_is_taken_down(redis_client, kind):
    bell = f"{keys().bell}escalations"
    if kind == "list":
        redis_client.rpush(bell, "x")
    else:
        redis_client.set(bell, "x", ex=9_999 if kind == "long" else None)
    assert ring("escalations") == 0
    assert ring("escalations") == 1


@pytest.mark.parametrize(
    "key", ["rq:queues", "rq:queue:notifications", "rq:wip:escalations", "rq:workers:escalations"]
)
def test_a_key_of_rq_that_somebody_made_another_type_is_removed(
    redis_client: Redis, key: str
) -> None:
    ring("escalations")
    work(redis_client, "escalations", "notifications").work(burst=True)
    before = {name for name in redis_client.scan_iter("rq:*") if name.decode() != key}
    redis_client.delete(key)
    redis_client.set(key, "a stranger's")
    assert mend_queues() == [key]
    assert not redis_client.exists(key)
    assert set(redis_client.scan_iter("rq:*")) == before
    assert mend_queues() == []
    assert ring("notifications") == 1
