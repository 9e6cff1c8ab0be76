"""Others use the same Redis: nothing of theirs is read, changed or removed."""

import threading

import pytest
from redis import Redis

from disputes.clock import database_now
from escalation import timeline
from escalation.drain import drain
from escalation.poller import Poller
from escalation.reconcile import rebuild, reconcile
from reviewqueue.ready import reconcile_duty, take_next
from tests.faults.harness import KNOBS, assert_each_promoted_once, open_due, open_due_in
from tests.situations import default_ladder, person

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def contents(redis_client: Redis, prefix: str) -> dict[bytes, bytes | None]:
    """Every key under the prefix, as the server would write it to a file."""
    return {key: redis_client.dump(key) for key in redis_client.scan_iter(match=f"{prefix}*")}


def test_f36_another_deployment_and_strangers_keep_every_byte(
    settings, redis_client: Redis
) -> None:
    """The other's timeline and queues hold this database's disputes: a mix-up would find them."""
    default_ladder()
    ada = person("ada", "standard")
    settings.ESCALATION = {**KNOBS, "prefix": "theirs:"}
    ids, waiting = open_due(10), open_due_in(2, seconds=3600)
    rebuild()
    reconcile_duty(now=database_now())
    held = timeline.claim(now_us=2**52, limit=3, token="theirs")
    assert len(held.ids) == 3
    # Their locks would end by themselves in the middle of the test.
    for lock in redis_client.scan_iter(match="theirs:*lock:*"):
        redis_client.persist(lock)
    redis_client.set("theirs:a-stranger", "keeps this")
    before = contents(redis_client, "theirs:")
    assert len(before) > 12

    settings.ESCALATION = {**KNOBS, "prefix": "ours:"}
    assert timeline.depth() == 0
    Poller(threading.Event()).look()
    drain(linger_s=0)
    rebuild()
    reconcile()
    reconcile_duty(now=database_now())
    assert take_next(ada, queue_ids=None, now=database_now()).pk in waiting
    assert_each_promoted_once(ids)
    assert contents(redis_client, "theirs:") == before
